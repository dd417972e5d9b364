"""Compare the latency of exported policies, side by side: each round times every file, in turn.

    python benchmarks/onnx_latency.py before/policy.onnx after/policy.onnx --rounds 60

One thread, one observation. The machine may be busy: each round gives a median, and the smallest median counts.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the latency of exported policies, side by side.")
    parser.add_argument("files", nargs="+", type=Path, help="ONNX files; the first one is the baseline")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--calls", type=int, default=100, help="calls of each file per round")
    options = parser.parse_args()
    sessions = [open_session(file) for file in options.files]
    name, size = sessions[0].get_inputs()[0].name, sessions[0].get_inputs()[0].shape[1]
    obs = np.random.default_rng(0).normal(size=(1, size)).astype(np.float32)
    medians = np.array(
        [[median_us(session, {name: obs}, options.calls) for session in sessions] for _ in range(options.rounds)]
    )
    actions = [session.run(None, {name: obs})[0] for session in sessions]
    for k, file in enumerate(options.files):
        best, typical, slow = medians[:, k].min(), np.median(medians[:, k]), np.quantile(medians[:, k], 0.9)
        nodes = Counter(node.op_type for node in onnx.load(file).graph.node)
        print(
            f"{file}: smallest median {best:.1f} us ({best / medians[:, 0].min():.2f} of the baseline), median of "
            f"medians {typical:.1f} us, 90% of medians below {slow:.1f} us, {nodes.total() - nodes['Constant']} nodes, "
            f"off by at most {np.abs(actions[k] - actions[0]).max():.1e}"
        )


def open_session(file: Path) -> onnxruntime.InferenceSession:
    """Open a file as a robot does: one thread, one observation per call."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_free_dimension_override_by_name("batch", 1)
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def median_us(session: onnxruntime.InferenceSession, feed: dict[str, np.ndarray], calls: int) -> float:
    """Return the median time of one call, in microseconds."""
    times = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        session.run(None, feed)
        times.append(time.perf_counter_ns() - start)
    return float(np.median(times)) / 1e3


if __name__ == "__main__":
    main()
