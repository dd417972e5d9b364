"""Benchmarks: this package, its peers and the hardware's floor, timed in one run."""
