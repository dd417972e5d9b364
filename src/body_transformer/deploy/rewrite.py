"""A policy's forward as a graph that a robot's computer runs in few operations.

A robot calls the policy 50 times a second with cold caches, and each operation costs more than its arithmetic. The
graph of the policy's own forward is captured by `torch.export`, and passes make it shorter without changing the
function that it computes. Constants, the nodes that read a buffer or a parameter (`get_attr`), are computed once, in
double precision.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache, partial
from itertools import count
from operator import attrgetter, is_not
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch._subclasses import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.fx.subgraph_rewriter import replace_pattern

from ..model.encoder import Encoder
from ..model.policy import Policy
from ..ops.encoder_stack.reference import FunctionalAttention

aten = torch.ops.aten
MAX_FOLDED_HEADS = 2
"""With more heads, the product of two projections has more entries than the projections, and takes longer."""
MAX_DENSE = 1 << 18
"""Largest number of entries of a mostly empty matrix that replaces a chain of cheaper operations."""
BATCH = 31
"""Batch size of the examples: a prime, so that it is not mistaken for another size."""

_SUMS = (aten.add.Tensor, aten.sub.Tensor)
_SHAPES = (aten.view.default, aten.reshape.default)
_AFFINE = {
    *(*_SUMS, aten.mul.Tensor, aten.div.Tensor, aten.linear.default, aten.matmul.default, aten.bmm.default),
    *(*_SHAPES, aten.flatten.using_ints, aten.unflatten.int, aten.transpose.int),
    *(aten.pad.default, aten.slice.Tensor, aten.index.Tensor, aten.index_select.default),
}
"""Operations that are affine in their first argument."""
_BY_TOKEN = {aten.linear.default, aten.layer_norm.default, aten.relu.default, aten.gelu.default, aten.add.Tensor}
"""Operations that treat every token alike."""


def rewritten(policy: Policy) -> fx.GraphModule:
    """Return [B, O] -> [B, A] in single precision with constant weights; the policy itself does not change."""
    exact = copy.deepcopy(policy).cpu().double().eval().requires_grad_(False)
    obs = torch.zeros(BATCH, policy.obs_dim, dtype=torch.float64)
    graph = capture(exact, obs)
    if isinstance(policy.encoder, Encoder) and policy.config.num_heads <= MAX_FOLDED_HEADS:
        for rule in attention_rules(policy.layout.graph.num_nodes, policy.config.embed_dim, policy.config.num_heads):
            replace_pattern(graph, *rule)
    fold_constants(graph)
    fold_first_product(graph, obs)
    fold_last_product(graph, obs)
    merge_rows(graph, obs)
    return without_unused(graph).float().eval()


def capture(module: nn.Module, x: Tensor, *constants: Tensor) -> fx.GraphModule:
    """Return `module(x, *constants)` as a graph of PyTorch's operations, for any size of the first axis of x."""
    batch = {0: torch.export.Dim("batch")}
    sizes = (batch, tuple(None for _ in constants)) if constants else (batch,)
    captured = torch.export.export(module, (x, *constants), dynamic_shapes=sizes).module(check_guards=False)
    captured.graph.set_codegen(fx.graph.CodeGen())  # plain arguments
    graph = fx.GraphModule(captured, captured.graph)
    for node in graph.graph.nodes:
        if node.target in _SHAPES:  # the batch size follows from the others
            node.args = (node.args[0], [-1 if isinstance(size, fx.Node) else size for size in node.args[1]])
        elif node.target == aten.to.dtype:
            node.replace_all_uses_with(node.args[0])
        elif node.op == "output":
            (node.args,) = node.args
    for node in reversed(list(graph.graph.nodes)):
        if node.op == "call_function" and not node.users:  # sizes and checks of the input
            graph.graph.erase_node(node)
    return without_unused(graph)


def without_unused(graph: fx.GraphModule) -> fx.GraphModule:
    """Return a copy without unused operations and constants."""
    graph.graph.eliminate_dead_code()
    graph.graph.lint()
    return fx.GraphModule(graph, graph.graph)


def fold_constants(graph: fx.GraphModule) -> None:
    """Compute every operation whose inputs are all constant."""
    values = _constants(graph)
    for node in list(graph.graph.nodes):
        if node.op != "call_function" or not all(part in values for part in node.all_input_nodes):
            continue
        value = values[node] = _run(node, values)
        if isinstance(value, Tensor):  # `unbind` returns a list
            with graph.graph.inserting_before(node):
                constant = _constant(graph, value)
            values[constant] = value
            node.replace_all_uses_with(constant)
    graph.graph.eliminate_dead_code()


