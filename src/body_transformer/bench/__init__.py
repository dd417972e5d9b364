"""How fast it is: ours, its peers and the hardware's floor, timed in one run."""
