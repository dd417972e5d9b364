"""The paper's computational analysis, rerun: the cost of masked attention, counted and timed on one CPU thread."""
