"""The paper's humanoid tasks on mjlab: humanoid-mod, humanoid-hill, humanoid-board."""

from contextlib import suppress

# First of all: mjlab imports its plug-ins, and so this package, while it is being imported itself. Were it imported by
# one of our modules, that module would be met half done. Where it is missing, rl/registry.py says what to install.
with suppress(ModuleNotFoundError):
    import mjlab  # noqa: F401
