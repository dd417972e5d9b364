"""Hand-made states of one A1, and their observations."""

from dataclasses import replace

import torch

from body_transformer.rl.a1 import walk
from body_transformer.rl.a1.model import DEFAULT_POSE
from body_transformer.rl.a1.parameters import A1Parameters
from body_transformer.rl.a1.state import A1Joints, A1State
from body_transformer.rl.a1.terrain import Terrain

from ..environments import free_body

TASK = walk.task(Terrain(0, num_tracks=(2, 2)), walk.WalkOptions())


def make_state(dtype: torch.dtype = torch.float32, parameters: A1Parameters | None = None, **values) -> A1State:
    """Return the state of one level robot at rest with joint angles of 0, except for the values."""
    zeros = torch.zeros(1, 12, dtype=dtype)
    default = torch.tensor(DEFAULT_POSE, dtype=dtype)
    joints = A1Joints(default, default - 1, default + 1, torch.full((12,), 33.5, dtype=dtype))
    one = zeros[0, :1]
    like_one = {"stiffness": one, "damping": one, "latency": one.long(), "ticks": one.long() + 1}
    zero = A1Parameters(one, zeros[:, :3], one, zeros, **like_one)
    root, changes = free_body(dtype, values)
    return replace(A1State.zeros(root, joints, parameters or zero), **changes)


def observe(state: A1State, group: str = "actor") -> torch.Tensor:
    """Return the observation without noise, [1, O]."""
    return torch.cat([term.value(state) for term in TASK.obs[group]], -1)
