"""Readers and tasks by name, made with options that may be text from a command line or a YAML file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from ..errors import listing, unknown

BOOL = {"true": True, "false": False}
PARSERS: dict[str, tuple[str, Callable[[str], object]]] = {
    "int": ("a whole number", int),
    "int | None": ("a whole number", int),
    "bool": ("true or false", BOOL.__getitem__),
}
"""Annotation of an option -> what it must be, and the function that reads it from text."""


class Catalog:
    """Functions by name, each in a module that is imported only when it is used."""

    def __init__(self, kind: str, places: Mapping[str, str], num_given: int) -> None:
        """`places` maps a name to `MODULE:FUNCTION`; the first `num_given` arguments of a function are no options."""
        self.kind, self.places, self._num_given = kind, places, num_given

    def call(self, name: str, *given: Any, options: Mapping[str, Any]) -> Any:
        """Call a function; unknown, missing and wrong options are errors."""
        function, allowed = self._function(name), self.options(name)
        missing = [
            option for option, one in allowed.items() if one.default is Parameter.empty and option not in options
        ]
        if missing:
            raise ValueError(f"{self.kind} {name!r} needs the options {listing(missing)}")
        values = {}
        for option, value in options.items():
            if option not in allowed:
                raise ValueError(f"{self.kind} {name!r}: " + unknown("option", option, allowed))
            values[option] = value
            if isinstance(value, str) and allowed[option].annotation in PARSERS:
                wanted, read = PARSERS[allowed[option].annotation]
                try:
                    values[option] = read(value)
                except (KeyError, ValueError):
                    raise ValueError(f"{self.kind} {name!r}: {option} must be {wanted}; got {value!r}") from None
        return function(*given, **values)

    def options(self, name: str) -> dict[str, Parameter]:
        """Return the options of a function."""
        return dict(list(signature(self._function(name)).parameters.items())[self._num_given :])

    def _function(self, name: str) -> Callable[..., Any]:
        if name not in self.places:
            raise ValueError(unknown(self.kind, name, self.places))
        module, _, function = self.places[name].partition(":")
        found: Callable[..., Any] = getattr(import_module(module, __package__), function)
        return found
