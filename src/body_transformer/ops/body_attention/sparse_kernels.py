# mypy: ignore-errors
"""Triton kernels for nodes with few neighbours ("light").

A program handles BLOCK nodes for several (sample, head) pairs, one pair after the other, and reads the neighbour lists
of its nodes only once. It loops over SLOTS neighbours with all BLOCK nodes in parallel; a slot past the end of a node's
list is masked. Nodes with many neighbours have their own kernels in `sparse_heavy_kernels.py`. All arithmetic is
float32.
"""

import triton
import triton.language as tl

from .sparse_rows import base2_scores, finite_shift, first_entry, load_rows, pack, store_rows, unpack


@triton.jit(do_not_specialize=["num_samples", "samples_each"])  # the batch changes often
def forward_light(
    q, k, v, bias, out, q_strides, k_strides, v_strides, out_strides,
    nodes, start, other, num_light, num_samples, samples_each, num_nodes, heads, scale,
    D: tl.constexpr, DP: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the attention: one loop over the keys for the scores, one over the values."""
    node, exists, first, count = _light_nodes(nodes, start, num_light, BLOCK)
    neighbours = _entries(other, first, count, SLOTS)
    first_sample, head, num_pairs = _pairs(num_light, num_samples, samples_each, heads, BLOCK)
    for step in range(num_pairs):
        pair = (first_sample + step, head)
        q_rows = load_rows(q, q_strides, pair, node, None, D, DP)
        scores = ()
        for slot in tl.static_range(SLOTS):
            k_rows = load_rows(k, k_strides, pair, neighbours[slot], slot < count, D, DP)
            scores += (base2_scores(q_rows, k_rows, bias, node, neighbours[slot], slot < count, num_nodes, scale),)
        shift = finite_shift(_highest(scores, SLOTS))
        total = tl.zeros([BLOCK], tl.float32)
        attended = tl.zeros([BLOCK, DP], tl.float32)
        for slot in tl.static_range(SLOTS):
            weight = tl.exp2(scores[slot] - shift)
            total += weight
            v_rows = load_rows(v, v_strides, pair, neighbours[slot], slot < count, D, DP)
            attended += weight[:, None] * v_rows
        store_rows(out, out_strides, attended * (1 / total)[:, None], pair, node, exists, D, DP)


@triton.jit(do_not_specialize=["num_samples", "samples_each"])  # the batch changes often
def backward_rows_light(
    q, k, v, bias, grad_out, dq, between, q_strides, k_strides, v_strides, grad_out_strides, dq_strides,
    nodes, start, other, num_light, num_samples, samples_each, num_nodes, num_ones, heads, scale,
    D: tl.constexpr, DP: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute dq, and for each one of the mask its probability and its score gradient, packed."""
    node, exists, first, count = _light_nodes(nodes, start, num_light, BLOCK)
    neighbours = _entries(other, first, count, SLOTS)
    SLOTS_PADDED: tl.constexpr = triton.next_power_of_2(SLOTS)
    slots = tl.arange(0, SLOTS_PADDED)[None, :]
    first_sample, head, num_pairs = _pairs(num_light, num_samples, samples_each, heads, BLOCK)
    for step in range(num_pairs):
        pair = (first_sample + step, head)
        q_rows = load_rows(q, q_strides, pair, node, None, D, DP)
        do_rows = load_rows(grad_out, grad_out_strides, pair, node, None, D, DP)
        scores, dps = (), ()
        for slot in tl.static_range(SLOTS):
            k_rows = load_rows(k, k_strides, pair, neighbours[slot], slot < count, D, DP)
            scores += (base2_scores(q_rows, k_rows, bias, node, neighbours[slot], slot < count, num_nodes, scale),)
            v_rows = load_rows(v, v_strides, pair, neighbours[slot], slot < count, D, DP)
            dps += (tl.sum(do_rows * v_rows, axis=1),)
        shift = finite_shift(_highest(scores, SLOTS))
        total = tl.zeros([BLOCK], tl.float32)
        mean = tl.zeros([BLOCK], tl.float32)
        weights = ()
        for slot in tl.static_range(SLOTS):
            weights += (tl.exp2(scores[slot] - shift),)
            total += weights[slot]
            mean += weights[slot] * dps[slot]
        mean = mean * (1 / total)
        keep = tl.zeros([BLOCK, SLOTS_PADDED], tl.int64)
        dq_rows = tl.zeros([BLOCK, DP], tl.float32)
        for slot in tl.static_range(SLOTS):
            weight = weights[slot] * (1 / total)
            dscore = weight * (dps[slot] - mean)
            keep = tl.where(slots == slot, pack(weight, dscore)[:, None], keep)
            k_rows = load_rows(k, k_strides, pair, neighbours[slot], slot < count, D, DP)
            dq_rows += dscore[:, None] * k_rows
        entry = between + first_entry(pair, heads, num_ones) + first[:, None] + slots
        tl.store(entry, keep, mask=exists[:, None] & (slots < count[:, None]))
        store_rows(dq, dq_strides, dq_rows * scale, pair, node, exists, D, DP)


@triton.jit(do_not_specialize=["num_samples", "samples_each"])  # the batch changes often
def backward_columns_light(
    q, grad_out, between, dk, dv, q_strides, grad_out_strides, dk_strides, dv_strides,
    nodes, start, other, position, num_light, num_samples, samples_each, num_ones, heads, scale,
    D: tl.constexpr, DP: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute dk and dv of a node from all nodes that attend to it."""
    node, exists, first, count = _light_nodes(nodes, start, num_light, BLOCK)
    attenders = _entries(other, first, count, SLOTS)
    positions = _entries(position, first, count, SLOTS)
    first_sample, head, num_pairs = _pairs(num_light, num_samples, samples_each, heads, BLOCK)
    for step in range(num_pairs):
        pair = (first_sample + step, head)
        dk_rows = tl.zeros([BLOCK, DP], tl.float32)
        dv_rows = tl.zeros([BLOCK, DP], tl.float32)
        for slot in tl.static_range(SLOTS):
            here = slot < count
            entry = between + first_entry(pair, heads, num_ones) + positions[slot]
            weight, dscore = unpack(tl.load(entry, mask=here, other=0))
            do_rows = load_rows(grad_out, grad_out_strides, pair, attenders[slot], here, D, DP)
            dv_rows += weight[:, None] * do_rows
            q_rows = load_rows(q, q_strides, pair, attenders[slot], here, D, DP)
            dk_rows += dscore[:, None] * q_rows
        store_rows(dk, dk_strides, dk_rows * scale, pair, node, exists, D, DP)
        store_rows(dv, dv_strides, dv_rows, pair, node, exists, D, DP)


@triton.jit
def _light_nodes(nodes, start, num_light, BLOCK: tl.constexpr):
    """Return the program's nodes, which of them exist, where their entries start and their number of entries.

    Places past the last node repeat it, and are never stored.
    """
    place = tl.program_id(0) % tl.cdiv(num_light, BLOCK) * BLOCK + tl.arange(0, BLOCK)
    node = tl.load(nodes + tl.minimum(place, num_light - 1))
    first = tl.load(start + node)
    return node, place < num_light, first, tl.load(start + node + 1) - first


@triton.jit
def _pairs(num_light, num_samples, samples_each, heads, BLOCK: tl.constexpr):
    """Return the program's first sample, its head, and its number of samples."""
    place = tl.program_id(0) // tl.cdiv(num_light, BLOCK)
    first = place // heads * samples_each
    return first, place % heads, tl.minimum(samples_each, num_samples - first)


@triton.jit
def _entries(entries, first, count, SLOTS: tl.constexpr):
    """Load the entry of each slot; slots past a node's last entry repeat it."""
    found = ()
    for slot in tl.static_range(SLOTS):
        found += (tl.load(entries + first + tl.minimum(slot, count - 1)),)
    return found


@triton.jit
def _highest(scores, SLOTS: tl.constexpr):
    highest = scores[0]
    for slot in tl.static_range(1, SLOTS):
        highest = tl.maximum(highest, scores[slot])
    return highest
