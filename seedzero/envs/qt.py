"""Qt 5 of PyPI's package PyQt5-Qt5: Procgen draws with Qt, and EnvPool looks for the system's alone."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import pathlib

from seedzero.core import errors

INSTALL = "pip install 'PyQt5-Qt5<6'"
_LIBRARIES = ("icudata", "icuuc", "icui18n", "Qt5Core", "Qt5Gui")
"""Each needs those before it."""


def load(name: str) -> None:
    """Loads Qt for libraries that are loaded later.

    Args:
      name: of the environment that needs it, for the message.

    Raises:
      EnvironmentFailure: neither the package nor the system has it, or the package's does not load.
    """
    spec = importlib.util.find_spec("PyQt5")
    folders = (spec.submodule_search_locations or []) if spec else []
    files = [
        path
        for library in _LIBRARIES
        for folder in folders
        for path in sorted(pathlib.Path(folder, "Qt5", "lib").glob(f"lib{library}.so.*"))
    ]
    if not files and not ctypes.util.find_library("Qt5Core"):
        raise errors.EnvironmentFailure(f"environment {name!r} needs Qt 5; on every machine with workers: {INSTALL}")
    try:
        for path in files:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise errors.EnvironmentFailure(f"environment {name!r} needs Qt 5, which does not load: {error}") from None
