"""What MuJoCo's height field does to who runs over it.

    python benchmarks/height_field.py --episodes 100 --seed 1

Flat ground four times, in plain MuJoCo: as a plane, as two height fields, and as planes under feelers. A row says how
`pretrained:humanoid-mod` runs there and, of its feet's contacts, how many have a normal more than 20 degrees from
upright.
"""

import argparse
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import mujoco
import numpy as np
from mjlab.envs import ManagerBasedRlEnvCfg

from body_transformer import Policy, pretrained
from body_transformer.rl.humanoid.ground import Ground
from body_transformer.rl.humanoid.model import FEET
from body_transformer.rl.humanoid.plain import PlainEnv, on_height_field
from body_transformer.rl.humanoid.task import task_of
from body_transformer.rl.plain import evaluate
from body_transformer.rl.registry import make_env_cfg

TASK = "humanoid-mod"
LOW, SIZE = (-20.0, -40.0), (160.0, 80.0)
"""m: the first corner of the ground and its size. At 6 m/s a robot comes 100 m far."""
TILTED = 20.0
"""Degrees."""


def flat(grid: float) -> Ground:
    """With cells of so many m."""
    return Ground(partial(np.zeros, tuple(round(size / grid) + 1 for size in SIZE)), LOW, grid)


def on_planes(cfg: ManagerBasedRlEnvCfg, ground: Ground) -> ManagerBasedRlEnvCfg:
    """The task on uneven ground, instead of the plane that its scene has."""
    scene = replace(cfg.scene, terrain=None, spec_fn=ground.add_planes)
    torque = replace(cfg.actions["torque"], task=replace(task_of(cfg), ground=ground))
    return replace(cfg, scene=scene, actions={"torque": torque})


@dataclass
class Watch:
    """Counts the contacts of one robot's feet after each step."""

    env: PlainEnv
    num_contacts: int = 0
    num_tilted: int = 0

    def __call__(self) -> None:
        model, planes = self.env.world.model, self.env.robots.planes
        if not self.env.going[0]:
            return
        if planes is not None:
            planes.put(0, model)
        data = mujoco.MjData(model)
        data.qpos = self.env.world.qpos[0].numpy()
        mujoco.mj_fwdPosition(model, data)
        feet = [model.body(f"robot/{foot}").id for foot in FEET]
        bodies = model.body_weldid[
            model.geom_bodyid[data.contact.geom]
        ]  # [contacts, 2]; 0 is the world and what is fixed to it
        on_ground = (bodies == 0).any(1) & np.isin(bodies, feet).any(1)
        angles = np.degrees(np.arccos(np.clip(np.abs(data.contact.frame[on_ground, 2]), 0, 1)))
        self.num_contacts += len(angles)
        self.num_tilted += int((angles > TILTED).sum())

    @property
    def share(self) -> float:
        return self.num_tilted / max(self.num_contacts, 1)


def grounds(num_envs: int, seed: int) -> dict[str, ManagerBasedRlEnvCfg]:
    """Name -> the task on this ground."""
    cfg = make_env_cfg(TASK, num_envs, seed, play=True)
    return {
        "a plane": cfg,
        "height field, cells of 1 m": on_height_field(on_planes(cfg, flat(1.0))),
        "height field, cells of 0.1 m": on_height_field(on_planes(cfg, flat(0.1))),
        "planes under feelers": on_planes(cfg, flat(0.1)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    policy = Policy.load(pretrained.path(TASK)).eval()
    print("| flat ground | return | length | survived | m/s | contacts tilted |")
    print("|---|---|---|---|---|---|")
    for name, cfg in grounds(options.episodes, options.seed).items():
        with closing(PlainEnv(cfg)) as env:
            watch = Watch(env)
            found = {metric: value.mean for metric, value in evaluate(policy, env, options.seed, watch).items()}
        numbers = f"{found['total_reward']:.0f} | {found['length']:.0f} | {found['survived']:.0%}"
        print(f"| {name} | {numbers} | {found['forward_speed']:.2f} | {watch.share:.0%} |", flush=True)


if __name__ == "__main__":
    main()
