"""Facts about masks, and how long they are cached."""

import gc

import pytest
import torch

from body_transformer.ops.body_attention import body_attention, mask_facts
from body_transformer.ops.body_attention.neighbour_lists import build_buckets, build_lists

from .attention_cases import MASKS, asymmetric, errors, exact, make_problem, outcome, tree

# -- cached facts ------------------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch) -> list[str]:
    """Record the computations on masks in order: "facts" or "lists"."""
    made: list[str] = []
    for name, word in (("_read", "facts"), ("build_lists", "lists")):
        original = getattr(mask_facts, name)

        def counted(*args, original=original, word=word):
            made.append(word)
            return original(*args)

        monkeypatch.setattr(mask_facts, name, counted)
    return made


def test_a_mask_is_read_once_for_all_calls_forward_and_backward(reads):
    problem = make_problem((1, 1, 6, 8), asymmetric(6))
    for _ in range(3):
        outcome(body_attention, problem, backend="neighbours")
    assert reads == ["facts", "lists"]


def test_lists_are_built_only_for_backends_that_need_them(reads):
    problem = make_problem((1, 1, 6, 8), asymmetric(6))
    outcome(body_attention, problem, backend="reference")
    assert reads == ["facts"]


@pytest.mark.parametrize("backend", ["neighbours", "triton"])
def test_a_mask_that_was_changed_in_place_is_read_again(device, backend):
    problem = make_problem((1, 1, 6, 8), tree(6), device=device)
    outcome(body_attention, problem, backend=backend)
    problem.mask[0, 5] = ~problem.mask[0, 5]
    problem.mask[3, :3] = False
    assert max(errors(outcome(body_attention, problem, backend=backend), exact(problem))) < 1e-5


def test_a_mask_with_new_memory_is_read_again():
    problem = make_problem((1, 1, 6, 8), tree(6))
    outcome(body_attention, problem, backend="neighbours")
    problem.mask.data = asymmetric(6)
    assert max(errors(outcome(body_attention, problem, backend="neighbours"), exact(problem))) < 1e-5


def test_a_self_loop_that_is_removed_later_is_noticed():
    problem = make_problem((1, 1, 6, 8), tree(6))
    outcome(body_attention, problem)
    problem.mask[2, 2] = False
    with pytest.raises(ValueError, match=r"mask\[2, 2\] is False"):
        outcome(body_attention, problem)


def test_masks_at_the_same_address_are_not_confused_and_freed_ones_are_dropped():
    gc.collect()
    before = len(mask_facts._known)
    addresses, memory = set(), asymmetric(6, 0).numpy()
    for seed in range(20):
        memory[...] = asymmetric(6, seed).numpy()
        problem = make_problem((1, 1, 6, 8), torch.from_numpy(memory))
        addresses.add(problem.mask.data_ptr())
        assert max(errors(outcome(body_attention, problem, backend="neighbours"), exact(problem))) < 1e-5
        del problem
    gc.collect()
    assert addresses == {memory.ctypes.data}
    assert len(mask_facts._known) <= before  # masks of other tests may be freed meanwhile


def test_facts_of_masks_of_inference_mode_are_never_stale():
    with torch.inference_mode():
        problem = make_problem((1, 1, 6, 8), tree(6))
        given = (problem.q, problem.k, problem.v, problem.mask)
        body_attention(*given, backend="neighbours")
        problem.mask[0, 5] = True
        torch.testing.assert_close(
            body_attention(*given, backend="neighbours"), body_attention(*given, backend="reference")
        )


# -- neighbour lists ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MASKS)
def test_the_lists_hold_every_one_of_the_mask_once(kind):
    mask = MASKS[kind](40)
    lists = build_lists(mask)
    buckets = build_buckets(lists)
    for side, in_buckets, matrix in (
        (lists.rows, buckets.rows, mask),
        (lists.columns, buckets.columns, mask.T),
    ):
        assert sorted([*side.light.tolist(), *side.heavy.tolist()]) == list(range(40))
        for node in range(40):
            entries = slice(int(side.start[node]), int(side.start[node + 1]))
            assert side.other[entries].tolist() == matrix[node].nonzero().flatten().tolist()
            assert lists.flat[side.position[entries].long()].tolist() == [
                node * 40 + other if side is lists.rows else other * 40 + node for other in side.other[entries].tolist()
            ]
        assert sum(int(bucket.valid.sum()) for bucket in in_buckets) == lists.num_ones
        assert sum(bucket.valid.numel() for bucket in in_buckets) < 2 * lists.num_ones


@pytest.mark.parametrize(("kind", "slots", "num_heavy"), [("identity", 1, 0), ("star", 2, 1), ("all ones", 1, 40)])
def test_a_hub_does_not_add_slots_for_the_other_nodes(kind, slots, num_heavy):
    rows = build_lists(MASKS[kind](40)).rows
    assert (rows.slots, len(rows.heavy)) == (slots, num_heavy)


def test_the_order_of_nodes_keeps_neighbours_close():
    shuffled = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    mask = tree(200)[shuffled][:, shuffled]
    row, column = mask.nonzero().unbind(1)
    place = build_lists(mask).rows.light.long().argsort()
    assert (place[row] - place[column]).abs().float().mean() < (row - column).abs().float().mean() / 5
