"""How quickly training reads MoCapAct files, beside h5py reading the same bytes alone, and in how much memory.

    python benchmarks/reading_speed.py                          # 4 files of 62 MB, windows of 32 MB
    python benchmarks/reading_speed.py --files 40 --window 512  # what training does: more data than two windows hold

Writes files of MoCapAct's layout (random numbers) to a temporary folder and reads them in turns, warm from the file
cache: by h5py, every rollout's observations and actions whole; by `Episodes.read`; as an epoch of shuffled batches.
All speeds are in bytes of the files. The round before the others is told apart: in it the windows' memory is new, and
what that takes (once a run) is the system's affair. Memory is that of a process that only opens the files and goes
through epochs.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from body_transformer.config import load_experiment
from body_transformer.imitation.batches import Batches
from body_transformer.imitation.sources import open_episodes

LAYOUT = load_experiment("mocapact").layout()
NUM_SNIPPETS, NUM_ROLLOUTS, NUM_STEPS = 3, 20, 90
STEP_BYTES = 4 * (LAYOUT.obs_dim + LAYOUT.action_dim)


def write_file(path: Path, clip: str) -> None:
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for snippet in (f"{clip}-{90 * k}-{90 * k + 96}" for k in range(NUM_SNIPPETS)):
            for rollout in (file.create_group(f"{snippet}/{k}") for k in range(NUM_ROLLOUTS)):
                shapes = {"observations/proprioceptive": (NUM_STEPS + 1, LAYOUT.obs_dim)}
                shapes |= dict.fromkeys(("actions", "mean_actions"), (NUM_STEPS, LAYOUT.action_dim))
                shapes |= dict.fromkeys(("rewards", "values", "advantages"), (NUM_STEPS,))
                for name, shape in shapes.items():
                    rollout.create_dataset(name, data=rng.standard_normal(shape, dtype=np.float32))
            file.create_dataset(f"{snippet}/early_termination", data=np.zeros(NUM_ROLLOUTS, bool))
        for name, where in LAYOUT.obs_slices.items():
            file.create_dataset(f"observable_indices/walker/{name}", data=np.arange(where.start, where.stop))
        for name in ("n_start_rollouts", "n_rsi_rollouts"):
            file.create_dataset(name, data=NUM_ROLLOUTS // 2)


def read_by_h5py(paths: list[Path]) -> int:
    done = 0
    for path in paths:
        with h5py.File(path) as file:
            for snippet in (name for name in file if name.startswith("CMU")):
                for k in range(NUM_ROLLOUTS):
                    obs = file[f"{snippet}/{k}/observations/proprioceptive"][()]
                    actions = file[f"{snippet}/{k}/actions"][()]
                    done += obs.nbytes + actions.nbytes
    return done


def read_episodes(folder: Path) -> Callable[[], int]:
    episodes = open_episodes("mocapact", str(folder), LAYOUT)
    return lambda: sum(len(episodes.read(index).obs) for index in range(len(episodes))) * STEP_BYTES


def read_batches(folder: Path, window_bytes: int) -> Callable[[], int]:
    batches = Batches(open_episodes("mocapact", str(folder), LAYOUT), 256, seed=0, window_bytes=window_bytes)
    epochs = iter(range(10**6))
    return lambda: sum(len(obs) for obs, _ in batches.epoch(next(epochs))) * STEP_BYTES


def gigabytes_per_s(read: Callable[[], int]) -> float:
    start = time.perf_counter()
    done = read()
    return done / (time.perf_counter() - start) / 1e9


def compare(folder: Path, window_bytes: int, rounds: int) -> None:
    paths = sorted(folder.glob("*.hdf5"))
    start = time.perf_counter()
    episodes = read_episodes(folder)
    print(f"checking {len(paths)} files: {1e3 * (time.perf_counter() - start) / len(paths):.1f} ms a file")
    readers = {
        "h5py alone": lambda: read_by_h5py(paths),
        "Episodes.read": episodes,
        "shuffled batches": read_batches(folder, window_bytes),
    }
    first, *speeds = [{name: gigabytes_per_s(read) for name, read in readers.items()} for _ in range(rounds + 1)]
    for name in readers:
        ratios = [speed[name] / speed["h5py alone"] for speed in speeds]
        print(
            f"{name:17} {statistics.median(speed[name] for speed in speeds):5.2f} GB/s,"
            f" {statistics.median(ratios):.2f} times h5py ({min(ratios):.2f} to {max(ratios):.2f} in {rounds} rounds);"
            f" in a round before {first[name]:.2f} GB/s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--window", type=int, default=32, help="MiB a window")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--memory-of", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_of:  # a process of its own, that has done nothing else
        read = read_batches(args.memory_of, args.window * 2**20)
        read(), read()
        print(f"peak memory       {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for k in range(args.files):
            write_file(folder / f"CMU_001_{k:02}.hdf5", f"CMU_001_{k:02}")
        megabytes = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        print(f"{args.files} files, {megabytes:.0f} MB; batches of 256 from windows of {args.window} MiB")
        compare(folder, args.window * 2**20, args.rounds)
        sys.stdout.flush()
        subprocess.run([sys.executable, __file__, "--window", str(args.window), "--memory-of", name], check=True)


if __name__ == "__main__":
    main()
