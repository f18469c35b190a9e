"""Makes importable what lies beside this file, and the stand-ins for packages that are not installed."""

from __future__ import annotations

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "stand_ins")]
