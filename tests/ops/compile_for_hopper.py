"""Compiles the fused encoder for a Hopper GPU, which takes none, and looks for what ptxas is known to get wrong.

    python tests/ops/compile_for_hopper.py bf16 16 64 128 2   # precision, nodes, width, hidden units, heads

ptxas 12.9, which Triton 3.6 and 3.7 bring, may compute the address of a matrix operand from a uniform register that
nothing was written to: wrong numbers, or an illegal access. Prints one JSON object a kernel.
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

from body_transformer.ops.encoder_stack.fused.backward_kernel import backward_kernel
from body_transformer.ops.encoder_stack.fused.forward_kernel import forward_kernel
from body_transformer.ops.encoder_stack.fused.sizes import Sizes

INTEGERS = {"batch": "i32", "num_layers": "i32", "first_layer": "i32", "count": "i32", "masked_layers": "i64"}
FLOATS = {"scale": "fp32", "eps": "fp32"}
ALWAYS_SINGLE = re.compile(r"x_ptr|out_ptr|grad_out_ptr|grad_x_ptr|rstd_ptr|norm_sums_ptr|\w*bias\d?|norm\d")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(\S+)\s+(.*?);")


def signature(names: list[str], constants: dict[str, object], precision: str) -> dict[str, str]:
    types = {"mask_ptr": "*i1", **INTEGERS, **FLOATS}
    operand = "*bf16" if precision == "bf16" else "*fp32"
    for name in names:
        if name in constants:
            types[name] = "constexpr"
        elif name not in types:
            types[name] = "*fp32" if ALWAYS_SINGLE.fullmatch(name) else operand
    return {name: types[name] for name in names}


def compile_kernel(kind: str, precision: str, sizes: Sizes) -> dict[str, object]:
    constants = sizes.constants(kind, precision)
    options = {name: constants.pop(name) for name in ("num_warps", "num_stages", "maxnreg")}
    kernel = backward_kernel if kind == "backward" else forward_kernel
    constants |= {"TURNED": precision != "bf16"} if kind == "backward" else {"SAVE": kind == "forward"}
    types = signature(kernel.arg_names, constants, precision)
    source = ASTSource(
        kernel,
        types,
        constexprs={(kernel.arg_names.index(name),): value for name, value in constants.items()},
        attrs={(k,): [["tt.divisibility", 16]] for k, name in enumerate(types) if types[name].startswith("*")},
    )
    options = {name: value for name, value in options.items() if value is not None}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    return {
        "kernel": kind,
        "shared": compiled.metadata.shared,
        "uninitialised": uninitialised(disassemble(compiled.asm["cubin"])),
    }


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
    for kind in ("inference", "forward", "backward"):
        print(
            json.dumps(compile_kernel(kind, precision, Sizes(10, num_nodes, embed_dim, ff_dim, num_heads))), flush=True
        )
