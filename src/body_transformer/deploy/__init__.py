"""From a policy to a robot: export, contract, runtime, safety, robots."""
