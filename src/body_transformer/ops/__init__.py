"""Attention operators over arbitrary masks, independent of robots."""
