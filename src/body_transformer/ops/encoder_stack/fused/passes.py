"""The forward and the backward pass: allocations and launches."""

import torch
from torch import Tensor

from ...assembler import sound_assembler
from ...dispatch import num_blocks
from ..hopper.sizes import supports as hopper_supports
from ..packing import OPERANDS, Call, allocate_factors, allocate_saved, as_bits, pack, views
from .backward_kernel import backward_kernel
from .forward_kernel import forward_kernel
from .gradient_kernels import feed_forward_gradient_kernel, weight_gradient_kernel
from .sizes import SAVED, SHARES, FusedSizes


@sound_assembler()
def forward(x: Tensor, parameters: list[Tensor], call: Call, save: bool) -> list[Tensor]:
    """Return the output [B, N, E] and, with `save`, the tensors for the backward pass.

    These are all parameters in float32, all parameters as operands, normalised values, and 1 / standard deviations.
    """
    sizes, precision = FusedSizes.of(x, parameters, call.num_heads), call.precision
    if hopper_supports(sizes, precision, x.device):
        from ..hopper import passes as hopper  # imports Gluon

        return hopper.forward(x, parameters, call, sizes, save)
    flat, operands = pack(parameters, precision)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    saved, rstd = allocate_saved(x if save else x[:0], sizes, SAVED[precision], with_input=False)
    kernel = "forward" if save else "inference"
    forward_kernel[(sizes.programs(kernel, precision, len(x)),)](
        x.contiguous(),
        *views(flat, operands, sizes),
        call.mask.contiguous(),
        out,
        saved,
        rstd,
        len(x),
        sizes.num_layers,
        as_bits(call.masked),
        sizes.scale,
        call.eps,
        SAVE=save,
        **sizes.constants(kernel, precision),
    )
    return [out, flat, operands, saved, rstd] if save else [out]


@sound_assembler()
def backward(grad_out: Tensor, kept: list[Tensor], x: Tensor, parameters: list[Tensor], call: Call) -> list[Tensor]:
    """Return the gradients of x [B, N, E] and of all parameters in one row [L * layer_numel]."""
    sizes, precision = FusedSizes.of(x, parameters, call.num_heads), call.precision
    if hopper_supports(sizes, precision, x.device):
        from ..hopper import passes as hopper

        return hopper.backward(grad_out, kept, call, sizes)
    flat, operands, saved, rstd = kept
    embed_dim = sizes.embed_dim
    programs = sizes.programs("backward", precision, len(x))
    norm_sums = flat.new_empty(programs, sizes.num_layers, 4 * embed_dim)
    grad, x = grad_out.contiguous(), x.contiguous()
    grad_x = torch.empty_like(grad)
    gradients = WeightGradients(x, flat, operands, saved, sizes, precision)
    turned = _transposed(operands, sizes)
    for first in reversed(range(0, sizes.num_layers, gradients.num_layers)):
        count = min(gradients.num_layers, sizes.num_layers - first)
        backward_kernel[(programs,)](
            grad,
            x,
            saved,
            rstd,
            *views(flat, operands, sizes),
            *turned,
            call.mask.contiguous(),
            grad_x,
            *gradients.factors,
            norm_sums,
            len(x),
            first,
            count,
            sizes.num_layers,
            as_bits(call.masked),
            sizes.scale,
            TURNED=turned[0] is not operands,
            **sizes.constants("backward", precision),
        )
        gradients.multiply(first, count)
        grad = grad_x
    grads, norms, at = gradients.total(), norm_sums.sum(0), sizes.starts
    grads[:, at["norm1"] : at["weight1"]] = norms[:, : 2 * embed_dim]
    grads[:, at["norm2"] :] = norms[:, 2 * embed_dim :]
    return [grad_x, grads.view(-1)]


def _transposed(operands: Tensor, sizes: FusedSizes) -> list[Tensor]:
    """Return the four matrices of every layer transposed, at their places in a row; bfloat16 needs no transpose."""
    if operands.dtype == torch.bfloat16:
        return [operands] * 4
    row = torch.empty_like(operands)
    parts = []
    for name in ("in_weight", "out_weight", "weight1", "weight2"):
        (rows, cols), start = sizes.shapes[name], sizes.starts[name]
        place = slice(start, start + rows * cols)
        matrices = operands.view(-1, sizes.layer_numel)[:, place].reshape(-1, rows, cols)
        row.view(-1, sizes.layer_numel)[:, place] = matrices.transpose(1, 2).flatten(1)
        parts.append(row[start:])
    return parts


