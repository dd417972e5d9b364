"""Graph -> tokens -> encoder -> actions."""
