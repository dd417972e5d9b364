"""Compile the fused encoder for a GPU without having one, and look for known compiler errors.

    python -m tests.ops.compile_fused bf16 16 64 128 2   # precision, nodes, width, hidden units, heads

- unfenced: Triton before 3.7.1 lets the matrix units read prefetched data without the fence that makes it visible to
  them.
- overtaken: Triton fetches the next block into memory that a product in flight may still read.
- uninitialised: ptxas 12.8, which Triton 3.6 and 3.7 ship, computes the address of a matrix operand from a uniform
  register that was never written.

Each error leads to occasional wrong results or to an illegal access. The output is one JSON object per kernel.
"""

import argparse
import json
import re

import triton
from torch.torch_version import TorchVersion
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from body_transformer.ops.assembler import sound_assembler
from body_transformer.ops.encoder_stack import PRECISIONS
from body_transformer.ops.encoder_stack.fused.backward_kernel import backward_kernel
from body_transformer.ops.encoder_stack.fused.forward_kernel import forward_kernel
from body_transformer.ops.encoder_stack.fused.gradient_kernels import (
    feed_forward_gradient_kernel,
    weight_gradient_kernel,
)
from body_transformer.ops.encoder_stack.fused.sizes import FusedSizes

from .compiled_code import disassemble, overtaken, unfenced, uninitialised

KERNELS = {
    "inference": forward_kernel,
    "forward": forward_kernel,
    "backward": backward_kernel,
    "weights": weight_gradient_kernel,
    "feed-forward": feed_forward_gradient_kernel,
}
STRIDES = ("grad_stride", "input_stride", "normed_stride")
NUMBERS = {**dict.fromkeys(STRIDES, "i64"), "scale": "fp32", "eps": "fp32"}
PLACES = {f"{name}_ptr": name for name in ("weight1", "bias1", "weight2", "bias2")}
INTEGERS = ("batch", "num_layers", "first_layer", "count", "num_rows", "rows_each", "first", "masked_layers")
ALWAYS_SINGLE = re.compile(
    r"x_ptr|out_ptr|grad_out_ptr|grad_x_ptr|rstd_ptr|norm_(sums_)?ptr|(weight|bias)\d?_ptr|\w*bias\d?|norm\d"
)


def signature(names: list[str], constants: dict[str, object], precision: str) -> dict[str, str]:
    types = {"mask_ptr": "*i1", **NUMBERS, **dict.fromkeys(INTEGERS, "i32"), **dict.fromkeys(constants, "constexpr")}
    operand = "*bf16" if precision == "bf16" else "*fp32"
    saved = "*fp16" if precision == "tf32" else operand
    types |= dict.fromkeys(("saved_ptr", "normed_ptr", "input_ptr"), saved)
    return {name: types.get(name, "*fp32" if ALWAYS_SINGLE.fullmatch(name) else operand) for name in names}


def constants_of(kind: str, precision: str, sizes: FusedSizes) -> dict[str, object]:
    if kind == "feed-forward":
        return sizes.feed_forward_constants(precision)
    if kind == "weights":
        return sizes.product_constants(precision, 3 * sizes.embed_dim, sizes.embed_dim) | {"AFTER": True}
    constants = sizes.constants(kind, precision)
    return constants | ({"TURNED": precision != "bf16"} if kind == "backward" else {"SAVE": kind == "forward"})


def compile_kernel(
    kind: str, precision: str, sizes: FusedSizes, capability: int, own_fences: bool
) -> dict[str, object]:
    constants = constants_of(kind, precision, sizes)
    options = {name: constants.pop(name, None) for name in ("num_warps", "num_stages", "maxnreg", "ptx_version")}
    constants["FENCE"] = capability >= 90 and constants["STAGES"] > 1 and own_fences
    kernel = KERNELS[kind]
    types = signature(kernel.arg_names, constants, precision)
    starts = {name: sizes.starts.get(PLACES.get(name, name), 0) for name in types}
    bytes_each = {name: 2 if "16" in types[name] else 4 for name in types}
    pointers = [name for name in types if name in STRIDES or "*" in types[name]]
    aligned = [name for name in pointers if starts[name] * bytes_each[name] % 16 == 0]
    source = ASTSource(
        kernel,
        types,
        constexprs={(kernel.arg_names.index(name),): value for name, value in constants.items()},
        attrs={(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    options = {name: value for name, value in options.items() if value is not None}
    with sound_assembler():
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    return {
        "kernel": kind,
        "shared": compiled.metadata.shared,
        "unfenced": unfenced(compiled.asm["ptx"]),
        "overtaken": overtaken(compiled.asm["ttgir"]),
        "uninitialised": uninitialised(disassemble(compiled.asm["cubin"])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("precision", choices=PRECISIONS)
    for name in ("nodes", "width", "hidden", "heads"):
        parser.add_argument(name, type=int)
    parser.add_argument("--capability", type=int, default=90)
    parser.add_argument("--own-fences", action="store_true", help="as with a Triton that inserts none")
    options = parser.parse_args()
    sizes = FusedSizes(10, options.nodes, options.width, options.hidden, options.heads)
    own_fences = options.own_fences or TorchVersion(triton.__version__) < "3.7.1"
    for kind in KERNELS:
        print(json.dumps(compile_kernel(kind, options.precision, sizes, options.capability, own_fences)), flush=True)


if __name__ == "__main__":
    main()
