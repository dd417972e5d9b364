"""Batches: every step once, in an order that depends on seed and epoch alone, with little memory."""

import threading
import time
import tracemalloc
from itertools import chain

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from body_transformer import BodyGraph, Layout, Term
from body_transformer.imitation.batches import Batches
from body_transformer.imitation.episodes import EpisodeInfo, Episodes, Steps

LAYOUT = Layout(
    BodyGraph.from_edges(["torso", "arm"], [("torso", "arm")]),
    [Term.root("gravity", 2), Term.unused("clock", 1), Term.node("arm_pos", "arm", 1)],
    [Term.node("ctrl", "arm", 1)],
)
STEP_BYTES = 4 * (3 + 1)
some = settings(max_examples=60, deadline=None)


class Numbered(Episodes):
    """Steps that contain their number in the whole set; reads are recorded."""

    def __init__(self, lengths):
        super().__init__(LAYOUT, [EpisodeInfo(length) for length in lengths])
        self.starts = np.cumsum([0, *lengths]).tolist()
        self.reads = []
        self.fail_at = None

    def read(self, index):
        self.reads.append(index)
        if index == self.fail_at:
            raise ValueError("clips/CMU_009_12.hdf5: cut off")
        numbers = np.arange(self.starts[index], self.starts[index + 1], dtype=np.float32)
        return Steps(np.stack([numbers, -numbers, numbers + 0.5], 1), numbers[:, None] * 2)


lengths = st.lists(st.integers(0, 9), min_size=1, max_size=25)
cases = st.fixed_dictionaries(
    {
        "lengths": lengths,
        "batch_size": st.integers(1, 12),
        "window_steps": st.integers(9, 60),
        "seed": st.integers(0, 2**40),
        "epoch": st.integers(0, 1000),
    }
)


def make(case, **options):
    assume(sum(case["lengths"]))
    episodes = Numbered(case["lengths"])
    window_bytes = case["window_steps"] * STEP_BYTES
    return Batches(episodes, case["batch_size"], case["seed"], window_bytes, **options), case["epoch"]


def numbers(epoch):
    """Return the numbers of the steps, batch by batch, and check that observations and actions match."""
    found = []
    for obs, actions in epoch:
        assert obs.dtype == actions.dtype == np.float32
        np.testing.assert_array_equal(actions[:, 0], obs[:, 0] * 2)
        np.testing.assert_array_equal(obs, np.stack([obs[:, 0], -obs[:, 0], obs[:, 0] + 0.5], 1))
        found.append(obs[:, 0].astype(int).tolist())
    return found


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("demonstrations")]


@some
@given(cases)
def test_an_epoch_has_every_step_once_and_only_its_last_batch_may_be_smaller(case):
    batches, epoch = make(case)
    found = numbers(batches.epoch(epoch))
    assert not threads()
    assert len(found) == len(batches)
    assert sorted(chain(*found)) == list(range(sum(case["lengths"])))
    assert all(len(batch) == case["batch_size"] for batch in found[:-1])
    assert len(found[-1]) <= case["batch_size"]


@some
@given(cases)
def test_the_order_depends_on_seed_and_epoch_alone(case):
    once, epoch = make(case)
    again, _ = make(case)
    list(again.epoch(epoch + 1))  # earlier reads do not matter
    assert numbers(once.epoch(epoch)) == numbers(again.epoch(epoch))


@some
@given(cases, st.data())
def test_an_epoch_can_resume_at_any_batch(case, data):
    batches, epoch = make(case)
    first = data.draw(st.integers(0, len(batches)))
    fresh, _ = make(case)
    assert numbers(fresh.epoch(epoch, first)) == numbers(batches.epoch(epoch))[first:]


