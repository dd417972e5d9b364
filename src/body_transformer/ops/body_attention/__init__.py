"""Attention over a fixed sparse mask."""
