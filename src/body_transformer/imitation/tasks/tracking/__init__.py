"""The built-in task: a humanoid with a fixed torso follows smooth joint motions."""
