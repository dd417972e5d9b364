"""Settings for all tests."""

import os

os.environ.setdefault("MUJOCO_GL", "disabled")  # dm_control looks for a display when it is imported
