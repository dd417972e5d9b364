"""The gradients of the linear layers, from the factors that the backward kernel stores."""

from torch import Tensor

from ...dispatch import num_blocks
from ..packing import allocate_factors
from .gradient_kernels import feed_forward_gradient_kernel, weight_gradient_kernel
from .sizes import SHARES, FusedSizes


class WeightGradients:
    """Sums over all rows, for `num_layers` encoder layers at a time: as many as memory allows."""

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
        self.sums = flat.new_empty(shares, sizes.num_layers, sizes.layer)

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

        `normed`: the last LayerNorm of the preceding encoder layer was applied to its input.
        """
        count, _, outputs = grad.shape
        constants = self.sizes.product_constants(self.precision, outputs, given.shape[2])
        blocks = num_blocks(outputs, constants["BLOCK_A"]) * num_blocks(given.shape[2], constants["BLOCK_C"])
        weight_gradient_kernel[(len(self.sums), count, blocks)](
            grad,
            given,
            self.flat[self.sizes.starts["norm2"] :],
            *self._places(f"{name}_weight", f"{name}_bias"),
            *self._counts(grad, given, first, constants["ROWS"]),
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
            *self._places("weight1", "bias1", "weight2", "bias2"),
            *self._counts(grad, between, first, constants["ROWS"]),
            **constants,
        )

    def _places(self, *names: str) -> list[Tensor]:
        """Return where the sums of the first layer's parameters are stored."""
        return [self.sums.view(-1)[self.sizes.starts[name] :] for name in names]

    def _counts(self, grad: Tensor, given: Tensor, first: int, block: int) -> list[int]:
        """Return the rows, the rows per share in whole blocks, strides between layers, the first layer, the layers."""
        each = num_blocks(self.num_rows, len(self.sums) * block) * block
        return [self.num_rows, each, grad.stride(0), given.stride(0), first, self.sizes.num_layers]
