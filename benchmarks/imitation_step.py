"""Measure the time of an update of `bot train mocapact` at the paper's sizes, including the reading of data.

    python benchmarks/imitation_step.py                            # 24 files of 62 MB: more than fit in a window
    python benchmarks/imitation_step.py --files 2 --steps 20 --cpu

Writes files in MoCapAct's layout (random numbers) to a temporary folder, runs the command on them for each variant and
reads `metrics.jsonl`. The time of an update is the wall-clock time between two logged lines divided by the number of
updates between them. The first quarter of the lines, which includes compilation, is left out.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np

from body_transformer.experiment import load_experiment

VARIANTS = ("bot-hard", "transformer", "mlp")
LOG_EVERY = 50
LAYOUT = load_experiment("mocapact").layout()
NUM_SNIPPETS, NUM_ROLLOUTS, NUM_STEPS = 3, 20, 90
"""Contents of a file: snippets, rollouts of each, steps of a rollout."""


def write_file(path: Path, clip: str) -> None:
    """Write a file with random numbers in MoCapAct's layout."""
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


def train(data: Path, run: Path, variant: str, num_steps: int, more: list[str]) -> None:
    command = [sys.executable, "-m", "body_transformer.cli.main", "train", "mocapact", "--variant", variant]
    flags = ["--imitation.data", str(data), "--imitation.num-steps", str(num_steps), "--imitation.num-epochs", "None"]
    often = ["--imitation.log-every", str(min(LOG_EVERY, num_steps // 4))]
    subprocess.run([*command, *flags, *often, "--out", str(run), "--no-eval", "--quiet", *more], check=True)


def milliseconds(run: Path) -> list[float]:
    """Return the time per update between consecutive logged lines, without the first quarter."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines = lines[len(lines) // 4 :]
    return [
        1e3 * (after["time_s"] - before["time_s"]) / (after["step"] - before["step"])
        for before, after in pairwise(lines)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=24)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        data.mkdir()
        for k in range(args.files):
            write_file(data / f"CMU_001_{k:02}.hdf5", f"CMU_001_{k:02}")
        for variant in VARIANTS:
            run = Path(name) / variant
            train(data, run, variant, args.steps, ["--cpu"] if args.cpu else [])
            times = milliseconds(run)
            print(
                f"{variant:12} {statistics.mean(times):6.2f} ms per update, {statistics.median(times):.2f} median"
                f" ({min(times):.2f} to {max(times):.2f} over {len(times)} intervals)",
                flush=True,
            )


if __name__ == "__main__":
    main()
