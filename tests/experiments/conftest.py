"""Scripts of experiments/ are importable by name."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[2] / "experiments"))
