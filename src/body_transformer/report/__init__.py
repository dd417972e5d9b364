"""Runs -> tables, curves, one HTML page; reads files only."""
