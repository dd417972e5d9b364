"""Demonstrations -> policy: data, training, evaluation."""
