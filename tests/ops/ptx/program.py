"""A parser from PTX text to a program: instructions, labels, parameters."""

import re
from dataclasses import dataclass
from functools import cached_property

Operand = str | list[str]
"""A register, a number, an address in brackets, or several registers in braces."""
STATEMENT = re.compile(r"(?:@(!?)(%\w+)\s+)?([a-z]\S*)\s*(.*)", re.DOTALL)
OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")


@dataclass(frozen=True)
class Instruction:
    """One instruction; `guard` is the predicate, possibly negated, of the threads that take part (None = all)."""

    text: str
    """The instruction as written."""
    name: str
    operands: list[Operand]
    guard: str | None = None
    negated: bool = False

    @cached_property
    def parts(self) -> list[str]:
        """Parts of its name: ["ld", "shared", "v4", "b32"]."""
        return self.name.split(".")

    def registers(self, position: int) -> list[str]:
        """Return the registers of an operand that may be one or several."""
        operand = self.operands[position]
        return operand if isinstance(operand, list) else [operand]


@dataclass(frozen=True)
class Program:
    """A kernel, run by every thread of a block."""

    instructions: list[Instruction]
    labels: dict[str, int]
    """Name -> index of the next instruction."""
    parameters: list[str]
    threads: int
    """Number of threads in a block."""
    shared: int
    """Bytes of shared memory of a block."""


def parse(text: str, shared: int) -> Program:
    """Parse a PTX file of one kernel, as Triton writes it; the file does not contain `shared`."""
    text = re.sub(r"//.*", "", text)
    head, body = text[text.index(".entry") :].split("{", 1)
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for statement in _statements(body.split(".section")[0]):
        if statement.endswith(":"):
            labels[statement[:-1]] = len(instructions)
        else:
            instructions.append(_instruction(statement))
    parameters = re.findall(r"\.param[^,)]*?(\w+)\s*[,)]", head)
    return Program(instructions, labels, parameters, int(re.findall(r"\.reqntid (\d+)", head)[0]), shared)


def _statements(body: str) -> list[str]:
    """Return instructions and labels, without directives and without the braces around inline assembly."""
    body = re.sub(r"^\s*(\..*|[{}]\s*)$", "", body, flags=re.MULTILINE)
    body = re.sub(r"^\s*([$\w]+:)", r"\1;", body, flags=re.MULTILINE)
    return [statement.strip() for statement in body.split(";") if statement.strip()]


def _instruction(statement: str) -> Instruction:
    match = STATEMENT.fullmatch(statement)
    if match is None:
        raise ValueError(f"not a PTX instruction: {statement!r}")
    negated, guard, name, operands = match.groups()
    split = [re.findall(r"[^{},\s]+", x) if x.startswith("{") else x for x in OPERAND.findall(operands)]
    return Instruction(" ".join(statement.split()), name, split, guard, bool(negated))
