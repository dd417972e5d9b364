"""Inputs that once ended in a traceback, took the memory or opened another file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from .binary import join_safetensors, split_safetensors
from .inputs import Files
from .policies import seal_checkpoint


@dataclass(frozen=True)
class Case:
    """A change of a reader's first valid input."""

    reader: str
    change: Callable[[Files], object]
    refusal: str = ""
    """A part of the refusal; empty if the input must be accepted."""


def set_json(file: str, *path: Any) -> Callable[[Files], None]:
    """Return a change of one value in a JSON file: `path` are its keys, and the value."""
    return _set(file, path, json.loads, lambda data: json.dumps(data).encode())


def set_yaml(file: str, *path: Any) -> Callable[[Files], None]:
    """Return a change of one value in a YAML file."""
    return _set(file, path, yaml.safe_load, lambda data: yaml.safe_dump(data).encode())


def _set(file: str, path: tuple[Any, ...], read: Any, write: Any) -> Callable[[Files], None]:
    *keys, last, value = path

    def change(files: Files) -> None:
        whole = {"": read(files[file])}
        holder: Any = whole[""] if keys or last != "" else whole
        for key in keys:
            holder = holder[key]
        holder[last] = value
        files[file] = write(whole[""])

    return change


def append(file: str, text: str) -> Callable[[Files], None]:
    """Return a change that adds text to a file."""

    def change(files: Files) -> None:
        files[file] = (files[file] or b"") + text.encode()

    return change


def tensor(file: str, name: str, **entry: Any) -> Callable[[Files], None]:
    """Return a change of a tensor's entry in the header of a safetensors file; no entry renames it."""

    def change(files: Files) -> None:
        header, data = split_safetensors(files[file] or b"")
        if not entry:
            header[f"{name}_"] = header.pop(name)
        else:
            header[name] |= entry
        files[file] = join_safetensors(header, data)

    return change


def sealed(change: Callable[[Files], object]) -> Callable[[Files], None]:
    """Return the change with valid digests."""

    def both(files: Files) -> None:
        change(files)
        seal_checkpoint(None, files)  # type: ignore[arg-type]  # it draws nothing

    return both


def pipe(file: str) -> Callable[[Files], None]:
    """Return a change that puts a named pipe in the place of a file."""
    return lambda files: files.update({file: None})


def evaluation(low: float, high: float) -> Callable[[Files], None]:
    """Return a change of the final evaluation's only value."""
    value = {"mean": low, "low": low, "high": high}
    return set_json("evaluation.json", "splits", {"train": {"length": value}})


STATE = "run/checkpoints/2/training_state.json"
TENSORS = "run/checkpoints/2/training_state.safetensors"
CASES = {
    "resume: the state has no step": Case(
        "run-resume", sealed(set_json(STATE, "values", {"loss_count": 1})), "missing key: 'step'"
    ),
    "resume: the state is a list": Case(
        "run-resume", sealed(set_json(STATE, "values", [1])), "values must be a mapping"
    ),
    "resume: the step is text": Case(
        "run-resume", sealed(set_json(STATE, "values", "step", "2")), "step must be a whole number"
    ),
    "resume: the step is a mapping": Case(
        "run-resume", sealed(set_json(STATE, "values", "step", {})), "step must be a whole number"
    ),
    "resume: the step is another one": Case(
        "run-resume", sealed(set_json(STATE, "values", "step", -3)), "is of step -3"
    ),
    "resume: the count is infinite": Case(
        "run-resume", sealed(set_json(STATE, "values", "loss_count", 1e400)), "loss_count must be"
    ),
    "resume: the state is no mapping": Case(
        "run-resume", sealed(set_json(STATE, "", 3)), "its training state is not complete"
    ),
    "resume: the sum of losses has an axis": Case(
        "run-resume", sealed(tensor(TENSORS, "loss_sum", shape=[1])), "loss_sum in"
    ),
    "resume: a moment is missing": Case(
        "run-resume", sealed(tensor(TENSORS, "optimizer.tokenizer.bias.exp_avg")), "optimizer.tokenizer.bias.exp_avg"
    ),
    "resume: a logged time is text": Case("run-resume", append("run/metrics.jsonl", '{"step": 1, "time_s": "long"}\n')),
    "checkpoint: the state is a named pipe": Case("checkpoint", pipe("checkpoints/3/training_state.json")),
    "policy: whole numbers as weights": Case(
        "policy",
        sealed(tensor("policy.safetensors", "detokenizer.bias", dtype="I32")),
        "detokenizer.bias holds torch.int32",
    ),
    "contract: a number of 400 digits": Case(
        "contract", sealed(set_json("policy.json", "contract", "control", "hz", 10**400)), "hz must be a finite number"
    ),
    "npy: the observations are a named pipe": Case("npy", pipe("obs.npy"), "not a regular file"),
    "npy: the actions are a named pipe": Case("npy", pipe("actions.npy"), "has no .npz file, no actions.npy"),
    "motion-npz: the time between frames has 400 digits": Case(
        "motion-npz", set_json("meta.json", "dt", 10**400), "not a JSON object with 'joint_names' and 'dt'"
    ),
    "summary: a step of 400 digits": Case(
        "run-summary", append("metrics.jsonl", f'\n{{"step": {10**400}, "time_s": 9.0}}\n')
    ),
    "policy: many names of a node": Case(
        "policy", sealed(set_json("policy.json", "policy", "layout", "graph", "nodes", ["n"] * 300_000)), "node"
    ),
    "summary: settings of PPO are a list": Case(
        "run-summary", set_yaml("experiment.yaml", "rl", [1]), "rl must be a mapping"
    ),
    "summary: settings of PPO are text": Case(
        "run-summary", set_yaml("experiment.yaml", "rl", "x"), "rl must be a mapping"
    ),
    "summary: a setting of PPO is a mapping": Case("run-summary", set_yaml("experiment.yaml", "rl", {"num_envs": {}})),
    "page: the commit is a number": Case(
        "run-page", set_yaml("experiment.yaml", "git_commit", 1.5), "git_commit must be"
    ),
    "page: the machine is a list": Case("run-page", set_yaml("experiment.yaml", "machine", [1]), "machine must be"),
    "page: the date is a list": Case("run-page", set_yaml("experiment.yaml", "date", [[1]])),
    "page: all values are equal and huge": Case("run-page", evaluation(1e308, 1e308)),
    "page: values are further apart than the largest number": Case("run-page", evaluation(-1e308, 1e308)),
    "settings of PPO are a list": Case("run-read", set_yaml("experiment.yaml", "rl", [1, 2]), "rl must be a mapping"),
}
