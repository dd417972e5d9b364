"""Compare the latency of exported policies, side by side: each round times every file, in turn.

    python benchmarks/onnx_latency.py before/policy.onnx after/policy.onnx --rounds 60

Each call has one observation and one thread. Each round gives a median. Other load on the machine affects the smallest
median least.
"""

from __future__ import annotations

import argparse
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from body_transformer.bench.clocks import take_turns
from body_transformer.deploy.session import open_session


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the latency of exported policies, side by side.")
    parser.add_argument("files", nargs="+", type=Path, help="ONNX files; the first one is the baseline")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--calls", type=int, default=100, help="calls of each file per round")
    options = parser.parse_args()
    sessions = [open_session(file.read_bytes(), str(file.parent), batch=1) for file in options.files]
    name, size = sessions[0].get_inputs()[0].name, sessions[0].get_inputs()[0].shape[1]
    feed = {name: np.random.default_rng(0).normal(size=(1, size)).astype(np.float32)}
    samples = take_turns([[partial(one.run, None, feed)] for one in sessions], options.rounds, options.calls)
    medians = 1e3 * np.median(np.reshape(samples, (len(sessions), options.rounds, options.calls)), axis=2)
    actions = [session.run(None, feed)[0] for session in sessions]
    for file, found, action in zip(options.files, medians, actions, strict=True):
        nodes = Counter(node.op_type for node in onnx.load(file).graph.node)
        print(
            f"{file}: smallest median {found.min():.1f} us ({found.min() / medians[0].min():.2f} of the baseline), "
            f"median of medians {np.median(found):.1f} us, 90% of medians below {np.quantile(found, 0.9):.1f} us, "
            f"{nodes.total() - nodes['Constant']} nodes, off by at most {np.abs(action - actions[0]).max():.1e}"
        )


if __name__ == "__main__":
    main()
