"""A policy goes to a robot: exported with a contract, run in real time, kept within limits."""
