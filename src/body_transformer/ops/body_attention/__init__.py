"""Attention over a fixed sparse mask."""

from .backends import BACKENDS
from .choose import choose_backend
from .op import body_attention

__all__ = ["BACKENDS", "body_attention", "choose_backend"]
