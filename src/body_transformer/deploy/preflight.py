"""What can be found out before a robot is touched: whether what it is asked for is possible at all."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from .controller import Controller, Policy
from .log import num_bytes
from .plan import RuntimeConfig
from .robot import Robot
from .safety import SafetyConfig

if TYPE_CHECKING:
    from .contract import Contract


def check(contract: Contract, policy: Policy, robot: Robot, config: RuntimeConfig, safety: SafetyConfig) -> None:
    """An error if the contract, the rate, the command or the log's size cannot be. The robot need not be entered."""
    controller = Controller(contract, policy, contract.control.joints if contract.control else (), config, safety)
    slowest, quickest = getattr(robot, "rates_hz", (0.0, math.inf))
    if not slowest <= controller.hz <= quickest:
        raise ValueError(
            f"this robot takes {slowest:g} to {quickest:g} commands a second (loop_hz), not {controller.hz:g}"
        )
    control = controller.control
    size = num_bytes(config.log_ticks(control, safety.start_margin_rad), len(control.joints), contract.obs_dim)
    if size > memory() / 2:
        raise ValueError(
            f"the log would take {size / 1e9:.1f} GB, more than half of this computer's memory "
            f"({memory() / 1e9:.1f} GB): fewer seconds, or a lower rate"
        )


def memory() -> float:
    """This computer's, in bytes; infinite where it does not tell."""
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) if hasattr(os, "sysconf") else math.inf
