"""Makes muzero_cases.py and agent_cases.py importable, which lie beside this file."""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
