"""Export a policy with its contract, and run it on a robot in real time, within safety limits."""
