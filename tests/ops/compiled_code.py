"""Detection of known compiler errors in compiled kernels with matrix products."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton

ROOT = Path(__file__).parents[2]
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(\S+)\s+(.*?);")
COPY = re.compile(r"async_copy_global_to_local %\w+, (%\w+)")
DOT = re.compile(r"(%\w+) = ttng.warp_group_dot (%\w+), (%\w+), .*isAsync = true")
WAIT = re.compile(r"warp_group_dot_wait .*pendings = (\d+)")
PART = re.compile(r"(%\w+) = ttg.memdesc_(?:index|trans) (%\w+)")


def output_of(module: str, *arguments: str) -> str:
    """Run a module of these tests as a program without Triton's interpreter; return its output."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-m", f"tests.ops.{module}", *arguments]
    run = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300 * len(arguments)
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def unfenced(ptx: str) -> int:
    """Count matrix products that follow the arrival of an asynchronous copy without a fence between, in code order."""
    count, visible = 0, True
    for name in re.findall(r"cp\.async\.wait|fence\.proxy\.async|wgmma\.mma_async", ptx):
        if name == "wgmma.mma_async":
            count += not visible
        else:
            visible = name == "fence.proxy.async"
    return count


def overtaken(ttgir: str) -> list[str]:
    """Return copies in a loop to a buffer that a matrix product in flight may still read.

    Copies run ahead by as many iterations as there were copies before the loop, and use their buffers in rotation.
    """
    lines = ttgir.splitlines()
    buffers = re.findall(r"(%\w+) = ttg.local_alloc : \(\) -> \S+?<(\d+)x", ttgir)
    num_slots = {name: int(count) for name, count in buffers}
    found = []
    for first, line in enumerate(lines):
        if " scf.for " in line:
            last = next(k for k in range(first + 1, len(lines)) if _depth(lines[k]) <= _depth(line))
            found += _conflicts(lines[:first], lines[first + 1 : last], num_slots)
    return found


def _conflicts(before: list[str], loop: list[str], num_slots: dict[str, int]) -> list[str]:
    """Follow three iterations of a loop; return its copies to buffers that products in flight read."""
    whole: dict[str, str] = {name: name for name in num_slots}  # pipelined buffer or part of one -> the buffer
    for line in (*before, *loop):
        if (part := PART.search(line)) and part[2] in whole:
            whole[part[1]] = whole[part[2]]
    copied = [whole.get(copy[1]) for copy in map(COPY.search, before) if copy]
    depth = min(map(_depth, loop))
    found, in_flight = [], []
    for iteration in range(3):
        for line in (line for line in loop if _depth(line) == depth):
            if dot := DOT.search(line):
                in_flight.append((iteration, {whole.get(dot[2]), whole.get(dot[3])}))
            elif wait := WAIT.search(line):
                in_flight = in_flight[len(in_flight) - int(wait[1]) :] if int(wait[1]) else []
            elif copy := COPY.search(line):
                memory = whole.get(copy[1])
                ahead = copied.count(memory)
                for started, operands in in_flight:
                    if memory in operands and (ahead + iteration - started) % num_slots[memory] == 0:
                        found.append(line.strip()[:100])
    return found


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def disassemble(cubin: bytes, what: str = "-sass") -> str:
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, what, file.name], capture_output=True, text=True, check=True).stdout


def uninitialised(sass: str) -> list[str]:
    """Return instructions that read a uniform register before any write to it, in code order."""
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