def fold_first_product(graph: fx.GraphModule, obs: Tensor) -> None:
    """Merge the affine operations from the observation to the tokens into one product.

    The subtraction of the mean stays: with a large mean and a small deviation, the product would cancel digits.
    """
    (start,) = graph.graph.find_nodes(op="placeholder")
    chain: list[fx.Node] = []
    node = start
    while len(node.users) == 1:
        (node,) = node.users
        if node.target == aten.clamp.default or (node.target in _SUMS and not chain):
            start, chain = node, []
        elif _is_affine(node):
            chain.append(node)
        else:
            break
    _fold_chain(graph, start, chain, obs)


def fold_last_product(graph: fx.GraphModule, obs: Tensor) -> None:
    """Merge the affine operations after the last non-linear one into one product."""
    (end,) = graph.graph.find_nodes(op="output")
    node = end.args[0]
    if node.target == aten.tanh.default:
        node = node.args[0]
    chain: list[fx.Node] = []
    while _is_affine(node) and len(node.users) == 1:
        chain.insert(0, node)
        node = node.args[0]
    _fold_chain(graph, node, chain, obs)


def _is_affine(node: fx.Node) -> bool:
    """Return whether a node is affine in its first argument, and the others are constant."""
    return node.target in _AFFINE and [part for part in node.args if _is_variable(part)] == [node.args[0]]


def _fold_chain(graph: fx.GraphModule, start: fx.Node, chain: list[fx.Node], obs: Tensor) -> None:
    """Replace a chain of affine operations by one product, unless its matrix would be too large."""
    if not chain:
        return
    _find_shapes(graph, obs)
    shape, out_shape = (_shape(node)[1:] for node in (start, chain[-1]))
    values = _constants(graph)
    matrices = [values[part] for node in chain for part in node.all_input_nodes if part in values]
    before = sum(value.numel() for value in matrices if value.ndim > 1)
    if shape.numel() * out_shape.numel() > max(MAX_DENSE, before):
        return
    values[start] = torch.eye(1 + shape.numel(), dtype=torch.float64)[:, 1:].reshape(-1, *shape)  # 0 and unit vectors
    for node in chain:
        values[node] = _run(node, values)
    bias, *rows = values[chain[-1]].flatten(1)
    weight = torch.stack(rows, 1) - bias[:, None]
    end, nodes = chain[-1], graph.graph
    with nodes.inserting_before(end):
        flat = start if len(shape) == 1 else nodes.call_function(aten.reshape.default, (start, [-1, shape.numel()]))
        out = nodes.call_function(aten.linear.default, (flat, _constant(graph, weight), _constant(graph, bias)))
        if len(out_shape) > 1:
            out = nodes.call_function(aten.reshape.default, (out, [-1, *out_shape]))
    end.replace_all_uses_with(out)
    nodes.eliminate_dead_code()


# -- tokens as rows ----------------------------------------------------------------------------------------------------


def merge_rows(graph: fx.GraphModule, obs: Tensor) -> None:
    """Apply operations that treat every token alike to rows, [B N, E]: one product each, instead of one per sample."""
    nodes = graph.graph
    _find_shapes(graph, obs)
    merged: set[fx.Node] = set()
    for node in list(nodes.nodes):
        inputs = list(filter(_is_variable, node.all_input_nodes))
        if node.target in _SHAPES:
            node.replace_input_with(inputs[0], _before_reshapes(inputs[0]))
        is_whole = node.target != aten.add.Tensor or len(inputs) == 2
        if node.target not in _BY_TOKEN or not is_whole or any(len(_shape(part)) != 3 for part in inputs):
            continue
        for part in inputs:
            rows, width = _before_reshapes(part), _shape(part)[-1]
            if rows not in merged or _shape(rows)[-1] != width:
                with nodes.inserting_before(node):
                    rows = nodes.call_function(aten.reshape.default, (rows, [-1, width]))
            node.replace_input_with(part, rows)
        with nodes.inserting_after(node):
            tokens = nodes.call_function(aten.reshape.default, (node, [-1, *_shape(node)[1:]]))
        tokens.meta = dict(node.meta)
        node.replace_all_uses_with(tokens, delete_user_cb=partial(is_not, tokens))
        merged.add(node)
    nodes.eliminate_dead_code()


def _before_reshapes(node: fx.Node) -> fx.Node:
    while node.target in _SHAPES:
        (node,) = node.all_input_nodes
    return node


# -- attention ---------------------------------------------------------------------------------------------------------


