"""Compare a control step on the simulated robot between source trees, such as two versions of the link, side by side.

    bot export pretrained:a1-walk --out build/a1
    python benchmarks/link_latency.py build/a1 ../before/src src --rounds 10

Every tree has its own process, with its own simulated robot across UDP. Every 10 ms each of them computes one control
step, one after the other, in an order that changes every two ticks. So all trees see the same load. A step is what
the loop of `bot deploy` does: read the newest state, compute the command, send it. Steps that call the policy count.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HZ = 100.0
TIMES = ("a step", "its processor time", "processor time of read and send")


def worker(export: str) -> None:
    """Compute a control step per line of standard input, and print its TIMES in ms, and whether it counts."""
    from body_transformer.deploy.policy import OnnxPolicy
    from body_transformer.deploy.robots import open_robot
    from body_transformer.deploy.runtime import Runtime
    from body_transformer.deploy.runtime_config import Phase, RuntimeConfig
    from body_transformer.deploy.safety import SafetyConfig

    policy = OnnxPolicy(export)
    config = RuntimeConfig(loop_hz=HZ, seconds=1e3)
    safety = SafetyConfig(stale_ms=5000.0, max_missed=10**6, clock_drift=0.2)
    calls: list[float] = []

    def counted(obs: np.ndarray) -> np.ndarray:
        calls.append(0.0)
        return policy(obs)

    with open_robot("sim", command_timeout_ms=1000.0) as robot:
        controller = Runtime(policy.contract, counted, robot, config, safety).controller
        print("ready", flush=True)
        for tick, _ in enumerate(sys.stdin):
            before, begun, used = len(calls), time.perf_counter(), time.thread_time()
            state = robot.read()
            link = time.thread_time() - used
            command = controller.step(tick, time.monotonic(), state)
            link -= time.thread_time()
            sent = robot.send(command)
            link += time.thread_time()
            controller.sent(sent)
            wall, own = time.perf_counter() - begun, time.thread_time() - used
            counts = controller.phase == Phase.POLICY and len(calls) > before
            if controller.interventions.stop is not None:
                break
            print(f"{1e3 * wall} {1e3 * own} {1e3 * link} {int(counts)}", flush=True)


def start(export: Path, tree: Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--worker", str(export)]
    env = {**os.environ, "PYTHONPATH": str(tree.resolve()), "OMP_NUM_THREADS": "1"}
    made = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    if made.stdout.readline() != "ready\n":
        raise SystemExit(f"the process of {tree} did not start")
    return made


def compare(export: Path, trees: list[Path], seconds: float) -> list[np.ndarray]:
    """Return an array [N, 3] of TIMES in ms per tree."""
    workers = [start(export, tree) for tree in trees]
    found: list[list[list[float]]] = [[] for _ in trees]
    begun = time.monotonic()
    try:
        for tick in range(round(seconds * HZ)):
            time.sleep(max(begun + tick / HZ - time.monotonic(), 0.0))
            turns = list(range(len(trees)))[:: -1 if tick // 2 % 2 else 1]  # every second tick calls the policy
            for which in turns:
                print(file=workers[which].stdin, flush=True)
                *times, counts = map(float, workers[which].stdout.readline().split())
                if counts:
                    found[which].append(times)
    finally:
        for one in workers:
            one.stdin.close()
        for one in workers:
            one.wait(20)
    return [np.array(rows) for rows in found]


def main() -> None:
    if sys.argv[1] == "--worker":
        worker(sys.argv[2])
        return
    parser = argparse.ArgumentParser(description="Compare a control step between source trees, side by side.")
    parser.add_argument("export", type=Path, help="an exported policy of the A1")
    parser.add_argument(
        "trees", type=Path, nargs="+", help="folders that hold body_transformer; the first is the baseline"
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=25.0, help="per round")
    options = parser.parse_args()
    rounds = [compare(options.export, options.trees, options.seconds) for _ in range(options.rounds)]
    print(f"load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    pooled = [np.concatenate(rows) for rows in zip(*rounds, strict=True)]
    print(f"| tree | steps | {' | '.join(f'{name} p50, ms | p99, ms' for name in TIMES)} |")
    print("| --- " * (2 + 2 * len(TIMES)) + "|")
    for tree, rows in zip(options.trees, pooled, strict=True):
        cells = np.percentile(rows, [50, 99], axis=0).T.ravel()
        print(f"| {tree} | {len(rows)} | {' | '.join(f'{cell:.3f}' for cell in cells)} |")
    for which, tree in list(enumerate(options.trees))[1:]:
        print(f"\np99 of {tree} minus p99 of {options.trees[0]}, and for 90 % of resampled rounds:\n")
        change = np.percentile(pooled[which], 99, axis=0) - np.percentile(pooled[0], 99, axis=0)
        low, high = np.percentile(resampled(rounds, which), [5, 95], axis=0)
        for k, name in enumerate(TIMES):
            print(f"- {name}: {change[k]:+.3f} ms ({low[k]:+.3f} to {high[k]:+.3f})")


def resampled(rounds: list[list[np.ndarray]], which: int) -> np.ndarray:
    """Return changes of the p99, [1000, 3], in which whole rounds are drawn, because load changes between them."""
    rng, changes = np.random.default_rng(0), []
    for _ in range(1000):
        drawn = [rounds[k] for k in rng.integers(len(rounds), size=len(rounds))]
        after, before = (np.concatenate([rows[k] for rows in drawn]) for k in (which, 0))
        changes.append(np.percentile(after, 99, axis=0) - np.percentile(before, 99, axis=0))
    return np.array(changes)


if __name__ == "__main__":
    main()
