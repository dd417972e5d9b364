"""A recorded run again: the same states must give the same commands, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..schema import build
from .controller import Controller, Policy
from .log import SavedLog
from .plan import RuntimeConfig
from .robot import COMMAND, Command
from .safety import Reason, SafetyConfig

if TYPE_CHECKING:
    from .contract import Contract

TRIPPED = Reason.ROBOT_TRIPPED.text
"""How the event of such a stop begins."""
NEEDED = ("num_ticks", "kept_ticks", "model_sha256", "config", "safety", "events")
"""Of a log's description, besides what every log has."""


@dataclass(frozen=True)
class Replay:
    """What came out."""

    commands: NDArray[np.float64]
    """[T, 5, J], as the log's `command`."""
    differences: tuple[int, ...]
    """The ticks whose command is not the recorded one."""

    @property
    def identical(self) -> bool:
        return not self.differences


def replay(folder: str | Path, contract: Contract, policy: Policy) -> Replay:
    """Feeds a log's states, times and stop requests to a new controller."""
    log = SavedLog.load(folder)
    said, rows = log.description, log.rows
    for key in NEEDED:
        if key not in said:
            raise ValueError(f"the log in {str(folder)!r} is not whole: {key!r} is not there")
    if said["num_ticks"] != said["kept_ticks"]:
        raise ValueError(
            f"the log in {str(folder)!r} kept the last {said['kept_ticks']} of {said['num_ticks']} ticks: "
            "a run can be replayed from its beginning only"
        )
    if said["model_sha256"] != contract.model_sha256:
        raise ValueError(f"the log in {str(folder)!r} is of another policy: its model_sha256 is {said['model_sha256']}")
    config, safety = build(RuntimeConfig, said["config"], "config"), build(SafetyConfig, said["safety"], "safety")
    controller = Controller(contract, policy, tuple(said["robot_joints"]), config, safety)
    requests = {event["tick"]: event["text"] for event in said["events"] if event["kind"] == "request"}
    stops = {event["tick"]: event["text"] for event in said["events"] if event["kind"] == "stop"}
    tripped = {tick: text for tick, text in stops.items() if text.startswith(TRIPPED)}
    size = len(said["joints"])
    commands = np.zeros((len(rows["tick"]), 5, size))
    sent = Command(*np.zeros((5, size)))
    for k, state in enumerate(log.states()):
        tick = int(rows["tick"][k])
        command = controller.step(tick, float(rows["now_s"][k]), state, int(rows["missed"][k]), requests.get(tick))
        for j, part in enumerate(COMMAND):
            controller.order.from_robot(getattr(command, part), commands[k, j])
            controller.order.to_robot(rows["sent"][k, j], getattr(sent, part))
        was_sent = np.isfinite(rows["sent"][k]).all()  # not in a dry run
        controller.sent(sent if was_sent else command, tripped.get(tick, ""))
    same = (commands.view(np.int64) == rows["command"].view(np.int64)).all(axis=(1, 2))
    return Replay(commands, tuple(int(tick) for tick in rows["tick"][~same]))
