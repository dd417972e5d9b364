"""Measure speed and memory of reading MoCapAct files in training, compared with h5py alone on the same bytes.

    python benchmarks/reading_speed.py                # 40 files of 65 MB, too many for one window
    python benchmarks/reading_speed.py --files 4      # they fit into one window, which is kept

Writes files in MoCapAct's layout (random numbers) to a temporary folder and reads them from the file cache. Three
readers take turns: h5py (all observations and actions of every rollout), `Episodes.read`, and an epoch of shuffled
batches. Speeds are in bytes of the files per second.

In the first epoch of a run, the memory of the windows is new. The first epoch is therefore measured in new processes,
alternating h5py and this package, and compared with h5py's first round. A pause precedes each process: memory that
another process has just freed is available faster than memory that a virtual machine must request from its host. "With
the check" includes opening the files, each of which is checked before training. Data that fit in one window are read in
the first epoch only, so later epochs then measure no reading. h5py alone caches nothing.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from body_transformer.experiment import load_experiment
from body_transformer.imitation.batches import WINDOW_BYTES, Batches
from body_transformer.imitation.readers import open_episodes

LAYOUT = load_experiment("mocapact").layout()
NUM_SNIPPETS, NUM_ROLLOUTS, NUM_STEPS = 3, 20, 90
STEP_BYTES = 4 * (LAYOUT.obs_dim + LAYOUT.action_dim)
PAUSE_S = 6
H5PY, EPISODES, BATCHES = "h5py alone", "Episodes.read", "shuffled batches"


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


def read_by_h5py(path: Path) -> int:
    done = 0
    with h5py.File(path) as file:
        for snippet in (name for name in file if name.startswith("CMU")):
            for k in range(NUM_ROLLOUTS):
                obs = file[f"{snippet}/{k}/observations/proprioceptive"][()]
                actions = file[f"{snippet}/{k}/actions"][()]
                done += obs.nbytes + actions.nbytes
    return done


def read_files(folder: Path) -> Callable[[], int]:
    paths = sorted(folder.glob("*.hdf5"))
    return lambda: sum(map(read_by_h5py, paths))


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


def opened(name: str, folder: Path, window_bytes: int) -> Callable[[], int]:
    """Prepare a reader, which checks its files now if training does so before the first step.

    Return a function that reads all files and returns the number of bytes.
    """
    prepare = {
        H5PY: partial(read_files, folder),
        EPISODES: partial(read_episodes, folder),
        BATCHES: partial(read_batches, folder, window_bytes),
    }
    return prepare[name]()


def compare(folder: Path, window_bytes: int, rounds: int) -> None:
    """Measure all readers in turns in this process, after a warm-up round."""
    readers = {name: opened(name, folder, window_bytes) for name in (H5PY, EPISODES, BATCHES)}
    _, *speeds = [{name: gigabytes_per_s(read) for name, read in readers.items()} for _ in range(rounds + 1)]
    print(f"after the first epoch, {rounds} rounds:")
    for name in readers:
        ratios = [speed[name] / speed[H5PY] for speed in speeds]
        print(
            f"  {name:17} {statistics.median(speed[name] for speed in speeds):5.2f} GB/s,"
            f" {statistics.median(ratios):.2f} times h5py ({min(ratios):.2f} to {max(ratios):.2f})"
        )


def first_epochs(folder: Path, window: int, starts: int) -> None:
    """Measure new processes in pairs, in alternating order."""
    print(f"the first epoch, {starts} starts:")
    found = []
    for start in range(starts):
        order = (H5PY, BATCHES) if start % 2 == 0 else (BATCHES, H5PY)
        pair = {name: in_a_new_process(name, folder, window) for name in order}
        found.append(pair)
        print(
            f"  {pair[H5PY]['first']:.2f} GB/s by h5py, {pair[BATCHES]['first']:.2f} as batches:"
            f" {pair[BATCHES]['first'] / pair[H5PY]['first']:.2f} times h5py"
            f" ({pair[BATCHES]['with_check'] / pair[H5PY]['with_check']:.2f} with the check)",
            flush=True,
        )
    ratios = [pair[BATCHES]["first"] / pair[H5PY]["first"] for pair in found]
    print(f"  {statistics.median(ratios):.2f} times h5py ({min(ratios):.2f} to {max(ratios):.2f})")
    print(f"peak memory {max(pair[BATCHES]['peak_gib'] for pair in found):.2f} GiB")


def in_a_new_process(name: str, folder: Path, window: int) -> dict[str, float]:
    time.sleep(PAUSE_S)
    command = [sys.executable, __file__, "--window", str(window), "--only", name, "--folder", str(folder)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def measure_one(name: str, folder: Path, window_bytes: int) -> dict[str, Any]:
    """Measure the speed of the first round and the memory of two rounds in this process, which does nothing else."""
    start = time.perf_counter()
    read = opened(name, folder, window_bytes)
    check_s = time.perf_counter() - start
    done = read()
    all_s = time.perf_counter() - start
    read()
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"first": done / (all_s - check_s) / 1e9, "with_check": done / all_s / 1e9, "peak_gib": peak_gib}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--window", type=int, default=WINDOW_BYTES // 2**20, help="largest size of a window in MiB")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--starts", type=int, default=6)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print(json.dumps(measure_one(args.only, args.folder, args.window * 2**20)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for k in range(args.files):
            write_file(folder / f"CMU_001_{k:02}.hdf5", f"CMU_001_{k:02}")
        megabytes = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        print(f"{args.files} files, {megabytes:.0f} MB; batches of 256 from windows of at most {args.window} MiB")
        first_epochs(folder, args.window, args.starts)
        compare(folder, args.window * 2**20, args.rounds)


if __name__ == "__main__":
    main()