@cache
def attention_rules(num_nodes: int, embed_dim: int, num_heads: int) -> list[tuple[fx.GraphModule, fx.GraphModule]]:
    """Return the graph of the specification's attention and of its replacement: plain, with a mask, with a bias."""
    x = (BATCH, num_nodes, embed_dim)
    sizes = [(3 * embed_dim, embed_dim), (3 * embed_dim,), (embed_dim, embed_dim), (embed_dim,)]
    inputs = [torch.zeros(size, dtype=torch.float64) for size in (x, *sizes)]
    pairs = torch.zeros(num_nodes, num_nodes)
    before, after = (_Module(partial(function, num_heads)) for function in (attention, folded_attention))
    return [
        (capture(before, *inputs, *last), capture(after, *inputs, *last))
        for last in ([], [pairs.bool()], [pairs.double()])
    ]


def attention(num_heads: int, x: Tensor, *parameters: Tensor) -> Tensor:
    """[B, N, E] -> [B, N, E], as the specification computes it; a last parameter [N, N] is the mask or the bias."""
    layer = FunctionalAttention(parameters[:4], num_heads)
    mask_or_bias = parameters[4] if len(parameters) > 4 else None
    if mask_or_bias is not None and mask_or_bias.dtype == torch.bool:
        return layer.forward(x, mask_or_bias, None)
    return layer.forward(x, None, mask_or_bias)


def folded_attention(num_heads: int, x: Tensor, *parameters: Tensor) -> Tensor:
    """Compute the same without keys and values: a head compares queries with tokens, and averages tokens.

    q_i k_j = (x_i Wq' + bq) Wk x_j + …; the rest is equal for every j, and the softmax ignores it. The softmax sums to
    one, so the values' bias goes through unchanged. Nothing has to be transposed. A mask becomes a sum with 0 or -inf.
    """
    in_weight, in_bias, out_weight, out_bias, *mask_or_bias = parameters
    _, num_nodes, embed_dim = x.shape
    size = embed_dim // num_heads
    wq, wk, wv = in_weight.view(3, num_heads, size, embed_dim).unbind(0)
    bq, _, bv = in_bias.view(3, num_heads, size).unbind(0)
    wq, bq = wq * size**-0.5, bq * size**-0.5
    wo = out_weight.view(embed_dim, num_heads, size)
    query_weight = torch.einsum("hde,hdf->hfe", wq, wk).flatten(0, 1)  # [H E, E]
    query_bias = torch.einsum("hd,hdf->hf", bq, wk).flatten()
    value_weight = torch.einsum("ohd,hde->ohe", wo, wv).flatten(1)  # [E, H E]
    value_bias = out_bias + torch.einsum("ohd,hd->o", wo, bv)

    queries = F.linear(x, query_weight, query_bias).reshape(-1, num_nodes * num_heads, embed_dim)
    scores = queries @ x.transpose(1, 2)  # [B, N H, N]
    for added in mask_or_bias:
        if added.dtype == torch.bool:
            added = torch.zeros_like(added, dtype=x.dtype).masked_fill(~added, -torch.inf)
        scores = scores + added.repeat_interleave(num_heads, 0)
    heads = torch.softmax(scores, -1) @ x  # [B, N H, E]
    return F.linear(heads.reshape(-1, num_nodes, num_heads * embed_dim), value_weight, value_bias)


class _Module(nn.Module):
    """A function, for `torch.export`."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, *constants: Tensor) -> Tensor:
        return self.function(x, *constants)


# -- nodes -------------------------------------------------------------------------------------------------------------


def _constants(graph: fx.GraphModule) -> dict[fx.Node, Any]:
    """Return the values of all constants."""
    return {node: attrgetter(str(node.target))(graph) for node in graph.graph.find_nodes(op="get_attr")}


def _constant(graph: fx.GraphModule, value: Tensor) -> fx.Node:
    """Store a value, and return the node that reads it."""
    name = next(name for name in map("constant_{}".format, count()) if not hasattr(graph, name))
    graph.register_buffer(name, value)
    return graph.graph.get_attr(name)


def _is_variable(part: Any) -> bool:
    return isinstance(part, fx.Node) and part.op != "get_attr"


def _run(node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    """Return the value of an operation, given those of its inputs."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def _find_shapes(graph: fx.GraphModule, obs: Tensor) -> None:
    """Record the output shape of every operation for observations like `obs`, without computing it."""
    FakeTensorProp(graph, FakeTensorMode(allow_non_fake_inputs=True)).propagate(obs)


def _shape(node: fx.Node) -> torch.Size:
    shape: torch.Size = node.meta["val"].shape
    return shape
