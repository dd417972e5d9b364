"""Demonstrations on a device: their batches, statistics and subsets are those of demonstrations in files."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from body_transformer.imitation.batches import Batches
from body_transformer.imitation.demonstrations import obs_mean_and_var
from body_transformer.imitation.episodes import EpisodeInfo, InMemory
from body_transformer.imitation.on_device import DeviceBatches, OnDevice

from .readers.small import LAYOUT

LENGTHS = (7, 12, 1, 30, 9)


@pytest.fixture
def both() -> tuple[OnDevice, InMemory]:
    """The same demonstrations on a device and in the host's memory."""
    rng = np.random.default_rng(0)
    infos = [EpisodeInfo(length, f"clip{k}") for k, length in enumerate(LENGTHS)]
    obs, actions = (
        [rng.standard_normal((length, size), dtype=np.float32) for length in LENGTHS]
        for size in (LAYOUT.obs_dim, LAYOUT.action_dim)
    )
    stored = InMemory(LAYOUT, infos, obs, actions)
    steps = [stored.read(k) for k in range(len(stored))]
    parts = [
        torch.from_numpy(np.concatenate(arrays)) for arrays in zip(*((s.obs, s.actions) for s in steps), strict=True)
    ]
    return OnDevice(LAYOUT, infos, *parts), stored


@pytest.mark.parametrize(("rank", "num_ranks"), [(0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize(("epoch", "first"), [(0, 0), (3, 2)])
def test_batches_are_those_of_files(both, rank, num_ranks, epoch, first):
    mine, theirs = (
        kind(episodes, 8, 5, rank=rank, num_ranks=num_ranks)
        for kind, episodes in zip((DeviceBatches, Batches), both, strict=True)
    )
    assert len(mine) == len(theirs) == 8
    for found, expected in zip(mine.epoch(epoch, first), theirs.epoch(epoch, first), strict=True):
        for tensor, array in zip(found, expected, strict=True):
            assert torch.equal(tensor, torch.from_numpy(array))


def test_statistics_are_those_of_files(both):
    for mine, theirs in zip(*map(obs_mean_and_var, both), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_splits_and_draws_are_those_of_files(both):
    mine, theirs = (episodes.split("train").draw(3, seed=1) for episodes in both)
    assert isinstance(mine, OnDevice)
    assert mine.infos == theirs.infos
    for k in range(3):
        np.testing.assert_array_equal(mine.read(k).obs, theirs.read(k).obs)
        np.testing.assert_array_equal(mine.read(k).actions, theirs.read(k).actions)


def test_a_batch_never_waits_for_the_device(both):
    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(function.overloadpacket.__name__)
            return function(*args, **(kwargs or {}))

    batches, seen = DeviceBatches(both[0], 8, 0).epoch(0), []
    next(batches)  # copies the order of the epoch
    with Names():
        next(batches)
    assert seen
    assert set(seen) <= {"slice", "index_select", "_to_copy", "detach"}


@pytest.mark.parametrize(("kind", "message"), [("obs", "observations"), ("actions", "actions")])
def test_values_that_are_not_finite_are_named(both, kind, message):
    getattr(both[0], kind)[20, 1] = torch.nan
    names = LAYOUT.obs_names() if kind == "obs" else LAYOUT.action_names()
    entry = both[0].obs_ids[1] if kind == "obs" else 1
    with pytest.raises(ValueError, match="the rollouts have " + message + " that are not finite: ") as error:
        obs_mean_and_var(both[0])
    assert str(error.value).endswith(f"finite: {names[entry]!r}")


def test_wrong_sizes_are_refused(both):
    mine = both[0]
    with pytest.raises(ValueError, match="observations and actions must have the shapes"):
        OnDevice(LAYOUT, mine.infos, mine.obs[1:], mine.actions)
    with pytest.raises(ValueError, match="batch_size must be a multiple of the number of processes; got 3 and 2"):
        DeviceBatches(mine, 3, 0, num_ranks=2)
    with pytest.raises(ValueError, match="the demonstrations have no steps"):
        DeviceBatches(OnDevice(LAYOUT, [], mine.obs[:0], mine.actions[:0]), 2, 0)
