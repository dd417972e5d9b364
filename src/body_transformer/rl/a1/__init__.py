"""The paper's real-robot task: a1-walk, a Unitree A1 on irregular ground."""

from .. import envs  # noqa: F401  (imports mjlab first)
