"""The paper's humanoid tasks: humanoid-mod, humanoid-hill and humanoid-board."""

from .. import envs  # noqa: F401  (imports mjlab first)
