"""Invalid actions of a program."""

from dataclasses import dataclass, field

import numpy as np

Fault = tuple[str, str]
"""Kind and location of a fault; the location is the kernel, and the instruction's index and text."""


@dataclass
class Faults:
    """Faults, each kind at most once per instruction."""

    found: set[Fault] = field(default_factory=set)
    at: str = ""
    """The current instruction."""

    @property
    def kinds(self) -> set[str]:
        return {kind for kind, _ in self.found}

    def add(self, kind: str) -> None:
        self.found.add((kind, self.at))

    def check(self, kind: str, wrong: np.ndarray) -> None:
        """Add a fault if any of `wrong` is true."""
        if wrong.any():
            self.add(kind)
