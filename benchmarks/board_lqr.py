"""Test whether a humanoid can stand on the board, and for how long with action noise and a wider spread of starts.

    python benchmarks/board_lqr.py --out board_lqr.md

A linear-quadratic regulator observes the whole state, including board and cylinder, and balances in humanoid-board in
plain MuJoCo. The physics are linearised around a balanced pose, over one control step. The regulator applies the
optimal feedback for this linear map and a quadratic cost. Far from the pose the linear map is wrong, so a
better controller may exist. Needs mjlab and scipy (`pip install -c constraints.txt -e '.[rl]'` installs both).
"""

import argparse
import copy
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

try:
    from scipy.linalg import solve_discrete_are
except ImportError:
    sys.exit("board_lqr: scipy is missing; pip install -c constraints.txt -e '.[rl]'")

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray

from body_transformer.bench.results import device_name
from body_transformer.files import atomic_write
from body_transformer.report.text import markdown_table
from body_transformer.rl.envs.cpu import CpuEnv
from body_transformer.rl.humanoid.model import DECIMATION
from body_transformer.rl.humanoid.robots import JOINT_POS_RAD
from body_transformer.rl.registry import make_env_cfg

Array = NDArray[np.float64]

POSE = {"hip_y": -0.08, "knee": -0.15, "ankle_y": -0.07}
"""Joint angles of both legs in rad: knees slightly bent, soles level, torso upright. All other joints are at 0."""
STIFFNESS, DAMPING = 2000.0, 200.0
"""Stiffness in Nm/rad and damping in Nm s/rad of the joints while the pose settles."""
SLOWED, NUM_SETTLE = 0.95, 3000
"""Factor of all velocities per step while the pose settles, and the number of these steps."""
ABOVE, CENTRED = 1000.0, 100.0
"""Costs of squared distances in m² between bodies that should be above, or centred on, each other."""
TILT, JOINT, ARM_JOINT = 10.0, 100.0, 10.0
"""Costs of squared tilts and squared joint angles, in rad²."""
VELOCITY, EFFORT = 0.1, 10.0
"""Costs of squared velocities and of squared actions."""
DISCOUNT = 0.9995
"""Discount per control step; the motors can hardly change the position of the whole system, and need not."""
NEAR, SPREADS = (0.003, 0.01, 0.03), (0.02, 0.05, 0.1, 0.2)
"""Starts in the tables: values of `near` and `spread`, see Trial.begin."""
NOISES = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)
"""Sigmas of action noise in the tables."""


def balanced(model: mujoco.MjModel, joints: Array) -> tuple[Array, Array]:
    """Return the pose in balance on board and cylinder, qpos [nq], and the actions [nu] that hold it.

    Stiff joints hold the pose while everything settles, slowed down so that nothing falls. Inverse dynamics give the
    torques at rest.
    """
    stiff = copy.copy(model)
    data = mujoco.MjData(stiff)
    data.qpos = model.key_qpos[0]
    for name, angle in POSE.items():
        for side in ("right", "left"):
            data.joint(f"robot/{side}_{name}").qpos = angle
    mujoco.mj_forward(stiff, data)
    centre_of_mass = data.body("robot/torso").subtree_com
    data.joint("robot/root").qpos[0] -= centre_of_mass[0]  # so that it is above the board's middle
    stiff.qpos_spring = data.qpos
    stiff.jnt_stiffness[joints], stiff.dof_damping[model.jnt_dofadr[joints]] = STIFFNESS, DAMPING
    for _ in range(NUM_SETTLE):
        mujoco.mj_step(stiff, data)
        data.qvel *= SLOWED
    rest = mujoco.MjData(model)
    rest.qpos = data.qpos
    mujoco.mj_inverse(model, rest)
    return data.qpos.copy(), rest.qfrc_inverse[model.jnt_dofadr[joints]] / model.actuator_gear[:, 0]


