"""Compile the kernels for small bodies for a GPU without having one, and inspect the machine code.

    python -m tests.ops.compile_hopper 16 64 128 2   # nodes, width, hidden units, heads

- unfenced, uninitialised: as in compile_fused.py.
- unmet: copies that may overwrite operands which products of other warps still read.
- stack: bytes per thread that do not fit into registers.
- exchanges: writes of a warp to shared memory that another warp reads.
- waits: waits for products in flight; with too few registers, the assembler waits for every product.

The output is one JSON object per kernel.
"""

import argparse
import json
import re

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction

from body_transformer.ops.assembler import sound_assembler
from body_transformer.ops.encoder_stack.hopper import sizes as launches
from body_transformer.ops.encoder_stack.hopper.backward_kernel import backward_kernel
from body_transformer.ops.encoder_stack.hopper.forward_kernel import forward_kernel
from body_transformer.ops.encoder_stack.hopper.gradient_kernels import total_kernel, weight_gradient_kernel
from body_transformer.ops.encoder_stack.packing import EncoderSizes

from .compiled_code import disassemble, unfenced, uninitialised, unmet

KERNELS = {
    "inference": forward_kernel,
    "forward": forward_kernel,
    "backward": backward_kernel,
    "weights": weight_gradient_kernel,
    "total": total_kernel,
}
INTEGERS = ("batch", "num_layers", "first_layer", "count", "masked_layers", "num_rows", "attention_shares", "first")
INTEGERS += ("attention_rows", "ff_rows", "size", "ff_shares", "num_norms")
OPERANDS = re.compile(r"(operands|saved|mixed|grad_qkv|grad_sum\d?)_ptr")


def constants_of(kind: str, sizes: EncoderSizes) -> dict[str, object]:
    if kind == "weights":
        return launches.sum_constants(sizes)
    if kind == "total":
        return {"LAYER": sizes.layer, "NORM1": sizes.starts["norm1"], "NORM2": sizes.starts["norm2"], **launches.TOTAL}
    return launches.constants(sizes, kind) | ({} if kind == "backward" else {"SAVE": kind == "forward"})


def signature(names: list[str]) -> dict[str, str]:
    types = {"mask_ptr": "*i1", "scale": "fp32", "eps": "fp32", **dict.fromkeys(INTEGERS, "i32")}
    return {name: types.get(name, "*bf16" if OPERANDS.fullmatch(name) else "*fp32") for name in names}


def compile_for_hopper(kernel: GluonJITFunction, types: dict[str, str], constants: dict[str, object]) -> CompiledKernel:
    """`constants` are the kernel's own and the options of its launch, `types` those of its other arguments."""
    names = kernel.arg_names
    own = {name: value for name, value in constants.items() if name in names}
    source = GluonASTSource(
        kernel,
        types | dict.fromkeys(own, "constexpr"),
        constexprs={(names.index(name),): value for name, value in own.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name, kind in types.items() if "*" in kind},
    )
    options = {name: value for name, value in constants.items() if name not in own and value is not None}
    with sound_assembler():
        return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


def compile_kernel(kind: str, sizes: EncoderSizes) -> dict[str, object]:
    constants = constants_of(kind, sizes)
    arguments = [name for name in KERNELS[kind].arg_names if name not in constants]
    compiled = compile_for_hopper(KERNELS[kind], signature(arguments), constants)
    code, used = disassemble(compiled.asm["cubin"]), disassemble(compiled.asm["cubin"], "-res-usage")
    return {
        "kernel": kind,
        "shared": compiled.metadata.shared,
        "unfenced": unfenced(compiled.asm["ptx"]),
        "uninitialised": uninitialised(code),
        "unmet": unmet(code),
        "stack": int(re.findall(r"STACK:(\d+)", used)[0]),
        "exchanges": len(re.findall(r"\sST[SM]+\S*\s", code)),
        "waits": code.count("WARPGROUP.DEPBAR"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("nodes", "width", "hidden", "heads"):
        parser.add_argument(name, type=int)
    options = parser.parse_args()
    sizes = EncoderSizes(10, options.nodes, options.width, options.hidden, options.heads)
    for kind in KERNELS:
        print(json.dumps(compile_kernel(kind, sizes)), flush=True)


if __name__ == "__main__":
    main()
