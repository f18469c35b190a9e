"""The agent's programs are compiled once for these tests; the helper beside this file is importable."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from policies import programs_are_shared

__all__ = ["programs_are_shared"]
