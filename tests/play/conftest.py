"""The agent's programs are compiled once for these tests."""

from policies import programs_are_shared

__all__ = ["programs_are_shared"]
