"""A small robot in virtual time that goes to its targets and whose link can have faults."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from body_transformer.deploy.config import contract_sections
from body_transformer.deploy.contract import Checks, Contract
from body_transformer.deploy.control import ContractTerm
from body_transformer.deploy.robot import Command, Robot, State
from body_transformer.deploy.runtime import RunResult, Runtime
from body_transformer.deploy.runtime_config import RuntimeConfig
from body_transformer.deploy.safety import Reason, SafetyConfig
from body_transformer.experiment import load_experiment
from body_transformer.policy_folder import DESCRIPTION, new_description
from body_transformer.schema import json_text

A1 = load_experiment("a1-walk")
SECTIONS = contract_sections(A1.deploy, A1.robot.path, A1.layout(), bound=1.0)
JOINTS, DEFAULT_POSE = SECTIONS.control.joints, SECTIONS.control.default_pose
ROBOT_JOINTS = tuple(f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in ("hip", "thigh", "calf"))
LYING = (0.3, 1.2, -2.6, -0.3, 1.2, -2.6) * 2


def a1_contract(obs: tuple[ContractTerm, ...] | None = None, **control: Any) -> Contract:
    """Return a contract of the A1 with the numbers of the paper's deployment, and round limits."""
    limits = {"position_limits": ((-0.8, 0.8), (-1.05, 4.19), (-2.7, -0.92)) * 4, "velocity_limits": (21.0,) * 12}
    if control.get("kind") == "torque":
        control["torque_clip"] = None
    checks = Checks(((0.0,) * 48,), ((0.0,) * 12,))
    adapted = replace(SECTIONS.control, **limits | control)
    return Contract.make("a1-walk", obs or a1_obs(), adapted, A1.layout(), checks, b"model")


def a1_obs() -> tuple[ContractTerm, ...]:
    return tuple(replace(term, clip=100.0) for term in SECTIONS.obs)


def save_contract(contract: Contract, folder: Path) -> None:
    """Write the policy.json of an exported A1 policy, without its weights and network."""
    policy = {"config": {}, "layout": A1.layout().to_dict()}
    (folder / DESCRIPTION).write_text(json_text(new_description(policy)))
    contract.save(folder)


class VirtualTime:
    """A clock that advances by sleeps and by the stated duration of work."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds


Fault = Callable[[State, float], Iterable[State]]
"""A measurement and the virtual seconds since the start -> the states that the link delivers, each at `received_s`."""


class VirtualRobot(Robot):
    """A robot whose joints approach their targets, with another joint order and clock than the contract."""

    LAG_S = 0.03

    def __init__(
        self,
        time: VirtualTime,
        pose: Iterable[float] = LYING,
        joints: tuple[str, ...] = ROBOT_JOINTS,
        hz: float = 200.0,
        fault: Fault | None = None,
    ) -> None:
        self.joints, self.time, self.hz = joints, time, hz
        self.fault: Fault = fault or (lambda state, seconds: [state])
        self.begun_s = time.now_s
        named = dict(zip(JOINTS, pose, strict=True))
        self.pos = np.array([named.get(name, 0.0) for name in joints])
        self.vel = np.zeros(len(joints))
        self.quaternion = np.array([1.0, 0.0, 0.0, 0.0])
        self.measurements = 0
        self.command: Command | None = None
        self.sent: list[tuple[float, Command]] = []
        """(time, command) of each command."""
        self.keep = True
        self._pending: list[State] = []

    def __enter__(self) -> VirtualRobot:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def read(self) -> State | None:
        while self.begun_s + self.measurements / self.hz <= self.time.now_s + 1e-9:
            at = self.begun_s + self.measurements / self.hz
            self._advance(1 / self.hz)
            state = self.measure(self.measurements, at)
            self._pending += self.fault(state, at - self.begun_s)
            self.measurements += 1
        due = [state for state in self._pending if not state.received_s > self.time.now_s]
        self._pending = [state for state in self._pending if state.received_s > self.time.now_s]
        return due[-1] if due else None

    def measure(self, sequence: int, at_s: float) -> State:
        stamp = at_s - 990.0  # its clock has another zero
        torque = np.zeros_like(self.pos)
        return State(
            sequence, stamp, at_s, self.pos.copy(), self.vel.copy(), torque, np.zeros(3), self.quaternion.copy()
        )

    def send(self, command: Command) -> Command:
        self.command = kept = Command(*(part.copy() for part in command.parts))
        if self.keep:
            self.sent.append((self.time.now_s - self.begun_s, kept))
        return kept

    def _advance(self, seconds: float) -> None:
        if self.command is None or not self.command.kp.any():
            self.vel[:] = 0
            return
        moved = (self.command.position - self.pos) * (1 - math.exp(-seconds / self.LAG_S))
        self.pos += moved
        self.vel[:] = moved / seconds

    @property
    def damped_s(self) -> float:
        """Time from which on only damping was sent."""
        active = [k for k, (_, command) in enumerate(self.sent) if not is_damping(command)]
        return self.sent[active[-1] + 1 if active else 0][0]


def is_damping(command: Command) -> bool:
    return not command.kp.any() and not command.torque.any() and bool((command.kd > 0).all())


class SinePolicy:
    """A policy that swings every joint, depending on the observation and the number of calls."""

    def __init__(self, time: VirtualTime | None = None, takes_s: float = 0.0) -> None:
        self.calls, self.time, self.takes_s = 0, time, takes_s
        self._phase = np.linspace(0, 3, 12)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        self.calls += 1
        if self.time is not None:
            self.time.now_s += self.takes_s
        swing = 0.4 * np.sin(0.1 * self.calls + self._phase) - 0.1 * obs[12:24]
        return swing.astype(np.float32)


def virtual_run(
    fault: Fault | None = None,
    policy: Any = None,
    pose: Iterable[float] = LYING,
    safety: SafetyConfig | None = None,
    contract: Contract | None = None,
    robot: dict[str, Any] | None = None,
    **config: Any,
) -> tuple[Runtime, VirtualRobot]:
    """Return a runtime that is ready to run, and its robot."""
    time = VirtualTime()
    body = VirtualRobot(time, pose, fault=fault, **(robot or {}))
    given = RuntimeConfig(
        **{"seconds": 3.0, "ramp_s": 1.0, "hold_s": 0.2, "damping_s": 0.2, "warm_up": 3, "rehearse": False, **config}
    )
    contract = contract or a1_contract()
    if isinstance(policy, SinePolicy):
        policy.time = time
    runtime = Runtime(contract, policy or SinePolicy(), body, given, safety, clock=time.clock, sleep=time.sleep)
    return runtime, body


def stopped(
    reason: Reason, by_s: float, fault: Fault | None = None, **options: Any
) -> tuple[RunResult, Runtime, VirtualRobot]:
    """Make a run that ends early for this reason, with only damping from `by_s` on."""
    runtime, robot = virtual_run(fault, **options)
    result = runtime.run()
    assert result.stop.reason is reason
    assert robot.damped_s <= by_s + 1e-6
    assert is_damping(robot.sent[-1][1])
    return result, runtime, robot


# -- faults ------------------------------------------------------------------------------------------------------------

FAULT_S, PERIOD_S, STALE_S = 2.5, 0.02, 0.1  # the policy runs from 1.90 s to 4.90 s
LOST_S = FAULT_S + STALE_S + PERIOD_S
"""Latest time of damping when states are lost from FAULT_S on."""


def later(change):
    """Return a fault that begins at FAULT_S."""
    return lambda state, seconds: change(state) if seconds >= FAULT_S - 1e-9 else [state]
