"""Observations on which ONNX and PyTorch are compared: random ones, and the extremes of the number format."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..model.policy import Policy
from .policy import TOLERANCE, deviation

NUM_RANDOM = 8
MARGIN = 4
"""The rounding of single precision must be smaller than TOLERANCE by this factor."""
NUM_NEAR = 6
"""Neighbours of an observation at which the rounding is measured, too."""
LARGE = tuple(10.0**k for k in range(6, 0, -1))
"""Sizes of large observations in standard deviations, the largest first."""
DENORMAL = 1e-40


def check_vectors(policy: Policy, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return observations [K, O] and the policy's actions [K, A], on which any correct computation must agree.

    At large observations single precision itself may not determine an action to 1e-5, because the terms of a sum
    cancel, or two scores of a softmax are nearly equal. Such a vector would blame a network for its arithmetic, so a
    smaller one is taken.
    """
    exact = copy.deepcopy(policy).double()
    wanted = [*_certain(policy), *_random(policy, seed), *_large(policy, seed)]
    rows = []
    for candidates in wanted:
        fit = np.flatnonzero(rounding(policy, exact, candidates) <= TOLERANCE / MARGIN)
        if len(fit):
            rows.append(candidates[fit[0]])
    if 2 * len(rows) < len(wanted):
        raise ValueError(
            f"this policy's actions are not finite, or single precision does not determine them: of {len(wanted)} "
            f"observations only {len(rows)} give an action that is certain to {TOLERANCE / MARGIN:.0e}"
        )
    obs = torch.stack(rows)
    with torch.no_grad():
        return obs, policy(obs)


def rounding(policy: Policy, exact: Policy, obs: Tensor) -> NDArray[np.float64]:
    """Return the deviation [K] of single from double precision in PyTorch; `exact` is the policy in double precision.

    Neighbours of each observation count, too, because a single one may be exact by chance.
    """
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(2, (NUM_NEAR, obs.shape[1]), generator=generator) * 2.0 - 1
    worst = np.zeros(len(obs))
    with torch.no_grad():
        for near in (obs, *(obs.nextafter((torch.inf * side).expand_as(obs)) for side in signs)):
            worst = np.maximum(worst, deviation(policy(near).numpy(), exact(near.double()).numpy()))
    return worst


def _certain(policy: Policy) -> list[Tensor]:
    """Return zeros, the mean, denormal numbers, and the bounds of the normalised observation; each [1, O]."""
    shift, scale = policy.normalizer.shift, policy.normalizer.scale
    bound = policy.normalizer.clip or 5.0
    sign = _alternating(policy.obs_dim)
    rows = [torch.zeros_like(shift), shift, DENORMAL * sign]
    rows += [shift + side * bound * scale for side in (1, -1, sign)]
    return [row[None] for row in rows]


def _random(policy: Policy, seed: int) -> list[Tensor]:
    """Return observations as in training, each [1, O]."""
    noise = torch.randn(NUM_RANDOM, policy.obs_dim, generator=torch.Generator().manual_seed(seed))
    return [(policy.normalizer.shift + policy.normalizer.scale * row)[None] for row in noise]


def _large(policy: Policy, seed: int) -> list[Tensor]:
    """Return observations of the sizes LARGE, each [len(LARGE), O]."""
    generator = torch.Generator().manual_seed(seed + 1)
    ones = torch.ones(policy.obs_dim)
    signs = torch.randint(2, (2, policy.obs_dim), generator=generator) * 2.0 - 1
    sizes = torch.tensor(LARGE)[:, None]
    return [
        policy.normalizer.shift + policy.normalizer.scale * sizes * side
        for side in (ones, -ones, _alternating(policy.obs_dim), *signs)
    ]


def _alternating(size: int) -> Tensor:
    return 1.0 - 2.0 * (torch.arange(size) % 2)
