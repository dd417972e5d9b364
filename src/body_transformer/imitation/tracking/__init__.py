"""The built-in task: a humanoid, held at the torso, follows smooth joint motions."""
