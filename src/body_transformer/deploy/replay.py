"""Replay of a recorded run: the same states must give the same commands, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .controller import Controller, Policy
from .robot import Command
from .safety import Reason
from .saved_log import SavedLog

if TYPE_CHECKING:
    from .contract import Contract

TRIPPED = Reason.ROBOT_TRIPPED.text
"""Start of the text of the stop event of a robot that tripped."""


@dataclass(frozen=True)
class Replay:
    """Result of a replay."""

    commands: NDArray[np.float64]
    """[T, 5, J], as the log's `command`."""
    differences: tuple[int, ...]
    """Ticks whose command differs from the recorded one."""

    @property
    def identical(self) -> bool:
        """Whether every command is the recorded one."""
        return not self.differences


def replay(folder: str | Path, contract: Contract, policy: Policy) -> Replay:
    """Give a log's states, times and stop requests to a new controller, and compare its commands."""
    log = SavedLog.load(folder)
    about, rows = log.description, log.rows
    if about.num_ticks != about.kept_ticks:
        raise ValueError(
            f"the log in {str(folder)!r} kept the last {about.kept_ticks} of {about.num_ticks} ticks: "
            "only a log that holds every tick can be replayed"
        )
    if about.model_sha256 != contract.model_sha256:
        raise ValueError(
            f"the log in {str(folder)!r} belongs to another policy: its model_sha256 is {about.model_sha256!r}"
        )
    controller = Controller(contract, policy, about.robot_joints, about.config, about.safety)
    requests, stops = (
        {event.tick: event.text for event in about.events if event.kind == kind} for kind in ("request", "stop")
    )
    tripped = {tick: text for tick, text in stops.items() if text.startswith(TRIPPED)}
    commands = np.zeros_like(rows["command"])
    for k, state in enumerate(log.states()):
        tick = int(rows["tick"][k])
        command = controller.step(tick, float(rows["now_s"][k]), state, int(rows["missed"][k]), requests.get(tick))
        commands[k] = controller.order.from_robot(np.array(command.parts))
        sent = rows["sent"][k]
        was_sent = np.isfinite(sent).all()  # not in a dry run
        controller.sent(Command(*controller.order.to_robot(sent)) if was_sent else command, tripped.get(tick, ""))
    same = (commands.view(np.int64) == rows["command"].view(np.int64)).all(axis=(1, 2))
    return Replay(commands, tuple(int(tick) for tick in rows["tick"][~same]))
