"""Qt for Procgen: where it is looked for, and what is said where it is not."""

import ctypes
import importlib.machinery
import importlib.util

import pytest

from seedzero.core import errors
from seedzero.envs import envpool_env


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package PyQt5 of two libraries; returns the paths that are loaded."""
    library = tmp_path / "PyQt5" / "Qt5" / "lib"
    library.mkdir(parents=True)
    for name in ("libQt5Core.so.5", "libicuuc.so.56", "libQt5Widgets.so.5"):
        (library / name).touch()
    spec = importlib.machinery.ModuleSpec("PyQt5", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path / "PyQt5")]
    monkeypatch.setattr(importlib.util, "find_spec", {"PyQt5": spec}.get)
    loaded = []
    monkeypatch.setattr(ctypes, "CDLL", lambda path, mode: loaded.append((path.rpartition("/")[2], mode)))
    return loaded


def test_libraries_are_loaded_for_all_behind_those_that_they_need(installed):
    envpool_env.load_qt()
    assert installed == [("libicuuc.so.56", ctypes.RTLD_GLOBAL), ("libQt5Core.so.5", ctypes.RTLD_GLOBAL)]


@pytest.mark.usefixtures("installed")
def test_a_library_that_does_not_load_is_told(monkeypatch):
    def fail(path, mode):
        raise OSError("wrong ELF class")

    monkeypatch.setattr(ctypes, "CDLL", fail)
    with pytest.raises(errors.EnvironmentFailure, match="wrong ELF class"):
        envpool_env.load_qt()


def test_without_qt_the_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    envpool_env.load_qt()  # other environments do without
    with pytest.raises(errors.EnvironmentFailure, match=r"'Coinrun-v0' .*Qt 5; .* pip install .*'PyQt5-Qt5<"):
        envpool_env.check_qt("Coinrun-v0")
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: "libQt5Core.so.5")
    envpool_env.check_qt("Coinrun-v0")  # the system's
