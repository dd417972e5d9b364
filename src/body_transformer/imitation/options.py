"""Readers and tasks by name, made with options that may be text from a command line or a YAML file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, make_dataclass
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, get_args

import yaml

from ..errors import unknown
from ..schema import build


class Catalog:
    """Functions and classes by name, each in a module that is imported only when it is used."""

    def __init__(self, kind: str, places: Mapping[str, str], num_given: int) -> None:
        """`places` maps names to `MODULE:FUNCTION`. All arguments but the first `num_given` are options."""
        self.kind, self.places, self._num_given = kind, places, num_given

    def call(self, name: str, *given: Any, options: Mapping[str, Any]) -> Any:
        """Call a function; unknown, missing and wrong options are errors."""
        allowed = self.options(name)
        items = [(one.name, one.annotation, _field(one)) for one in allowed.values()]
        kind: type[Any] = make_dataclass("Options", items)
        values = {option: _from_text(allowed.get(option), value) for option, value in options.items()}
        return self.function(name)(*given, **vars(build(kind, values, f"{self.kind} {name}", what="option")))

    def options(self, name: str) -> dict[str, Parameter]:
        """Return the options of a function."""
        parameters = signature(self.function(name), eval_str=True).parameters
        return dict(list(parameters.items())[self._num_given :])

    def function(self, name: str) -> Callable[..., Any]:
        """Import a function or class."""
        if name not in self.places:
            raise ValueError(unknown(self.kind, name, self.places))
        module, _, function = self.places[name].partition(":")
        found: Callable[..., Any] = getattr(import_module(module, __package__), function)
        return found


def _field(option: Parameter) -> Any:
    return field(default=MISSING if option.default is Parameter.empty else option.default)


def _from_text(option: Parameter | None, value: Any) -> Any:
    """Return an option's value: text is read as YAML, unless the option itself may be text or is unknown."""
    if not isinstance(value, str) or option is None or str in (option.annotation, *get_args(option.annotation)):
        return value
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        return value
