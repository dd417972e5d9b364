"""a1-walk: a Unitree A1 walks ahead at 0.5 m/s over irregular ground (the paper's section 5.3).

Observation (48): a place for the linear velocity, which the robot does not measure (0); angular velocity x 0.25 and
direction of gravity in the trunk's frame; command x (2, 2, 0.25); joint angles from the default pose; joint velocities
x 0.05; the last action. Joints come as FL, FR, RL, RR, each hip, thigh, calf. Action (12) at 50 Hz: joint targets, the
default pose + 0.5 x action, cut off where the motors (Kp 50, Kd 1, at 200 Hz) would at once be asked for more than
25 Nm. An episode ends in death when the trunk touches the ground (more than 1 N), rolls over 0.8 rad, or is below 0.15
or above 1.5 m; by time-out after 20 s. Reward: see terms.REWARD_WEIGHTS.

The ground has 20 x 50 tracks of 2.0 x 1.6 m (x from 0, y about 0) with gradient noise of 10 cells a metre, 2 octaves,
gain 0.25; its scale is U(0.08, 0.15) m for each track, and 0 if below 0.1: about 29 % are flat. Around is a border of
5 m with noise of scale 0.08.

Robots differ in friction U(0, 2), mass of the trunk +U(1, 3) kg, its centre of mass (x -0.05 to 0.15, y ±0.1, z ±0.05
m) and the strength of each motor U(0.9, 1.1). An episode begins 0.2 to 0.6 m into a track, up to 0.25 m off its middle,
with joint angles of U(0.5, 1.5) x the default pose, joint velocities of ±3 rad/s, and ±0.5 m/s and rad/s of the trunk.

The critic has observations of its own (65): the same without noise, with the true velocity, and the 17 parameters of
the robot (friction, centre of mass, mass, 12 strengths). Beyond the paper, and off: latency, stiffer motors (the
authors' robot has Kp 100), pushes, other commands, more reward for going straight.

Where this is not the authors' environment:
- the critic sees the parameters and the velocity: the paper says the former, the authors' code drops both;
- the place of the linear velocity has no noise (theirs ±0.2): on the robot it is 0;
- noise swings about the same height everywhere: theirs lifts a track by 0.6 of its scale, and flat tracks are pits of
  6 to 9 cm; heights are drawn on one lattice, so that tracks of equal scale have no seam;
- an episode draws a track, of those with 10 m of ground ahead: theirs kept one for an environment, and few
  environments would see few tracks;
- an episode ends by time-out 1 m before the end of the ground: theirs goes on beside it;
- the trunk starts 0.42 m above the highest ground under the robot, so that no foot starts inside it; joint angles stay
  within the joints' ranges, which half the calf's angle is not;
- the friction of a contact is the mean of the drawn one and the ground's (1), as PhysX takes it; MuJoCo would take the
  larger, and no robot would slip. So it is U(0.5, 1.5);
- the robot does not touch itself: a leg at the trunk would else count as a fall;
- added mass scales the trunk's inertia, and a motor's strength its whole torque, which stays below the motor's limit of
  33.5 Nm;
- the ground is a plane under each foot, knee, calf and corner of the trunk, see ground.py;
- an episode in which the simulation breaks (50 m/s, 200 rad/s or no number) is over, with the reward 0, and counted;
- the reward's torque and joint terms look at all 4 physics steps of a control step.
"""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Any

from mjlab.envs import ManagerBasedRlEnvCfg
from mjlab.scene import SceneCfg

from .ground import add_planes
from .model import contact_sensors, robot, simulation
from .task import Task, env_cfg
from .terrain import START_ABOVE, Terrain

OPTIONS = tuple(field.name for field in fields(Task) if field.name != "terrain")


def cfg(num_envs: int, seed: int, **options: Any) -> ManagerBasedRlEnvCfg:
    """mjlab's configuration of a1-walk; options are fields of Task."""
    task = Task(**{"terrain": Terrain(seed), **options})
    scene = SceneCfg(
        num_envs=num_envs,
        env_spacing=0.0,
        entities={"robot": robot(START_ABOVE)},
        sensors=contact_sensors(),
        spec_fn=partial(add_planes, prefix="robot/"),
        extent=2.0,
    )
    return env_cfg(task, scene, simulation(), seed)
