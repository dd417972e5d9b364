"""Command line of `bot train`: tyro parses it, and two kinds of wrong flags have an explanation of their own."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import tyro

from ..text import printable
from .run_options import ResumeOptions

T = TypeVar("T")


def parse(kind: type[T], args: list[str], default: Any = None) -> T:
    """Parse the flags of a new or resumed training; `default` holds the experiment's settings."""
    if default is not None and {"-h", "--help"} & set(args):
        default = _printable(default)
    _, unknown = tyro.cli(kind, prog="bot train", args=args, default=default, return_unknown_args=True)
    refused = [arg.split("=")[0] for arg in unknown]
    if refused and issubclass(kind, ResumeOptions):
        raise ValueError(
            f"a resumed run keeps its settings, so {refused[0]!r} is refused; "
            "`bot train --resume RUN --help` lists the flags that it takes"
        )
    for flag in refused:
        if meant := _written_out(flag, default):
            raise ValueError(f"unknown flag {flag!r}; did you mean {meant!r}?")
    options: T = tyro.cli(kind, prog="bot train", args=args, default=default)  # or an error, if a flag is unknown
    return options


def _printable(value: Any) -> Any:
    """Return settings with printable texts; the help shows them, and they may come from a file."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, tuple | list):
        return type(value)(map(_printable, value))
    if isinstance(value, Mapping):
        return {_printable(key): _printable(entry) for key, entry in value.items()}
    if not is_dataclass(value) or isinstance(value, type):
        return value
    shown = copy(value)
    for item in fields(value):
        object.__setattr__(shown, item.name, _printable(getattr(value, item.name)))
    return shown


def _written_out(flag: str, default: object) -> str | None:
    """Return the setting that a flag such as `--imitation.lr` or `--lr` names by its initials."""
    section, _, short = flag.removeprefix("--").rpartition(".")
    for name, settings in vars(default).items():
        if section in ("", name) and is_dataclass(settings):
            for item in fields(settings):
                if "".join(word[0] for word in item.name.split("_")) == short:
                    return f"--{name}.{item.name.replace('_', '-')}"
    return None
