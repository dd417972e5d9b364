"""Robot policies whose attention follows the robot's body."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .body.graph import BodyGraph
    from .body.layout import Layout, Term
    from .model.config import PolicyConfig
    from .model.policy import Critic, Policy

__version__ = "0.1.0"
__all__ = ["BodyGraph", "Critic", "Layout", "Policy", "PolicyConfig", "Term"]

_HOMES = {
    "BodyGraph": "body.graph",
    "Layout": "body.layout",
    "Term": "body.layout",
    "PolicyConfig": "model.config",
    "Policy": "model.policy",
    "Critic": "model.policy",
}


_MODULES = ("authors", "robots")


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that `import body_transformer` is quick and does not import torch."""
    from importlib import import_module

    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_MODULES])
