"""Small environments of our tasks and of mjlab's, and checks of environments."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("mjlab", reason="mjlab is not installed: pip install -c constraints.txt -e '.[rl]'")

from body_transformer.rl.envs.world import FreeBody

CARTPOLE = "Mjlab-Cartpole-Balance"
GO1 = "Mjlab-Velocity-Flat-Unitree-Go1"
ROUGH_GO1 = "Mjlab-Velocity-Rough-Unitree-Go1"
G1 = "Mjlab-Velocity-Flat-Unitree-G1"
YAM = "Mjlab-Lift-Cube-Yam"
TRACKING = "Mjlab-Tracking-Flat-Unitree-G1"


def task_cfg(name: str, num_envs: int = 8, seed: int = 0, flat: bool = False, **options: Any) -> Any:
    """Return mjlab's configuration of one of our tasks with these options; the A1 has a small ground."""
    from body_transformer.rl.a1 import command, walk
    from body_transformer.rl.a1.options import CommandOptions
    from body_transformer.rl.a1.terrain import Terrain
    from body_transformer.rl.envs.mjlab import env_cfg
    from body_transformer.rl.registry import task_spec

    spec = task_spec(name)
    if name == "a1-walk":
        even = {"scale": (0.0, 0.0), "border_scale": 0.0} if flat else {}
        task = walk.task(Terrain(seed, num_tracks=(6, 4), **even), walk.WalkOptions(**options))
    elif name == "a1-command":
        heights = {"scale": (0.0, 0.0 if flat else 0.1), "flat_below": 0.07, "border_scale": 0.0}
        task = command.task(Terrain(seed, num_tracks=(6, 4), **heights), CommandOptions(**options))
    else:
        task = spec.task(seed, *([spec.options(**options)] if spec.options else []))
    return env_cfg(task, num_envs, seed)


def make_env(task: str, change: Callable[[Any], None] = lambda cfg: None, num_envs: int = 2, reset: bool = True) -> Any:
    """Return an environment of mjlab's own, without noise."""
    import mjlab.tasks  # noqa: F401, fills the registry
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.tasks.registry import load_env_cfg

    cfg = load_env_cfg(task, play=True)
    cfg.scene.num_envs = num_envs
    cfg.seed = 0
    change(cfg)
    torch.manual_seed(0)
    env = ManagerBasedRlEnv(cfg, device="cpu")
    if reset:
        env.reset()
    return env


def random_actions(steps: int, name: str = "humanoid-mod", seed: int = 1, scale: float = 1.0) -> Tensor:
    """Return actions of 8 robots of one of our tasks, [steps, 8, A]."""
    sizes = (steps, 8, 12 if name.startswith("a1-") else 21)
    return scale * torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


def settle(env: Any) -> None:
    """Compute everything that follows from positions and velocities, and the sensors."""
    env.sim.forward()
    env.scene.update(dt=0.0)  # clears the cached values of sensors
    env.sim.sense()


def observe(env: Any, group: str) -> Tensor:
    """Return the current observations, [B, O]."""
    return env.observation_manager.compute_group(group).clone()


def changed(before: Tensor, after: Tensor) -> set[int]:
    """Return the entries that differ in any environment."""
    return set((before != after).any(0).nonzero().flatten().tolist())


def free_body(dtype: torch.dtype, values: dict[str, Any]) -> tuple[FreeBody, dict[str, Tensor]]:
    """Return one level body at rest at the origin, except for these values, and the other values as tensors."""
    tensors = {name: torch.tensor([value]) for name, value in values.items()}
    tensors = {name: value if value.dtype == torch.bool else value.to(dtype) for name, value in tensors.items()}
    zeros = torch.zeros(1, 3, dtype=dtype)
    root = {"pos": zeros, "quat": torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=dtype), "vel": zeros, "spin": zeros}
    return FreeBody(**{name: tensors.pop(name, own) for name, own in root.items()}), tensors


def turned(axis: str, angle: float) -> list[float]:
    """Return the quaternion of a rotation about an axis of the world."""
    return [math.cos(angle / 2), *(math.sin(angle / 2) * (axis == name) for name in "xyz")]


class Operations(TorchDispatchMode):
    """Records the names of the tensor operations inside the context."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def check_no_host_traffic(env: Any, actions: Tensor) -> None:
    """Check that steps have no operation that a CUDA graph cannot record; Warp's physics is not seen here."""
    with Operations() as operations:
        for action in actions:
            env.step(action)
    waiting = {"_local_scalar_dense", "nonzero", "item", "lift_fresh", "masked_select", "is_nonzero", "unique"}
    assert waiting.isdisjoint(operations.seen)
    assert len(operations.seen) > 100
