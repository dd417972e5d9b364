"""Ship a run's newest policy with the package, as `pretrained:NAME`.

    bot eval RUN --episodes 100 --json > warp.json
    bot eval RUN --episodes 100 --simulator mujoco --json > mujoco.json
    python benchmarks/ship_policy.py RUN NAME --evaluation warp.json mujoco.json --note "It walks in a curve."

NAME is the run's task, or TASK.VARIANT. Writes `src/body_transformer/pretrained/NAME/`: policy.safetensors,
policy.json and card.md, which describes training, evaluation and notes for users.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from body_transformer import Policy, pretrained
from body_transformer.files import new_folder
from body_transformer.policy_folder import DESCRIPTION, WEIGHTS, PolicyFolder, find_policy
from body_transformer.report.text import markdown_table
from body_transformer.rl.config import RlConfig
from body_transformer.run import Run, without_place

MAX_BYTES = 3_000_000
FILES = (WEIGHTS, DESCRIPTION)
Evaluation = dict[str, Any]
"""Output of `bot eval --json`."""


def ship(folder: Path, name: str, evaluations: Sequence[Evaluation], notes: Sequence[str] = ()) -> Path:
    """Copy the policy and write its card; an older policy of this name is replaced."""
    description = Run.open(folder).description()
    if "rl" not in description:
        raise ValueError(f"{str(folder)!r} is not a run of reinforcement learning")
    task = RlConfig.from_run(description["rl"]).task
    if name not in (task, f"{task}.{description['variant']}"):
        raise ValueError(f"the name must be {task!r} or '{task}.{description['variant']}'; got {name!r}")
    for evaluation in evaluations:
        if evaluation.get("task") != task or not {"simulator", "seed"} <= evaluation.keys():
            raise ValueError(f"an evaluation must be the output of bot eval --json for {task!r}; got {evaluation}")
    found = find_policy(folder)
    source = found.path
    size = sum((source / file).stat().st_size for file in FILES)
    if size > MAX_BYTES:
        raise ValueError(f"the policy has {size:,} bytes; a shipped policy may have at most {MAX_BYTES:,}")
    policy = Policy.load(source)  # raises an error if it is damaged
    target = pretrained.FOLDER / name
    with new_folder(target) as unfinished:
        for file in FILES:
            shutil.copyfile(source / file, unfinished / file)
        text = card(name, description, policy, env_steps(found), size, evaluations, notes)
        (unfinished / "card.md").write_text(text, encoding="utf-8")
    return target


def env_steps(found: PolicyFolder) -> int:
    """Return the number of environment steps that the policy was trained for."""
    if found.run is None or found.step is None:
        raise ValueError(
            f"{str(found.path)!r} is not a checkpoint of a run, so its number of environment steps is unknown"
        )
    config = RlConfig.from_run(Run.open(found.run).description()["rl"])
    return found.step * config.num_envs * config.num_steps_per_env


def card(
    name: str,
    found: dict[str, Any],
    policy: Policy,
    steps: int,
    size: int,
    evaluations: Sequence[Evaluation],
    notes: Sequence[str],
) -> str:
    """Return the card of a policy, as Markdown."""
    lines = [
        f"# {name}",
        "",
        f"{found['title']}; `bot eval pretrained:{name}`.",
        "",
        *(line for note in notes for line in (note, "")),
        f"- command: `{without_place(found['command'])}`",
        *(f"- from iteration {more['step']}: `{without_place(more['command'])}`" for more in found.get("changes", [])),
        f"- variant: {found['variant']}, {policy.num_parameters:,} parameters, {size / 1e6:.2f} MB",
        f"- seed: {found['seed']}",
        f"- environment steps: {steps:,}",
        f"- machine: {found['machine']}",
        f"- date: {found['date']}",
        f"- package: {found['package_version']}, commit {found['git_commit']}",
        "",
    ]
    if not evaluations:
        return "\n".join([*lines, "It has not been evaluated.", ""])
    rows = []
    for evaluation in evaluations:
        where = {"warp": "MuJoCo Warp (mjlab)", "mujoco": "plain MuJoCo"}[evaluation["simulator"]]
        for metric, value in evaluation["splits"]["rollouts"].items():
            interval = f"{value['low']:.2f} to {value['high']:.2f}"
            row = (where, metric.replace("_", " "), f"{value['mean']:.2f}", interval, value["num_episodes"])
            rows.append([str(cell) for cell in (*row, evaluation["seed"], evaluation["machine"])])
    head = ["simulator", "metric", "mean", "95 % interval", "episodes", "seed", "machine"]
    return "\n".join([*lines, markdown_table(head, rows)])


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("--evaluation", type=Path, nargs="*", default=[], metavar="FILE.json")
    parser.add_argument("--note", nargs="*", default=[], metavar="TEXT")
    options = parser.parse_args(args)
    try:
        evaluations = [json.loads(file.read_text(encoding="utf-8")) for file in options.evaluation]
        print(ship(options.run, options.name, evaluations, options.note))
    except (ValueError, OSError) as error:
        sys.exit(f"ship_policy: {error}")


if __name__ == "__main__":
    main()
