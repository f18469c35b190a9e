"""What an agent does is compiled once for these tests."""

from policies import programs_are_shared

__all__ = ["programs_are_shared"]
