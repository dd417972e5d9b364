"""a1-command: a Unitree A1 goes where it is told, with the motors and the link of the real robot.

Observation (45), with joints ordered FL, FR, RL, RR, each hip, thigh, calf: that of a1-walk without the place of the
linear velocity. The robot measures all of it, or is given it.

Action (12) at 50 Hz, as in a1-walk. A target passes the robot's filter (Butterworth, 13 Hz) and is lost in 5 % of the
steps. It acts after 0 to 45 ms, in 1, 2 or 4 equal parts. The motors have Kp 45 to 110 and Kd 0.8 to 1.25 at 200 Hz.

The command is a speed ahead, a speed to the left and a turning speed. It changes every 5 s. A quarter of the commands
are straight ahead and a tenth stand still. Another quarter have a heading: the turning speed is then the error of the
heading, 1 rad/s per rad, within the range. That is done for the policy, which does not observe its heading.

Robots differ in the friction of their contacts, 0.4 to 1.25, in the mass of the trunk, ±3 kg, in its centre of mass,
±5 cm along each axis, and in the strength of each motor, ±10 %. They are pushed every 6 s.

The ground is that of a1-walk with heights of up to 0.1 m, and 70 % of its tracks are flat. An episode begins anywhere,
facing anywhere. It ends as in a1-walk. In evaluations an episode has one command.

The critic also observes the true velocity, the parameters of the robot, the error of the heading and the contacts of
the feet.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...experiment import load_experiment
from ..envs.terms import ACTOR, CRITIC, RewardTerm, alive, obs_terms
from ..registry import TaskSpec
from . import terms
from .options import CommandOptions
from .robots import WalkTask
from .task import a1_task
from .terrain import Terrain

MAX_STEPS = 1000
"""20 s."""
NEAR = 0.15
"""Squared error of a speed at which its reward is 1/e, m²/s² or rad²/s²."""
FLIGHT_S = 0.2
"""Time in the air above which a landing is rewarded, s."""


def task(terrain: Terrain, options: CommandOptions) -> WalkTask:
    """Return a1-command on that ground."""
    experiment = load_experiment("a1-command")
    return a1_task(
        experiment,
        terrain,
        options,
        MAX_STEPS,
        obs={
            ACTOR: obs_terms(experiment.obs, terms.SHARED, terms.NOISE if options.noise else {}),
            CRITIC: obs_terms((*experiment.obs, *experiment.critic_obs), terms.COMMAND_CRITIC_OBS),
        },
        rewards={
            "tracking": RewardTerm(partial(terms.tracking, scale=NEAR), 2.0),
            "turning": RewardTerm(partial(terms.turning, scale=NEAR), options.turning),
            "off_heading": RewardTerm(terms.off_heading, -1.0),
            "alive": RewardTerm(alive, 1.0),
            "bouncing": RewardTerm(terms.bouncing, -2.0),
            "rocking": RewardTerm(terms.rocking, -0.05),
            "tilting": RewardTerm(terms.tilting, -2.0),
            "air_time": RewardTerm(partial(terms.air_time, flight_s=FLIGHT_S), 1.0),
            "dragging": RewardTerm(terms.dragging, -1.0),
            "slipping": RewardTerm(terms.slipping, -0.2),
            "action_rate": RewardTerm(terms.action_rate, -0.02),
            "action_bend": RewardTerm(terms.action_bend, -0.005),
            "energy": RewardTerm(terms.energy, -1e-5),
            "joint_range": RewardTerm(terms.joint_range, -0.05),
            "torque": RewardTerm(terms.torque, -0.2),
            "asymmetry": RewardTerm(terms.asymmetry, -0.5),
            "fidgeting": RewardTerm(terms.fidgeting, -0.3),
        },
        starts_anywhere=True,
    )


def ground(seed: int) -> Terrain:
    """Return the ground of a seed."""
    return Terrain(seed, scale=(0.0, 0.1), flat_below=0.07, border_scale=0.0)


def with_one_command(task: WalkTask, num_envs: int) -> WalkTask:
    """Return the task of evaluations."""
    return replace(task, options=replace(task.options, resample_every_s=None))


SPEC = TaskSpec(
    task=lambda seed, options: task(ground(seed), options), evaluated=with_one_command, options=CommandOptions
)
