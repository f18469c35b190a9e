"""Loads Qt 5 from PyPI's package PyQt5-Qt5: Procgen draws with Qt, but EnvPool looks only for the system's."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import pathlib

from seedzero.core import errors, packages

PACKAGE = "PyQt5-Qt5"
_LIBRARIES = ("icudata", "icuuc", "icui18n", "Qt5Core", "Qt5Gui")
"""Each library needs the ones before it."""


def load() -> None:
    """Loads an installed Qt package for libraries loaded later. Raises EnvironmentFailure if that fails."""
    spec = importlib.util.find_spec("PyQt5")
    folders = (spec.submodule_search_locations or []) if spec else []
    try:
        for library in _LIBRARIES:
            for folder in folders:
                for path in sorted(pathlib.Path(folder, "Qt5", "lib").glob(f"lib{library}.so.*")):
                    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise errors.EnvironmentFailure(
            f"the package {PACKAGE} is installed here and does not load: {error}"
        ) from None


def check(name: str) -> None:
    """Raises EnvironmentFailure if neither the package nor the system provides Qt for an environment."""
    if importlib.util.find_spec("PyQt5") is None and not ctypes.util.find_library("Qt5Core"):
        command = packages.install_command(PACKAGE)
        raise errors.EnvironmentFailure(f"environment {name!r} needs Qt 5; on every machine with workers: {command}")
