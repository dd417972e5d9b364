"""Run everything that needs a GPU: the tests in parallel processes, then the benchmarks of `docs/performance.md`.

    python benchmarks/gpu_check.py OUT                    # tests, encoder, ppo
    python benchmarks/gpu_check.py OUT --steps encoder    # one step alone

Needs the extra `rl`, pytest and hypothesis, but not pytest-xdist. The peers of the encoder are compiled while the tests
run. PyTorch keeps them in its cache on disk for the timed run, during which nothing else runs.

Writes OUT/tests.txt, with the outcome of every test, and the results of each benchmark to OUT/encoder and OUT/ppo. The
output of each process of the tests is in OUT/tests, also if this program is killed before they end.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
BENCH = [sys.executable, "-m", "body_transformer.cli.main", "bench"]
OUTCOME = re.compile(r"^(\S+::.*?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b", re.MULTILINE)


def run_tests(out: Path, processes: int, quick: list[str]) -> bool:
    """Run all tests and compile the peers; write the outcome of every test, and return whether none failed."""
    flags = ["--compile-workers", "4", "--compile-only"]
    compilation = subprocess.Popen([*BENCH, "encoder", *quick, *flags], stderr=subprocess.DEVNULL)
    (out / "tests").mkdir(exist_ok=True)
    logs = [out / "tests" / f"{number}.txt" for number in range(1, processes + 1)]
    running = [start_share(log, f"{log.stem}/{processes}") for log in logs]
    broken = [log for log, process in zip(logs, running, strict=True) if process.wait() not in (0, 5)]  # 5: no test
    outcomes = dict(pair for log in logs for pair in OUTCOME.findall(log.read_text()))
    for log in broken:
        print(log.read_text()[-4000:], flush=True)
    (out / "tests.txt").write_text("".join(f"{outcome} {name}\n" for name, outcome in sorted(outcomes.items())))
    print(", ".join(f"{count} {outcome}" for outcome, count in Counter(outcomes.values()).items()), flush=True)
    compilation.wait()
    return not broken


def start_share(log: Path, share: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pytest", "tests/gpu", "-vv", "-p", "no:cacheprovider", "--share", share]
    with log.open("wb") as stream:
        return subprocess.Popen(command, cwd=ROOT, stdout=stream, stderr=subprocess.STDOUT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", choices=("tests", "encoder", "ppo"), nargs="*", default=("tests", "encoder", "ppo"))
    parser.add_argument(
        "--processes", type=int, default=min(12, os.cpu_count() or 1), help="number of processes that run the tests"
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny benchmarks, to check that they run; works without a GPU"
    )
    options = parser.parse_args()
    if options.processes < 1:
        parser.error(f"--processes must be 1 or more; got {options.processes}")
    options.out.mkdir(parents=True, exist_ok=True)
    quick = ["--quick"] if options.quick else []
    failed = []
    for step in options.steps:
        start = time.perf_counter()
        if step == "tests":
            done = run_tests(options.out, options.processes, quick)
        else:
            ahead = ["--compile-workers", "4"] if step == "encoder" and "tests" not in options.steps else []
            done = not subprocess.run([*BENCH, step, *quick, *ahead, "--out", options.out / step]).returncode
        print(f"{step}: {'done' if done else 'failed'}, {time.perf_counter() - start:.0f} s", flush=True)
        failed += [] if done else [step]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
