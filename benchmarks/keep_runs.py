"""Copy the parts of runs that `bot reproduce --draw` needs, small enough for this repository.

    python benchmarks/keep_runs.py RUNS FOLDER

Every run under RUNS is copied to the same place under FOLDER: experiment.yaml, evaluation.json and, of metrics.jsonl,
all evaluations and every tenth iteration. Output folders are removed from the recorded commands.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import yaml

from body_transformer.run import DESCRIPTION, EVALUATION, METRICS, Run, without_place

EVERY = 10


def keep(run: Path, target: Path) -> None:
    """Copy one run."""
    target.mkdir(parents=True, exist_ok=True)
    description = yaml.safe_load((run / DESCRIPTION).read_text(encoding="utf-8"))
    for part in (description, *description.get("changes", [])):
        part["command"] = without_place(part["command"])
    (target / DESCRIPTION).write_text(yaml.safe_dump(description, sort_keys=False), encoding="utf-8")
    if (run / EVALUATION).is_file():
        shutil.copyfile(run / EVALUATION, target / EVALUATION)
    with (target / METRICS).open("w", encoding="utf-8") as kept:
        for values in Run(run).metrics():  # without the incomplete last line of a killed run
            if values["step"] % EVERY == 0 or any(name.startswith("eval/") for name in values):
                kept.write(json.dumps(values) + "\n")


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(args)
    files = sorted(options.runs.rglob(DESCRIPTION))
    if not files:
        sys.exit(f"keep_runs: no run under {str(options.runs)!r}")
    for file in files:
        target = options.folder / file.parent.relative_to(options.runs)
        keep(file.parent, target)
        print(target)


if __name__ == "__main__":
    main()
