"""A driver of a robot of your own, in the form that `bot deploy` loads.

    PYTHONPATH=examples bot deploy --check driver:Example             # the checks that every driver must pass
    PYTHONPATH=examples bot deploy DIR --robot driver:Example --robot-options speed=10

This robot has no hardware: every joint moves to its target at a limited speed. A real driver talks to the motors in
`_measure` and `send`. The names of its joints must be those of the policy, in any order.
"""

import time

import numpy as np

from body_transformer.deploy.robot import Command, Robot, State

JOINTS = tuple(f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in ("hip", "thigh", "calf"))


class Example(Robot):
    """Joints that follow their targets at `speed`, rad/s."""

    loop_hz = 100.0  # commands per second, unless --loop-hz says otherwise
    rates_hz = (20.0, 500.0)

    def __init__(self, joints: tuple[str, ...], speed: float) -> None:
        self.joints, self.speed, self.sequence = joints, speed, 0
        pose = {"hip": 0.0, "thigh": 0.9, "calf": -1.6}
        self.position = np.array([next((at for part, at in pose.items() if part in name), 0.0) for name in joints])
        self.target, self.time_s = self.position, time.monotonic()

    @classmethod
    def create(cls, options, expected=()):
        unknown = set(options) - {"speed"}
        if unknown:
            raise ValueError(f"this robot has the option speed; got {', '.join(sorted(unknown))}")
        return cls(tuple(expected) or JOINTS, float(options.get("speed", 5.0)))

    def read(self) -> State:
        now_s = time.monotonic()
        elapsed_s, self.time_s = now_s - self.time_s, now_s
        moved = np.clip(self.target - self.position, -self.speed * elapsed_s, self.speed * elapsed_s)
        self.position, self.sequence = self.position + moved, self.sequence + 1
        return State(
            self.sequence,
            stamp_s=now_s,
            received_s=now_s,
            joint_pos=self.position,  # a new array, so an earlier state does not change
            joint_vel=moved / max(elapsed_s, 1e-6),
            joint_torque=np.zeros(len(self.joints)),
            angular_velocity=np.zeros(3),
            quaternion=np.array([1.0, 0.0, 0.0, 0.0]),
        )

    def send(self, command: Command) -> Command:
        command.check(len(self.joints))  # refuses NaN and wrong numbers of joints
        self.target = np.where(command.kp > 0, command.position, self.position)
        return command  # a driver that cuts a command to the robot's limits returns the cut one

    def __exit__(self, *error: object) -> None:
        self.send(Command.damping(len(self.joints)))
