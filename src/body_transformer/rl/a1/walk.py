"""a1-walk: a Unitree A1 walks ahead at 0.5 m/s over irregular ground (the paper's section 5.3).

Observation (48), with joints ordered FL, FR, RL, RR, each hip, thigh, calf:
- zeros in the place of the linear velocity, which the robot does not measure
- angular velocity x 0.25 and direction of gravity, in the frame of the trunk
- command x (2, 2, 0.25)
- joint angles from the default pose, joint velocities x 0.05, and the last action

Action (12) at 50 Hz: joint targets, the default pose + 0.5 x action. The motors have Kp 50 and Kd 1 at 200 Hz. A target
is bounded so that it does not at once ask a motor for more than 25 Nm.

An episode ends in death when the trunk touches the ground (more than 1 N), or rolls by more than 0.8 rad. It also does
when the trunk is below 0.15 m or above 1.5 m. It ends by time-out after 20 s. The reward of a step is 0.02 (its
seconds) x the weighted sum of the terms listed below, or 0 where that sum is negative.

The ground has 20 x 50 tracks of 2.0 x 1.6 m, x from 0, y about 0. Their gradient noise has 10 cells per metre, 2
octaves and gain 0.25. Its scale is U(0.08, 0.15) m for each track, and 0 if below 0.1, so about 29 % are flat. Around
them is a border of 5 m with noise of scale 0.08.

Robots differ in friction U(0, 2), added mass of the trunk U(1, 3) kg, and the strength of each motor U(0.9, 1.1). The
trunk's centre of mass is moved by -0.05 to 0.15 m along x, ±0.1 m along y and ±0.05 m along z. An episode begins 0.2 to
0.6 m into a track, up to 0.25 m off its middle. Joint angles are U(0.5, 1.5) x the default pose, joint velocities ±3
rad/s. The trunk moves at up to ±0.5 m/s and rad/s.

The critic has its own observations (65): the actor's without noise, with the true velocity, and the 17 parameters of
the robot (friction, centre of mass, mass, 12 strengths). Options beyond the paper, off by default: latency, stiffer
motors (the authors' robot has Kp 100), pushes, other commands, more reward for going straight.

Where this differs from the authors' environment:
- The critic observes the parameters and the velocity. The paper mentions the parameters; the authors' code drops both.
- The place of the linear velocity has no noise (the authors': ±0.2): on the robot it is 0.
- Noise has the same mean height everywhere. The authors' noise lifts a track by 0.6 of its scale, and flat tracks are
  pits of 6 to 9 cm. Heights are drawn on one lattice, so tracks of equal scale have no seam.
- An episode draws a track with 10 m of ground ahead. The authors keep one track per environment, so a few environments
  have only a few tracks.
- An episode ends by time-out 1 m before the end of the ground. In the authors' environment it continues beyond the end.
- The trunk starts 0.42 m above the highest ground under the robot, so that no foot starts inside it. Joint angles stay
  within the ranges of the joints; half the calf's default angle would not.
- The friction of a contact is the mean of the drawn one and the ground's (1), as in PhysX, so it is U(0.5, 1.5). MuJoCo
  would use the larger, and no robot would slip.
- The robot does not touch itself. Otherwise a leg at the trunk would count as a fall.
- Added mass scales the inertia of the trunk, and a motor's strength its whole torque, which stays below the motor's
  limit of 33.5 Nm.
- The ground is a plane under each foot, knee, calf and corner of the trunk (see ground.py).
- An episode in which the simulation breaks (50 m/s, 200 rad/s or not finite) ends with the reward 0 and is counted.
- The torque and joint terms of the reward consider all 4 physics steps of a control step.
"""

from __future__ import annotations

from ...experiment import load_experiment
from ..envs.terms import ACTOR, CRITIC, RewardTerm, alive, obs_terms
from ..registry import TaskSpec
from . import terms
from .options import WalkOptions
from .robots import WalkTask
from .task import a1_task
from .terrain import Terrain

MAX_STEPS = 1000
"""20 s."""


def task(terrain: Terrain, options: WalkOptions) -> WalkTask:
    """Return a1-walk on that ground."""
    experiment = load_experiment("a1-walk")
    return a1_task(
        experiment,
        terrain,
        options,
        MAX_STEPS,
        obs={
            ACTOR: obs_terms(experiment.obs, terms.ACTOR_OBS, terms.NOISE if options.noise else {}),
            CRITIC: obs_terms((*experiment.obs, *experiment.critic_obs), terms.CRITIC_OBS),
        },
        rewards={
            "tracking": RewardTerm(terms.tracking, 2.0),
            "world_velocity": RewardTerm(terms.world_velocity, -2.0),
            "turning": RewardTerm(terms.turning, options.turning),
            "alive": RewardTerm(alive, 2.0),
            "air_time": RewardTerm(terms.air_time, 2.0),
            "energy": RewardTerm(terms.energy, -2e-5),
            "joint_range": RewardTerm(terms.joint_range, -0.1),
            "torque": RewardTerm(terms.torque, -0.2),
        },
    )


SPEC = TaskSpec(task=lambda seed, options: task(Terrain(seed), options), options=WalkOptions)
