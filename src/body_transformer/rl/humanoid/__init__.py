"""The paper's humanoid tasks on mjlab: humanoid-mod, humanoid-hill, humanoid-board."""

# First of all: mjlab imports its plug-ins, and so this package, while it is being imported itself. Were it imported by
# one of our modules, that module would be met half done.
import mjlab  # noqa: F401
