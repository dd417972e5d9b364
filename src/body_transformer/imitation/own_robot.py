"""An experiment for a robot's file and demonstrations, with a layout from the names in both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..body.layout import Layout
from ..body.match import match_terms
from ..body.owners import InferredLayout
from ..experiment import Experiment, RobotSpec
from ..model.config import PolicyConfig
from ..text import printable
from .config import ImitationConfig
from .readers.stored import stored_terms


@dataclass(frozen=True)
class OwnRobot:
    """An inferred experiment."""

    experiment: Experiment
    inferred: InferredLayout
    keys: Mapping[str, str] = field(default_factory=dict)
    """Term -> array of the demonstrations that holds it, where the names differ."""
    left_out: tuple[str, ...] = ()
    """Arrays of the demonstrations that are not observations."""

    def describe(self) -> str:
        """Return the table of `bot inspect`, and the notes on terms and arrays."""
        text = self.inferred.describe()
        return text + (f"not observed: {', '.join(map(printable, self.left_out))}\n" if self.left_out else "")


def training_settings(reader: str, data: str | None) -> ImitationConfig:
    """Return the training settings for a user's robot: the demo's, except for the length."""
    return ImitationConfig(
        reader=reader,
        data=data,
        learning_rate=1e-3,
        warmup_steps=100,
        schedule="cosine",
        batch_size=64,
        num_steps=5000,
    )


def own_robot(robot: RobotSpec, data: str | None, remedy: str, strict: bool = True) -> OwnRobot:
    """Return the experiment for a robot; without `data`, it has the layout that most robots can provide.

    Terms are matched by name and size to the robot's parts. An ambiguous term is an error if `strict`; else the root
    owns it. `remedy` says how to give a term another owner.
    """
    graph, keys, left_out = robot.graph(), dict[str, str](), tuple[str, ...]()
    if data is None:
        found, reader = InferredLayout(Layout.proprioceptive(graph), [], remedy), "npz"
    else:
        stored = stored_terms(data)
        reader, left_out = stored.reader, stored.left_out
        found, keys = match_terms(graph, stored.obs, stored.actions, remedy, strict)
    config = training_settings(reader, data)
    layout, name = found.layout, Path(robot.file).stem
    experiment = Experiment(
        name=name,
        title=f"{name}, from demonstrations",
        robot=robot,
        obs_dim=layout.obs_dim,
        obs=layout.obs,
        action_dim=layout.action_dim,
        actions=layout.actions,
        critic=False,
        policy=PolicyConfig(),
        imitation=replace(config, options={"obs_keys": keys} if keys else {}),
    )
    return OwnRobot(experiment, found, keys, left_out)
