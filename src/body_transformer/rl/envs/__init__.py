"""Environments: `interface` is what others use of them; `terms` is a task's list, `fast`, `cpu`, `mjlab` execute it."""

from contextlib import suppress

# mjlab imports its plug-ins, and so the tasks of this package, while it is being imported itself. It must therefore be
# imported before any module here. Where mjlab is missing, rl/registry.py gives the command that installs it.
with suppress(ModuleNotFoundError):
    import mjlab  # noqa: F401
