"""Measure the effect of MuJoCo's height field on a running robot, in plain MuJoCo.

    python benchmarks/height_field.py [FOLDER …] --episodes 100 --seed 1

The first table compares flat ground as a plane, as two height fields, and as planes under contact spheres. It has the
results of `pretrained:humanoid-mod`, and the share of one robot's foot contacts whose normal is more than 20 degrees
from upright. The second table compares the hill as planes and as a height field, for `pretrained:humanoid-hill` and the
policies in the given folders.
"""

import argparse
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import mujoco
import numpy as np
from mjlab.envs import ManagerBasedRlEnvCfg

from body_transformer import Policy, pretrained
from body_transformer.rl.envs.cpu import CpuEnv
from body_transformer.rl.envs.mjlab import env_cfg, task_of
from body_transformer.rl.evaluate import mean_action, rollouts
from body_transformer.rl.ground import Ground
from body_transformer.rl.humanoid.ground import add_planes
from body_transformer.rl.humanoid.hill import on_height_field
from body_transformer.rl.humanoid.model import FEET
from body_transformer.rl.registry import make_env_cfg

TASK, HILL = "humanoid-mod", "humanoid-hill"
LOW, SIZE = (-20.0, -40.0), (160.0, 80.0)
"""Lower corner of the ground and its size, in m. At 6 m/s a robot runs 100 m in an episode."""
TILTED = 20.0
"""Angle in degrees from which a contact's normal counts as tilted."""


def flat(grid: float) -> Ground:
    """Build flat ground with cells of this size in m."""
    return Ground(partial(np.zeros, tuple(round(size / grid) + 1 for size in SIZE)), LOW, grid)


def on_planes(cfg: ManagerBasedRlEnvCfg, ground: Ground) -> ManagerBasedRlEnvCfg:
    """Return the task on uneven ground instead of the plane of its scene."""
    task = task_of(cfg)
    uneven = replace(task.scene, terrain=None, spec_fn=partial(add_planes, ground=ground))
    return env_cfg(replace(task, ground=ground, scene=uneven), cfg.scene.num_envs, cfg.seed or 0)


@dataclass
class Watch:
    """Counter of the contacts of one robot's feet, called after each step."""

    env: CpuEnv
    num_contacts: int = 0
    num_tilted: int = 0

    def __call__(self) -> None:
        model, planes = self.env.world.model, self.env.robots.planes
        if not self.env.going[0]:
            return
        if planes is not None:
            planes.fit_model(0, model)
        data = mujoco.MjData(model)
        data.qpos = self.env.world.qpos[0].numpy()
        mujoco.mj_fwdPosition(model, data)
        feet = [model.body(f"robot/{foot}").id for foot in FEET]
        # [contacts, 2]; 0 is the world and everything fixed to it
        bodies = model.body_weldid[model.geom_bodyid[data.contact.geom]]
        on_ground = (bodies == 0).any(1) & np.isin(bodies, feet).any(1)
        angles = np.degrees(np.arccos(np.clip(np.abs(data.contact.frame[on_ground, 2]), 0, 1)))
        self.num_contacts += len(angles)
        self.num_tilted += int((angles > TILTED).sum())

    @property
    def share(self) -> float:
        return self.num_tilted / max(self.num_contacts, 1)


def grounds(num_envs: int, seed: int) -> dict[str, ManagerBasedRlEnvCfg]:
    """Return the task on each ground, by name."""
    cfg = make_env_cfg(TASK, num_envs, seed, play=True)
    return {
        "a plane": cfg,
        "height field, cells of 1 m": on_height_field(on_planes(cfg, flat(1.0))),
        "height field, cells of 0.1 m": on_height_field(on_planes(cfg, flat(0.1))),
        "planes under feelers": on_planes(cfg, flat(0.1)),
    }


def flat_ground(episodes: int, seed: int) -> None:
    """Print the first table."""
    policy = Policy.load(pretrained.path(TASK)).eval()
    print("| flat ground | return | length | survived | m/s | contacts tilted |")
    print("|---|---|---|---|---|---|")
    for name, cfg in grounds(episodes, seed).items():
        with closing(CpuEnv(cfg)) as env:
            watch = Watch(env)
            print(f"| {name} | {numbers(policy, env, seed, watch)} | {watch.share:.0%} |", flush=True)


def hill(folders: Sequence[Path], episodes: int, seed: int) -> None:
    """Print the second table."""
    print("\n| on the hill | ground | return | length | survived | m/s |")
    print("|---|---|---|---|---|---|")
    cfg = make_env_cfg(HILL, episodes, seed, play=True)
    for folder in (pretrained.path(HILL), *folders):
        policy = Policy.load(folder).eval()
        for name, ground in {"planes": cfg, "height field": on_height_field(cfg)}.items():
            with closing(CpuEnv(ground)) as env:
                print(f"| {folder.name} | {name} | {numbers(policy, env, seed)} |", flush=True)


def numbers(policy: Policy, env: CpuEnv, seed: int, watch: Callable[[], object] = lambda: None) -> str:
    """Return four columns of either table."""
    estimates = rollouts(mean_action(policy), env, seed, watch).summary()["rollouts"]
    found = {metric: value.mean for metric, value in estimates.items()}
    survived, speed = f"{found['survived']:.0%}", f"{found['forward_speed']:.2f}"
    return f"{found['total_reward']:.0f} | {found['length']:.0f} | {survived} | {speed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*", metavar="FOLDER")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    flat_ground(options.episodes, options.seed)
    hill(options.folders, options.episodes, options.seed)


if __name__ == "__main__":
    main()
