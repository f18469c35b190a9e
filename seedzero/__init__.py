"""Distributed reinforcement learning: thin environment workers, one accelerator host."""

__version__ = "0.1.0"
