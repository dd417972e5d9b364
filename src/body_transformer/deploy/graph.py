"""Graphs of PyTorch operations, captured by `torch.export`, and passes that make them shorter.

Every pass preserves the function that the graph computes. Constants are nodes that read a buffer or a parameter
(`get_attr`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import count
from operator import attrgetter, is_not
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

aten = torch.ops.aten
MAX_DENSE = 1 << 18
"""Largest number of entries of a mostly empty matrix that replaces a chain of cheaper operations."""
PROBE = 64
"""Unit vectors per evaluation of an affine chain."""
BATCH = 31
"""Batch size of the examples: a prime, so that it is not mistaken for another size."""

_SUMS = (aten.add.Tensor, aten.sub.Tensor)
_SHAPES = (aten.view.default, aten.reshape.default)
_AFFINE = {
    *(*_SUMS, aten.mul.Tensor, aten.div.Tensor, aten.linear.default, aten.matmul.default, aten.bmm.default),
    *(*_SHAPES, aten.flatten.using_ints, aten.unflatten.int, aten.transpose.int),
    *(aten.pad.default, aten.slice.Tensor, aten.index.Tensor, aten.index_select.default),
}
"""Operations that are affine in one input while the others are constant."""
_BOUNDS = (aten.clamp.default,)
_SQUASHES = (aten.tanh.default,)
_BY_TOKEN = {aten.linear.default, aten.layer_norm.default, aten.relu.default, aten.gelu.default, aten.add.Tensor}
"""Operations that treat every token alike."""


def capture(module: nn.Module, x: Tensor, *constants: Tensor) -> fx.GraphModule:
    """Return `module(x, *constants)` as a graph of PyTorch's operations, for any size of the first axis of x."""
    batch = {0: torch.export.Dim("batch")}
    sizes = (batch, tuple(None for _ in constants)) if constants else (batch,)
    program = torch.export.export(module, (x, *constants), dynamic_shapes=sizes)
    captured = program.module(check_guards=False)
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
    lists: dict[fx.Node, Any] = {}  # values that are not tensors, such as those of `unbind`
    for node in list(graph.graph.nodes):
        if node.op != "call_function" or not all(_is_constant(part) or part in lists for part in node.all_input_nodes):
            continue
        value = _run(graph, [node], lists)
        if isinstance(value, Tensor):
            with graph.graph.inserting_before(node):
                node.replace_all_uses_with(_constant(graph, value))
        else:
            lists[node] = value
    graph.graph.eliminate_dead_code()


def masks_as_sums(graph: fx.GraphModule) -> None:
    """Replace `x.masked_fill(mask, -inf)` with a constant mask by the addition of 0 or -inf."""
    for node in graph.graph.find_nodes(op="call_function", target=aten.masked_fill.Scalar):
        x, mask, value = node.args
        if not _is_constant(mask) or value != -torch.inf:
            continue
        with graph.graph.inserting_before(node):
            blocked = torch.zeros(_value(graph, mask).shape, dtype=torch.float64).masked_fill(
                _value(graph, mask), value
            )
            total = graph.graph.call_function(aten.add.Tensor, (x, _constant(graph, blocked)))
        node.replace_all_uses_with(total)
    graph.graph.eliminate_dead_code()


# -- the first and the last product ------------------------------------------------------------------------------------


def fold_first_product(graph: fx.GraphModule, obs: Tensor) -> None:
    """Merge the affine operations from the observation to the tokens into one product.

    The subtraction of the mean stays: with a large mean and a small deviation, the product would cancel digits.
    """
    (start,) = graph.graph.find_nodes(op="placeholder")
    chain: list[fx.Node] = []
    node = start
    while len(node.users) == 1:
        (node,) = node.users
        if node.target in _BOUNDS:
            start, chain = node, []
        elif _is_affine(node):
            chain.append(node)
        else:
            break
    while chain and chain[0].target in _SUMS:
        start = chain.pop(0)
    _fold_chain(graph, start, chain, obs)


def fold_last_product(graph: fx.GraphModule, obs: Tensor) -> None:
    """Merge the affine operations after the last non-linear one into one product."""
    (end,) = graph.graph.find_nodes(op="output")
    node = end.args[0]
    while node.target in _SQUASHES:
        node = node.args[0]
    chain: list[fx.Node] = []
    while _is_affine(node) and len(node.users) == 1:
        chain.insert(0, node)
        (node,) = _variable_inputs(node)
    _fold_chain(graph, node, chain, obs)


