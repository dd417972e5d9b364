"""Readers and tasks by name, made with options that may be text from a command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, make_dataclass
from importlib import import_module
from inspect import Parameter, signature
from types import UnionType
from typing import Any, Union, get_args, get_origin

import yaml

from ..errors import broken, listing, unknown
from ..schema import build


class Catalog:
    """Functions and classes by name, each in a module that is imported only when it is used."""

    def __init__(self, kind: str, places: Mapping[str, str], num_given: int, base: type | None = None) -> None:
        """Make a catalog.

        Args:
            kind: the noun for an entry in errors.
            places: name -> `MODULE:FUNCTION` in this package.
            num_given: number of leading arguments of a function that are not options. base: class whose subclasses are
            also accepted, as `MODULE:CLASS`; None = only the names of `places`.
        """
        self.kind, self.places, self._num_given, self._base = kind, places, num_given, base

    def call(self, name: str, *given: Any, options: Mapping[str, Any]) -> Any:
        """Call a function; unknown, missing and wrong options are errors."""
        allowed = self.options(name)
        kind: type[Any] = make_dataclass("Options", [_item(option) for option in allowed.values()])
        values = {option: _from_text(allowed.get(option), value) for option, value in options.items()}
        return self.function(name)(*given, **vars(build(kind, values, f"{self.kind} {name}", what="option")))

    def options(self, name: str) -> dict[str, Parameter]:
        """Return the options of a function."""
        function = self.function(name)
        try:
            parameters = signature(function, eval_str=True).parameters
        except NameError as error:
            raise ValueError(f"the types of the options of {self.kind} {name!r} cannot be read: {error}") from None
        return dict(list(parameters.items())[self._num_given :])

    def function(self, name: str) -> Callable[..., Any]:
        """Import a function or class."""
        if name in self.places:
            module, _, function = self.places[name].partition(":")
            found: Callable[..., Any] = getattr(import_module(module, __package__), function)
            return found
        if self._base is None or ":" not in name:
            raise ValueError(unknown(self.kind, name, self.places) + (", or MODULE:CLASS" if self._base else ""))
        return self._import_class(name, self._base)

    def _import_class(self, name: str, base: type) -> type:
        module, _, attribute = name.partition(":")
        try:
            found = getattr(import_module(module), attribute)
        except Exception as error:  # importing the user's module may raise any error
            raise ValueError(broken(f"the {self.kind} {name!r} cannot be imported", error)) from error
        if not (isinstance(found, type) and issubclass(found, base)):
            wanted = f"{base.__module__}.{base.__name__}"
            raise ValueError(f"{name!r} is not a {self.kind}: it must be a subclass of {wanted}")
        if missing := getattr(found, "__abstractmethods__", None):
            raise ValueError(f"the {self.kind} {name!r} lacks a method: {listing(sorted(missing))}")
        return found


def _item(option: Parameter) -> tuple[str, Any, Any]:
    """Return name, type and default of an option, for `make_dataclass`."""
    hint = Any if option.annotation is Parameter.empty else option.annotation
    return option.name, hint, field(default=MISSING if option.default is Parameter.empty else option.default)


def _from_text(option: Parameter | None, value: Any) -> Any:
    """Return an option's value: text is read as YAML, unless the option itself may be text or is unknown."""
    if not isinstance(value, str) or option is None or _may_be_text(option.annotation):
        return value
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        return value


def _may_be_text(hint: Any) -> bool:
    return hint is str or (get_origin(hint) in (Union, UnionType) and str in get_args(hint))
