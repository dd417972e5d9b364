"""How many processes are worth starting."""

import os


def num_cores() -> int:
    """Those that this process may use; of all that there are where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