@some
@given(cases, st.sampled_from([1, 2, 3, 4]))
def test_the_parts_of_the_ranks_make_the_batch_of_one_process(case, num_ranks):
    case = case | {"batch_size": case["batch_size"] * num_ranks}
    whole, epoch = make(case)
    ranks = [numbers(make(case, rank=rank, num_ranks=num_ranks)[0].epoch(epoch)) for rank in range(num_ranks)]
    *full, last = numbers(whole.epoch(epoch))
    *shared, last_shared = [list(chain(*parts)) for parts in zip(*ranks, strict=True)]
    assert shared == full
    assert set(last_shared) == set(last)
    assert len({len(rank[-1]) for rank in ranks}) == 1  # equal shares: gradients are averaged over ranks
    if len(last) % num_ranks == 0:
        assert last_shared == last


@some
@given(cases)
def test_no_window_is_larger_than_allowed_and_none_is_read_twice(case):
    batches, epoch = make(case)
    assert batches.window_steps == case["window_steps"]
    members = batches._members(epoch)
    lengths = np.array(case["lengths"])
    assert all(lengths[ids].sum() <= case["window_steps"] for ids in members)
    assert sorted(np.concatenate(members).tolist()) == np.flatnonzero(lengths).tolist()
    numbers(batches.epoch(epoch))
    assert len(set(batches.episodes.reads)) == len(batches.episodes.reads)


@pytest.mark.parametrize("window_steps", [10, 1000])
def test_epochs_and_seeds_differ(window_steps):
    def order(seed, epoch):
        return numbers(Batches(Numbered([5] * 20), 4, seed, window_steps * STEP_BYTES).epoch(epoch))

    assert len({str(order(seed, epoch)) for seed in (0, 1, 2**32) for epoch in range(4)}) == 12


def test_steps_are_shuffled_over_episodes_and_every_step_is_equally_likely():
    batches = Batches(Numbered([5] * 20), 10, 0, 25 * STEP_BYTES)
    firsts = [numbers(batches.epoch(epoch))[0][0] for epoch in range(400)]
    counts = np.bincount(firsts, minlength=100)
    assert ((counts - 4) ** 2 / 4).sum() < 160  # chi-squared with 99 degrees of freedom: 148 has p = 0.001


def test_data_that_fit_in_one_window_are_read_once():
    batches = Batches(Numbered([5] * 20), 10, 0)
    for epoch in range(3):
        assert sorted(chain(*numbers(batches.epoch(epoch)))) == list(range(100))
    assert sorted(batches.episodes.reads) == list(range(20))
    assert not threads()


def test_batches_are_new_arrays():
    batches = Batches(Numbered([5] * 20), 10, 0, 25 * STEP_BYTES)
    kept = list(batches.epoch(0))
    wanted = numbers(kept)
    for obs, actions in batches.epoch(0):
        obs[:], actions[:] = 1, 1
    assert numbers(kept) == wanted == numbers(batches.epoch(0))


def test_concurrent_epochs_are_independent():
    batches = Batches(Numbered([5] * 20), 10, 0, 25 * STEP_BYTES)
    wanted = numbers(batches.epoch(0)), numbers(batches.epoch(1))
    pairs = list(zip(batches.epoch(0), batches.epoch(1), strict=True))
    assert tuple(numbers(epoch) for epoch in zip(*pairs, strict=True)) == wanted


def test_resuming_late_reads_the_last_window_only():
    batches = Batches(Numbered([5] * 20), 5, 0, 10 * STEP_BYTES)
    assert len(numbers(batches.epoch(0, first=18))) == 2
    assert len(batches.episodes.reads) == 2


