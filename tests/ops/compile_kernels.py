"""Compile the encoder's kernels on a machine without a GPU, and look for known compiler errors.

    python -m tests.ops.compile_kernels "fused bf16 16 64 128 2" "hopper bf16 16 64 128 2"

Each argument is a case: kernels, precision, nodes, width, hidden units, heads, and options.

Each error leads to occasional wrong results or to an illegal access:

- unfenced: Triton before 3.7.1 lets the matrix units read prefetched data without the fence that makes it visible to
  them.
- overtaken: Triton fetches the next block into memory that a product in flight may still read.
- uninitialised: ptxas 12.8, which comes with Triton 3.6 and 3.7, computes the address of a matrix operand from a
  uniform register that was never written.

The kernels for small bodies also show how well they use a multiprocessor:

- stack: bytes per thread that do not fit into registers.
- exchanges: writes of a warp to shared memory that another warp reads.
- waits: waits for products in flight; with too few registers, the assembler waits for every product.

The output is one JSON object per kernel, in the order of the cases.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable
from typing import Any

import triton
from torch.torch_version import TorchVersion
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel
from triton.experimental.gluon._runtime import GluonASTSource

from body_transformer.ops.assembler import sound_assembler
from body_transformer.ops.encoder_stack import PRECISIONS
from body_transformer.ops.encoder_stack.fused import backward_kernel, forward_kernel, gradient_kernels
from body_transformer.ops.encoder_stack.fused.sizes import FusedSizes
from body_transformer.ops.encoder_stack.hopper import backward_kernel as hopper_backward
from body_transformer.ops.encoder_stack.hopper import forward_kernel as hopper_forward
from body_transformer.ops.encoder_stack.hopper import gradient_kernels as hopper_gradients
from body_transformer.ops.encoder_stack.hopper import sizes as hopper_sizes
from body_transformer.ops.encoder_stack.packing import EncoderSizes

from .compiled_code import disassemble, overtaken, unfenced, uninitialised

Constants = dict[str, Any]

FUSED = {
    "inference": forward_kernel.forward_kernel,
    "forward": forward_kernel.forward_kernel,
    "backward": backward_kernel.backward_kernel,
    "weights": gradient_kernels.weight_gradient_kernel,
    "feed-forward": gradient_kernels.feed_forward_gradient_kernel,
}
HOPPER = {
    "inference": hopper_forward.forward_kernel,
    "forward": hopper_forward.forward_kernel,
    "backward": hopper_backward.backward_kernel,
    "weights": hopper_gradients.weight_gradient_kernel,
    "total": hopper_gradients.total_kernel,
}
STRIDES = ("grad_stride", "input_stride", "normed_stride")
INTEGERS = ("batch", "num_layers", "first_layer", "count", "masked_layers", "num_rows", "rows_each", "first", "size")
INTEGERS += ("attention_shares", "attention_rows", "ff_shares", "ff_rows", "num_norms")
NUMBERS = {"mask_ptr": "*i1", "scale": "fp32", "eps": "fp32"}
NUMBERS |= dict.fromkeys(STRIDES, "i64") | dict.fromkeys(INTEGERS, "i32")
PLACES = {f"{name}_ptr": name for name in ("weight1", "bias1", "weight2", "bias2")}
ALWAYS_SINGLE = re.compile(
    r"x_ptr|out_ptr|grad_out_ptr|grad_x_ptr|rstd_ptr|norm_(sums_)?ptr|(weight|bias)\d?_ptr|\w*bias\d?|norm\d"
)
HOPPER_OPERANDS = re.compile(r"(operands|saved|mixed|grad_qkv|grad_sum\d?)_ptr")


def compiled(
    source: type[ASTSource], kernel: Any, types: dict[str, str], constants: Constants, aligned: Iterable[str], arch: int
) -> CompiledKernel:
    """Compile a kernel for an architecture.

    Args:
        source: Triton's class for kernels of this language.
        types: types of the arguments that are not constants.
        constants: the kernel's own and the options of its launch.
        aligned: arguments that are multiples of 16 bytes.
    """
    names = kernel.arg_names
    own = {name: value for name, value in constants.items() if name in names}
    code = source(
        kernel,
        types | dict.fromkeys(own, "constexpr"),
        constexprs={(names.index(name),): value for name, value in own.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    options = {name: value for name, value in constants.items() if name not in own and value is not None}
    with sound_assembler():
        return triton.compile(code, target=GPUTarget("cuda", arch, 32), options=options)


# -- the general kernels -----------------------------------------------------------------------------------------------


def fused_constants(kind: str, precision: str, sizes: FusedSizes) -> Constants:
    if kind == "feed-forward":
        return sizes.feed_forward_constants(precision)
    if kind == "weights":
        return sizes.product_constants(precision, 3 * sizes.embed_dim, sizes.embed_dim) | {"AFTER": True}
    more = {"TURNED": precision != "bf16"} if kind == "backward" else {"SAVE": kind == "forward"}
    return sizes.constants(kind, precision) | more


def fused_types(names: list[str], precision: str) -> dict[str, str]:
    operand = "*bf16" if precision == "bf16" else "*fp32"
    saved = "*fp16" if precision == "tf32" else operand
    types = NUMBERS | dict.fromkeys(("saved_ptr", "normed_ptr", "input_ptr"), saved)
    return {name: types.get(name, "*fp32" if ALWAYS_SINGLE.fullmatch(name) else operand) for name in names}


def fused(kind: str, precision: str, sizes: FusedSizes, arch: int, own_fences: bool) -> dict[str, object]:
    kernel, constants = FUSED[kind], fused_constants(kind, precision, sizes)
    constants["FENCE"] = arch >= 90 and constants["STAGES"] > 1 and own_fences
    types = fused_types([name for name in kernel.arg_names if name not in constants], precision)
    bytes_before = {
        name: sizes.starts.get(PLACES.get(name, name), 0) * (2 if "16" in types[name] else 4)
        for name in types
        if name in STRIDES or "*" in types[name]
    }
    aligned = [name for name, count in bytes_before.items() if count % 16 == 0]
    found = compiled(ASTSource, kernel, types, constants, aligned, arch)
    return {
        "shared": found.metadata.shared,
        "unfenced": unfenced(found.asm["ptx"]),
        "overtaken": overtaken(found.asm["ttgir"]),
        "uninitialised": uninitialised(disassemble(found.asm["cubin"])),
    }


# -- the kernels for small bodies --------------------------------------------------------------------------------------


def hopper_constants(kind: str, sizes: EncoderSizes) -> Constants:
    if kind == "weights":
        return hopper_sizes.sum_constants(sizes)
    if kind == "total":
        starts = {name.upper(): sizes.starts[name] for name in ("norm1", "norm2")}
        return {"LAYER_NUMEL": sizes.layer_numel, **starts, **hopper_sizes.TOTAL}
    return hopper_sizes.constants(sizes, kind) | ({} if kind == "backward" else {"SAVE": kind == "forward"})


def compile_for_hopper(kernel: Any, types: dict[str, str], constants: Constants) -> CompiledKernel:
    pointers = [name for name, kind in types.items() if "*" in kind]
    return compiled(GluonASTSource, kernel, types, constants, pointers, arch=90)


def hopper(kind: str, sizes: EncoderSizes) -> dict[str, object]:
    kernel, constants = HOPPER[kind], hopper_constants(kind, sizes)
    names = [name for name in kernel.arg_names if name not in constants]
    types = {name: NUMBERS.get(name, "*bf16" if HOPPER_OPERANDS.fullmatch(name) else "*fp32") for name in names}
    found = compile_for_hopper(kernel, types, constants)
    code, used = disassemble(found.asm["cubin"]), disassemble(found.asm["cubin"], "-res-usage")
    return {
        "shared": found.metadata.shared,
        "unfenced": unfenced(found.asm["ptx"]),
        "uninitialised": uninitialised(code),
        "stack": int(re.findall(r"STACK:(\d+)", used)[0]),
        "exchanges": len(re.findall(r"\sST[SM]+\S*\s", code)),
        "waits": code.count("WARPGROUP.DEPBAR"),
    }


def parse(case: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="case")
    parser.add_argument("kernels", choices=("fused", "hopper"))
    parser.add_argument("precision", choices=PRECISIONS)
    for name in ("nodes", "width", "hidden", "heads"):
        parser.add_argument(name, type=int)
    parser.add_argument("--capability", type=int, default=90)
    parser.add_argument("--own-fences", action="store_true", help="insert fences, as for a Triton that inserts none")
    return parser.parse_args(case.split())


def main() -> None:
    for options in map(parse, sys.argv[1:]):
        sizes = FusedSizes(10, options.nodes, options.width, options.hidden, options.heads)
        own_fences = options.own_fences or TorchVersion(triton.__version__) < "3.7.1"
        for kind in FUSED if options.kernels == "fused" else HOPPER:
            found = (
                fused(kind, options.precision, sizes, options.capability, own_fences)
                if options.kernels == "fused"
                else hopper(kind, sizes)
            )
            print(json.dumps({"kernel": kind, **found}), flush=True)


if __name__ == "__main__":
    main()