def _fold_chain(graph: fx.GraphModule, start: fx.Node, chain: list[fx.Node], obs: Tensor) -> None:
    """Replace a chain of affine operations by one product, unless its matrix would be too large."""
    if not chain:
        return
    _find_shapes(graph, obs)
    shape, out_shape = (_shape(node)[1:] for node in (start, chain[-1]))
    constants = [_value(graph, part) for node in chain for part in node.all_input_nodes if _is_constant(part)]
    before = sum(value.numel() for value in constants if value.ndim > 1)
    if shape.numel() * out_shape.numel() > max(MAX_DENSE, before):
        return
    bias = _run(graph, chain, {start: torch.zeros(1, *shape, dtype=torch.float64)}).flatten()
    unit = torch.eye(shape.numel(), dtype=torch.float64).view(-1, *shape)
    columns = [_run(graph, chain, {start: unit[k : k + PROBE]}).flatten(1) - bias for k in range(0, len(unit), PROBE)]
    end, nodes = chain[-1], graph.graph
    with nodes.inserting_before(end):
        flat = start if len(shape) == 1 else nodes.call_function(aten.reshape.default, (start, [-1, shape.numel()]))
        weight = _constant(graph, torch.cat(columns).T.contiguous())
        out = nodes.call_function(aten.linear.default, (flat, weight, _constant(graph, bias)))
        if len(out_shape) > 1:
            out = nodes.call_function(aten.reshape.default, (out, [-1, *out_shape]))
    end.replace_all_uses_with(out)
    nodes.eliminate_dead_code()


def _is_affine(node: fx.Node) -> bool:
    """Return whether a node is affine in its only input that is not constant."""
    variable = _variable_inputs(node)
    if node.target not in _AFFINE or len(variable) != 1:
        return False
    return node.args.count(variable[0]) == 1 and not (node.target == aten.div.Tensor and node.args[1] is variable[0])


# -- tokens as rows ----------------------------------------------------------------------------------------------------


def merge_rows(graph: fx.GraphModule, obs: Tensor) -> None:
    """Apply operations that treat every token alike to rows, [B N, E]: one product each, instead of one per sample."""
    nodes = graph.graph
    _find_shapes(graph, obs)
    for node in list(nodes.nodes):
        variable = _variable_inputs(node)
        whole = node.target != aten.add.Tensor or len(variable) == 2
        if node.target not in _BY_TOKEN or not whole or any(len(_shape(part)) != 3 for part in variable):
            continue
        with nodes.inserting_before(node):
            rows = [nodes.call_function(aten.reshape.default, (part, [-1, _shape(part)[-1]])) for part in variable]
        with nodes.inserting_after(node):
            tokens = nodes.call_function(aten.reshape.default, (node, [-1, *_shape(node)[1:]]))
        tokens.meta = dict(node.meta)
        node.replace_all_uses_with(tokens, delete_user_cb=partial(is_not, tokens))
        for part, as_rows in zip(variable, rows, strict=True):
            node.replace_input_with(part, as_rows)
    _merge_reshapes(graph, obs)


def _merge_reshapes(graph: fx.GraphModule, obs: Tensor) -> None:
    """Merge successive reshapes, and remove those that change nothing."""
    _find_shapes(graph, obs)
    for node in graph.graph.nodes:
        if node.target in _SHAPES:
            source = node.args[0]
            while source.target in _SHAPES:
                source = source.args[0]
            node.args = (source, node.args[1])
            if _shape(source) == _shape(node):
                node.replace_all_uses_with(source)
    graph.graph.eliminate_dead_code()


# -- nodes -------------------------------------------------------------------------------------------------------------


def _run(graph: fx.GraphModule, chain: Iterable[fx.Node], known: dict[fx.Node, Any]) -> Any:
    """Return the value of the chain's last node, given the values of nodes that are not constant."""
    values = dict(known)
    out = None
    for node in chain:
        args, kwargs = fx.map_arg(
            (node.args, node.kwargs), lambda part: values[part] if part in values else _value(graph, part)
        )
        assert callable(node.target)
        out = values[node] = node.target(*args, **kwargs)
    return out


def _constant(graph: fx.GraphModule, value: Tensor) -> fx.Node:
    """Store a value, and return the node that reads it."""
    name = next(name for name in map("constant_{}".format, count()) if not hasattr(graph, name))
    graph.register_buffer(name, value)
    return graph.graph.get_attr(name)


def _value(graph: fx.GraphModule, node: fx.Node) -> Tensor:
    value: Tensor = attrgetter(str(node.target))(graph)
    return value


def _is_constant(node: fx.Node) -> bool:
    return node.op == "get_attr"


def _variable_inputs(node: fx.Node) -> list[fx.Node]:
    return [part for part in node.all_input_nodes if not _is_constant(part)]


def _find_shapes(graph: fx.GraphModule, obs: Tensor) -> None:
    """Record the output shape of every operation for observations like `obs`, without computing it."""
    FakeTensorProp(graph, FakeTensorMode(allow_non_fake_inputs=True)).propagate(obs)


def _shape(node: fx.Node) -> torch.Size:
    shape: torch.Size = node.meta["val"].shape
    return shape
