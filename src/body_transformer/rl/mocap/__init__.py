"""mocap-expert: one policy that tracks many motion-capture clips with dm_control's CMU humanoid."""

from .. import envs  # noqa: F401  (imports mjlab first)
