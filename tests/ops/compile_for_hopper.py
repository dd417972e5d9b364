"""Compiles the fused encoder for a Hopper GPU, which takes none, and looks for what compilers are known to get wrong.

    python tests/ops/compile_for_hopper.py bf16 16 64 128 2   # precision, nodes, width, hidden units, heads

Triton before 3.7.1 lets the matrix units read what was fetched ahead without the fence that makes it visible to them.
ptxas 12.8, which Triton 3.6 and 3.7 bring, may compute the address of a matrix operand from a uniform register that
nothing was written to. Either way: wrong numbers now and then, or an illegal access. Prints one JSON object a kernel.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from body_transformer.ops.assembler import sound_assembler
from body_transformer.ops.encoder_stack.fused.backward_kernel import backward_kernel
from body_transformer.ops.encoder_stack.fused.feed_forward_gradient_kernel import feed_forward_gradient_kernel
from body_transformer.ops.encoder_stack.fused.forward_kernel import forward_kernel
from body_transformer.ops.encoder_stack.fused.sizes import Sizes
from body_transformer.ops.encoder_stack.fused.weight_gradient_kernel import weight_gradient_kernel

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
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(\S+)\s+(.*?);")


def signature(names: list[str], constants: dict[str, object], precision: str) -> dict[str, str]:
    types = {"mask_ptr": "*i1", **NUMBERS, **dict.fromkeys(INTEGERS, "i32"), **dict.fromkeys(constants, "constexpr")}
    operand = "*bf16" if precision == "bf16" else "*fp32"
    saved = "*fp16" if precision == "tf32" else operand
    types |= dict.fromkeys(("saved_ptr", "normed_ptr", "input_ptr"), saved)
    return {name: types.get(name, "*fp32" if ALWAYS_SINGLE.fullmatch(name) else operand) for name in names}


def constants_of(kind: str, precision: str, sizes: Sizes) -> dict[str, object]:
    if kind == "feed-forward":
        return sizes.feed_forward_constants(precision)
    if kind == "weights":
        return sizes.product_constants(precision, 3 * sizes.embed_dim, sizes.embed_dim) | {"AFTER": True}
    constants = sizes.constants(kind, precision)
    return constants | ({"TURNED": precision != "bf16"} if kind == "backward" else {"SAVE": kind == "forward"})


def compile_kernel(kind: str, precision: str, sizes: Sizes) -> dict[str, object]:
    constants = constants_of(kind, precision, sizes)
    options = {name: constants.pop(name, None) for name in ("num_warps", "num_stages", "maxnreg")}
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
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    return {
        "kernel": kind,
        "shared": compiled.metadata.shared,
        "unfenced": unfenced(compiled.asm["ptx"]),
        "uninitialised": uninitialised(disassemble(compiled.asm["cubin"])),
    }


def unfenced(ptx: str) -> int:
    """Matrix products that follow an asynchronous copy's arrival with no fence between, by the order of the code."""
    count, visible = 0, True
    for name in re.findall(r"cp\.async\.wait|fence\.proxy\.async|wgmma\.mma_async", ptx):
        if name == "wgmma.mma_async":
            count += not visible
        else:
            visible = name == "fence.proxy.async"
    return count


def disassemble(cubin: bytes) -> str:
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, "-sass", file.name], capture_output=True, text=True, check=True).stdout


def uninitialised(sass: str) -> list[str]:
    """Instructions that read a uniform register before anything wrote it, in the order of the code."""
    written: set[int] = set()
    found = []
    for name, operands in INSTRUCTION.findall(sass):
        target = re.match(r"(?:UP\w+,\s*)?UR(\d+)", operands)
        is_uniform = name.startswith("U") and not name.startswith(("UISETP", "UPLOP3"))
        read = {int(k) + pair for k in re.findall(r"gdesc\[UR(\d+)\]", operands) for pair in (2, 3)}
        if is_uniform:
            sources = operands[target.end() :] if target else operands
            read |= {int(k) for k in re.findall(r"(?<![a-z\[])UR(\d+)", sources)}
        if read - written:
            found.append(f"{name} {operands}")
        if target and (is_uniform or name.startswith(("R2UR", "S2UR", "REDUX"))):
            width = 2 if ".64" in name or ".WIDE" in name else 1
            written |= set(range(int(target[1]), int(target[1]) + width))
    return found


if __name__ == "__main__":
    precision, *numbers = sys.argv[1:]
    num_nodes, embed_dim, ff_dim, num_heads = map(int, numbers)
    sizes = Sizes(10, num_nodes, embed_dim, ff_dim, num_heads)
    for kind in KERNELS:
        print(json.dumps(compile_kernel(kind, precision, sizes)), flush=True)
