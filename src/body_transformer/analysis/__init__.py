"""What masked attention costs, counted and timed as the paper does."""
