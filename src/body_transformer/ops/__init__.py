"""Attention mathematics; knows no robots."""