class WeightGradients:
    """The gradients of the linear layers: sums over all rows of products of two factors.

    The backward kernel stores the factors of `num_layers` encoder layers at a time, as many as memory allows.
    """

    factors: list[Tensor]
    """[num_layers, B * N, width] each, as `allocate_factors` describes them."""

    def __init__(
        self, x: Tensor, flat: Tensor, operands: Tensor, saved: Tensor, sizes: FusedSizes, precision: str
    ) -> None:
        """Take x [B, N, E], all parameters in float32 and as operands, and the normalised values [2L, B * N, E]."""
        self.num_rows, embed = saved.shape[1], sizes.embed_dim
        self.x, self.flat, self.operands, self.saved = x.view(1, self.num_rows, embed), flat, operands, saved
        self.sizes, self.precision = sizes, precision
        self.factors = allocate_factors(operands, sizes, self.num_rows)
        self.num_layers = len(self.factors[0])
        # the number of sums depends on the sizes alone, so that results are repeatable
        shares = max(1, min(SHARES[precision], self.num_rows // 512))
        self.sums = flat.new_empty(shares, sizes.num_layers, sizes.layer_numel)

    def multiply(self, first: int, count: int) -> None:
        """Sum the factors of the `count` encoder layers from `first` on."""
        mixed, grad_qkv, grad_sum1, grad_sum2 = (factor[:count] for factor in self.factors)
        skip = int(first == 0)  # the first layer's input is not the output of a LayerNorm
        if skip:
            self._linear("in", grad_qkv[:1], self.x, 0, normed=False)
        if count > skip:
            inputs = self.saved[2 * (first + skip) - 1 :: 2]
            self._linear("in", grad_qkv[skip:], inputs, first + skip, normed=True)
        self._linear("out", grad_sum1, mixed, first, normed=False)
        self._feed_forward(grad_sum2, self.saved[2 * first :: 2], first)

    def total(self) -> Tensor:
        """Return the totals [L, layer]; the entries of the LayerNorms are uninitialised."""
        return self.sums.sum(0)

    def _linear(self, name: str, grad: Tensor, given: Tensor, first: int, normed: bool) -> None:
        """Sum the gradients of one linear layer in each encoder layer from `first` on.

        `normed`: `given` are normalised values of the preceding encoder layer's last LayerNorm, whose weight and bias
        the kernel applies.
        """
        count, _, outputs = grad.shape
        constants = self.sizes.product_constants(self.precision, outputs, given.shape[2])
        blocks = num_blocks(outputs, constants["BLOCK_A"]) * num_blocks(given.shape[2], constants["BLOCK_C"])
        weight_gradient_kernel[(len(self.sums), count, blocks)](
            grad,
            given,
            self.flat[self.sizes.starts["norm2"] :],
            *self._sums_from(f"{name}_weight", f"{name}_bias"),
            *self._size_arguments(grad, given, first, constants["ROWS"]),
            AFTER=normed,
            **constants,
        )

    def _feed_forward(self, grad: Tensor, between: Tensor, first: int) -> None:
        at = self.sizes.starts
        constants = self.sizes.feed_forward_constants(self.precision)
        blocks = num_blocks(self.sizes.ff_dim, constants["FC"])
        feed_forward_gradient_kernel[(len(self.sums), len(grad), blocks)](
            grad,
            between,
            self.flat[at["norm1"] :],
            self.operands[at["weight1"] :],
            self.flat[at["bias1"] :],
            self.operands[at["weight2"] :],
            *self._sums_from("weight1", "bias1", "weight2", "bias2"),
            *self._size_arguments(grad, between, first, constants["ROWS"]),
            **constants,
        )

    def _sums_from(self, *names: str) -> list[Tensor]:
        """Return a view of the sums per parameter, from its place in the first layer on."""
        return [self.sums.view(-1)[self.sizes.starts[name] :] for name in names]

    def _size_arguments(self, grad: Tensor, given: Tensor, first: int, block: int) -> list[int]:
        """Return the sizes that the kernels take.

        These are rows, rows per share (whole blocks), strides between layers, first layer, and number of layers.
        """
        each = num_blocks(self.num_rows, len(self.sums) * block) * block
        return [self.num_rows, each, grad.stride(0), given.stride(0), first, self.sizes.num_layers]


# -- for tracing: shapes without values --------------------------------------------------------------------------------


def fake_forward(x: Tensor, parameters: list[Tensor], num_heads: int, precision: str, save: bool) -> list[Tensor]:
    """Return empty tensors like those of `forward`."""
    sizes = FusedSizes.of(x, parameters, num_heads)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not save:
        return [out]
    num_floats = sizes.num_layers * sizes.layer_numel
    operands = x.new_empty(num_floats, dtype=OPERANDS[precision])
    kept = allocate_saved(x, sizes, SAVED[precision], with_input=hopper_supports(sizes, precision, x.device))
    return [out, x.new_empty(num_floats), operands, *kept]


def fake_backward(x: Tensor, parameters: list[Tensor]) -> list[Tensor]:
    """Return empty tensors like those of `backward`."""
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    return [grad_x, x.new_empty(sum(parameter.numel() for parameter in parameters))]