def linearised(model: mujoco.MjModel, qpos: Array, ctrl: Array) -> tuple[Array, Array]:
    """Return A [2 nv, 2 nv] and B [2 nv, nu]: from a deviation x, actions changed by u lead to A x + B u."""
    exact = copy.copy(model)
    exact.opt.iterations, exact.opt.tolerance = 200, 1e-15  # otherwise finite differences contain the solver's residual
    data = mujoco.MjData(exact)
    data.qpos, data.ctrl = qpos, ctrl
    mujoco.mj_forward(exact, data)
    a, b = np.zeros((2 * model.nv, 2 * model.nv)), np.zeros((2 * model.nv, model.nu))
    mujoco.mjd_transitionFD(exact, data, 1e-6, True, a, b, None, None)
    powers = [np.linalg.matrix_power(a, k) for k in range(DECIMATION + 1)]
    return powers[-1], sum(powers[:-1]) @ b  # the actions stay the same over the physics steps


def state_cost(model: mujoco.MjModel, qpos: Array, joints: Array) -> Array:
    """Return Q [2 nv, 2 nv]: a deviation x from the balance costs xᵀ Q x."""
    data, mass_centre, moves, turns = mujoco.MjData(model), np.zeros((3, model.nv)), {}, {}
    data.qpos = qpos
    mujoco.mj_forward(model, data)
    mujoco.mj_jacSubtreeCom(model, data, mass_centre, model.body("robot/torso").id)
    for name in ("robot/torso", "robot/right_foot", "robot/left_foot", "board/board", "cylinder/cylinder"):
        moves[name], turns[name] = np.zeros((2, 3, model.nv))
        mujoco.mj_jacBody(model, data, moves[name], turns[name], model.body(name).id)
    feet = (moves["robot/right_foot"] + moves["robot/left_foot"]) / 2
    board, cylinder = moves["board/board"], moves["cylinder/cylinder"]  # the cylinder lies along x
    cost = np.diag(np.repeat([1e-8, VELOCITY], model.nv))
    terms = [
        (ABOVE, (mass_centre - feet)[:2]),
        (ABOVE, (mass_centre - cylinder)[1:2]),
        (CENTRED, (board - cylinder)[:2]),
        (CENTRED, (feet - board)[:2]),
        (TILT, turns["robot/torso"][:2]),
        (TILT, turns["board/board"][:1]),
    ]
    for price, rows in terms:
        cost[: model.nv, : model.nv] += price * rows.T @ rows
    for joint in map(model.joint, joints):
        of_arm = "shoulder" in joint.name or "elbow" in joint.name
        cost[joint.dofadr, joint.dofadr] += ARM_JOINT if of_arm else JOINT
    return cost


def optimal_gain(a: Array, b: Array, cost: Array) -> Array:
    """Return the gain [nu, 2 nv]: actions change by -gain x."""
    effort, root = EFFORT * np.eye(b.shape[1]), np.sqrt(DISCOUNT)
    value = solve_discrete_are(root * a, root * b, cost, effort)
    return np.linalg.solve(effort + DISCOUNT * b.T @ value @ b, DISCOUNT * b.T @ value @ a)


def doubling_steps(a: Array) -> list[float]:
    """Return the doubling times, in control steps, of modes that double within 100 steps, fastest first."""
    growth = np.abs(np.linalg.eigvals(a))
    return sorted(float(np.log(2) / np.log(rate)) for rate in growth[growth > 2 ** (1 / 100)])


