"""What a program did that it must not do."""

from dataclasses import dataclass, field

import numpy as np

Fault = tuple[str, str]
"""What kind it is, and where: the kernel, the instruction's index and text."""


@dataclass
class Faults:
    """Each kind once at each instruction.

    Notes are what PTX does not allow in so many words and no card is known to get wrong.
    """

    found: set[Fault] = field(default_factory=set)
    notes: set[Fault] = field(default_factory=set)
    at: str = ""
    """The instruction that runs."""

    @property
    def kinds(self) -> set[str]:
        return {kind for kind, _ in self.found}

    def add(self, kind: str) -> None:
        self.found.add((kind, self.at))

    def add_note(self, kind: str) -> None:
        self.notes.add((kind, self.at))

    def check(self, kind: str, wrong: np.ndarray) -> None:
        """A fault, where any of `wrong` is true."""
        if wrong.any():
            self.add(kind)

    def check_note(self, kind: str, odd: np.ndarray) -> None:
        if odd.any():
            self.add_note(kind)
