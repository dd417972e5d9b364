"""How many processes are worth starting."""

import os


def num_cores() -> int:
    """Those that this process may use; where several processes share them, OMP_NUM_THREADS says how many."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, max(1, int(threads))) if threads.isdecimal() else cores
