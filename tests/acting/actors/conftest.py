"""The agent's programs are compiled once for these tests; tests/interfaces/serving is importable."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "interfaces" / "serving"))

from policies import programs_are_shared

__all__ = ["programs_are_shared"]