def test_two_windows_at_most_are_in_memory():
    batches = Batches(Numbered([5] * 20), 5, 0, 10 * STEP_BYTES)
    for done, _ in enumerate(batches.epoch(0), start=1):
        time.sleep(0.002)
        assert len(batches.episodes.reads) <= 2 * (-(-done // 2) + 1)  # the window in use and the next


def test_windows_are_a_sixteenth_of_data_that_do_not_fit_in_one():
    lengths = np.random.default_rng(0).integers(1, 9, 4000)
    num_steps = int(lengths.sum())
    batches = Batches(Numbered(lengths.tolist()), 256, 0, (num_steps - 1) * STEP_BYTES)
    assert batches.window_steps == num_steps // 16
    sizes = [lengths[ids].sum() for ids in batches._members(0)]
    assert len(sizes) == 17  # and a small one, since episodes stay whole
    assert max(sizes) <= num_steps // 16


@pytest.mark.parametrize(("room", "wanted"), [(900, 640), (500, 500)])
def test_windows_have_room_for_64_episodes_if_the_limit_allows_it(room, wanted):
    assert Batches(Numbered([10] * 100), 256, 0, room * STEP_BYTES).window_steps == wanted


def test_an_epoch_takes_little_new_memory_beside_the_data():
    """New memory makes a first epoch slow."""
    wide = Layout(LAYOUT.graph, [Term.node("arm_pos", "arm", 500)], LAYOUT.actions)
    zeros = Steps(np.zeros((5, 500), np.float32), np.zeros((5, 1), np.float32))

    class Wide(Episodes):
        def read(self, index):
            return zeros

    num_bytes = 4 * 501 * 5 * 2000
    batches = Batches(Wide(wide, [EpisodeInfo(5)] * 2000), 10, 0, num_bytes // 2)
    tracemalloc.start()
    try:
        for _ in batches.epoch(0):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert num_bytes / 10 < peak < num_bytes / 6  # two sixteenths, and some overhead


def test_within_a_window_episodes_are_read_in_their_order_on_disk():
    batches = Batches(Numbered([5] * 20), 5, 0, 50 * STEP_BYTES)
    numbers(batches.epoch(0))
    reads = batches.episodes.reads
    assert reads[:10] == sorted(reads[:10])
    assert reads[10:] == sorted(reads[10:])
    assert reads != sorted(reads)


# -- the thread --------------------------------------------------------------------------------------------------------


def slow(seconds):
    episodes = Numbered([5] * 40)
    quick = episodes.read

    def read(index):
        time.sleep(seconds)
        return quick(index)

    episodes.read = read
    return Batches(episodes, 5, 0, 50 * STEP_BYTES)


def test_reading_goes_on_while_a_window_is_used():
    batches = slow(0.001)
    epoch = batches.epoch(0)
    next(epoch)
    deadline = time.monotonic() + 20
    while len(batches.episodes.reads) < 20 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert len(batches.episodes.reads) == 20
    epoch.close()


@pytest.mark.parametrize("end", ["close", "interrupt", "forget"])
def test_an_abandoned_epoch_stops_its_thread_soon(end):
    batches = slow(0.02)
    epoch = batches.epoch(0)
    next(epoch)
    assert threads()
    before = len(batches.episodes.reads)
    if end == "close":
        epoch.close()
    elif end == "interrupt":
        with pytest.raises(KeyboardInterrupt):
            epoch.throw(KeyboardInterrupt)
    else:
        del epoch
    assert not threads()
    assert len(batches.episodes.reads) <= before + 3  # not the window's ten


@pytest.mark.parametrize("window_steps", [10, 1000])
def test_an_error_while_reading_reaches_the_caller(window_steps):
    episodes = Numbered([5] * 20)
    episodes.fail_at = 7
    with pytest.raises(ValueError, match=r"clips/CMU_009_12\.hdf5: cut off"):
        list(Batches(episodes, 5, 0, window_steps * STEP_BYTES).epoch(0))
    assert not threads()


def test_an_episode_whose_length_differs_from_its_info_is_an_error():
    episodes = Numbered([5] * 20)
    episodes.starts[-1] += 1
    with pytest.raises(ValueError, match="episode 19 should have 5 steps; it has 6 observations and 6 actions"):
        list(Batches(episodes, 5, 0).epoch(0))


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_ranks": 3}, "batch_size must be a multiple of the number of processes; got 10 and 3"),
        ({"window_bytes": 4 * STEP_BYTES}, "episode 0 has 5 steps, but a window holds only 4: raise window_bytes"),
        ({"episodes": Numbered([])}, "the demonstrations have no steps"),
    ],
)
def test_invalid_arguments_are_an_error_at_once(options, message):
    with pytest.raises(ValueError, match=message):
        Batches(**{"episodes": Numbered([5] * 20), "batch_size": 10, "seed": 0} | options)