class Trial:
    """Robots of the task, controlled by the regulator."""

    def __init__(self, num_episodes: int, num_threads: int, seed: int) -> None:
        self.env, self.seed = CpuEnv(make_env_cfg("humanoid-board", num_episodes, seed=0), num_threads), seed
        self.model, world = self.env.world.model, self.env.world
        self.qpos, self.qvel = world.qpos.numpy(), world.qvel.numpy()  # the simulator's own memory
        joints = np.flatnonzero(self.model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE)
        self.q_ids = self.model.jnt_qposadr[joints]
        self.pose, self.hold = balanced(self.model, joints)
        self.a, b = linearised(self.model, self.pose, self.hold)
        self.gain = optimal_gain(self.a, b, state_cost(self.model, self.pose, joints))

    def begin(self, near: float | None = None, spread: float | None = None) -> None:
        """Start as the task does, or in balance.

        Args:
            near: start in balance, with Gaussian noise of this sigma on joint angles and all velocities.
            spread: start in balance, with the task's joint velocities and its joint angles scaled from U(-0.2, 0.2)
                to U(-spread, spread).
        """
        self.env.reset(seed=self.seed)
        angles, rng = self.qpos[:, self.q_ids], np.random.default_rng(self.seed)
        if near is not None:
            self.qvel[:], angles = rng.normal(0, near, self.qvel.shape), rng.normal(0, near, angles.shape)
        elif spread is not None:
            angles *= spread / JOINT_POS_RAD
        else:
            return
        self.qpos[:] = self.pose
        self.qpos[:, self.q_ids] += angles

    def stood(self, num_steps: int, noise: float = 0.0) -> Array:
        """Return the steps [B] until each falls, at most `num_steps`; `noise` is the sigma of Gaussian action noise."""
        rng, away = np.random.default_rng(self.seed), np.zeros_like(self.qvel)
        for _ in range(num_steps):
            for k in np.flatnonzero(self.env.going):
                mujoco.mj_differentiatePos(self.model, away[k], 1.0, self.pose, self.qpos[k])
            actions = self.hold - np.hstack([away, self.qvel]) @ self.gain.T
            self.env.step(torch.from_numpy(actions + rng.normal(0, noise, actions.shape)))  # step clamps them
            if not self.env.going.any():
                break
        return self.env.steps.numpy().astype(np.float64)


def row(trial: Trial, limit: int, noise: float = 0.0, **start: float) -> tuple[str, ...]:
    """Return the steps until a fall, of `limit`: mean and standard error, median, share that reaches the end."""
    trial.begin(**start)
    steps = trial.stood(limit, noise)
    mean, error = steps.mean(), steps.std() / len(steps) ** 0.5
    return f"{mean:.0f} ± {error:.0f}", f"{np.median(steps):.0f}", f"{100 * (steps >= limit).mean():.0f} %"


def tables(trial: Trial) -> Iterator[str]:
    modes = doubling_steps(trial.a)
    yield markdown_table(["unstable mode", "doubles in steps"], [(str(k), f"{m:.1f}") for k, m in enumerate(modes, 1)])
    starts = [(f"in balance, noise {near:g}", *row(trial, 1000, near=near)) for near in NEAR]
    starts.append(("the task's own", *row(trial, 1000)))
    yield markdown_table(["start", "steps, of 1000", "median", "reach 1000"], starts)
    noisy = [(f"{noise:g}", *row(trial, 400, noise, near=NEAR[0])) for noise in NOISES]
    yield markdown_table(["noise on actions", "steps, of 400", "median", "reach 400"], noisy)
    spreads = [(f"U(-{spread:g}, {spread:g})", *row(trial, 600, spread=spread)) for spread in SPREADS]
    yield markdown_table(["joints around the balance", "steps, of 600", "median", "reach 600"], spreads)


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100, help="episodes per table row")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=1, help="seed of starts and noise")
    parser.add_argument("--out", type=Path, help="Markdown file; without it, the tables are only printed")
    options = parser.parse_args(args)
    if min(options.episodes, options.threads) < 1:
        sys.exit(f"board_lqr: episodes and threads must be at least 1; got {options.episodes} and {options.threads}")
    command = f"python benchmarks/board_lqr.py --episodes {options.episodes} --seed {options.seed}"
    where = f"MuJoCo {mujoco.__version__}, {os.cpu_count()} cores of {device_name('cpu')}, {datetime.now(UTC):%Y-%m-%d}"
    text = [f"`{command}`: {where}. ± is the standard error.\n"]
    for found in tables(Trial(options.episodes, options.threads, options.seed)):
        print(found, flush=True)
        text.append(found)
    if options.out:
        atomic_write(options.out, "\n".join(text))


if __name__ == "__main__":
    main()
