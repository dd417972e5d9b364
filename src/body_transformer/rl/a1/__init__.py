"""The paper's real-robot task on mjlab: a1-walk, a Unitree A1 over irregular ground."""

from contextlib import suppress

# First of all, as in rl/humanoid: mjlab imports its plug-ins, and so this package, while it is being imported itself.
with suppress(ModuleNotFoundError):
    import mjlab  # noqa: F401
