"""A robot file becomes a graph; observations and actions find their node."""
