"""The command that installs a package."""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
from importlib import metadata

import pytest

from seedzero.core import packages


def _required(name: str) -> list[str]:
    assert name == "seedzero"
    return ["numpy<3,>=2.0", 'gymnasium[box2d]<2,>=1.4; extra == "box2d"', 'envpool==1.2.5; extra == "envpool"']


def test_it_names_this_python_and_the_versions_that_seedzero_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", _required)
    monkeypatch.setattr(sys, "executable", "/a home/.venv/bin/python")
    command = packages.install_command("gymnasium[box2d]", "envpool", "other")
    assert command == "'/a home/.venv/bin/python' -m pip install 'gymnasium[box2d]<2,>=1.4' envpool==1.2.5 other"


def test_a_shell_finds_the_pip_of_this_environment() -> None:
    python, *words = shlex.split(packages.install_command("numpy"))
    assert words[:3] == ["-m", "pip", "install"]
    script = "import pip, sys; print(sys.prefix)"
    assert subprocess.check_output([python, "-c", script], text=True) == f"{sys.prefix}\n"


def test_an_environment_without_pip_is_uv_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", _required)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert packages.install_command("envpool") == f"uv pip install --python {sys.executable} envpool==1.2.5"


def test_a_clone_that_nobody_installed_asks_for_no_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "requires", requires)
    assert packages.install_command("gymnasium[box2d]").endswith(" -m pip install 'gymnasium[box2d]'")


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("it needs x: /v/python -m pip install 'x<2'", "/v/python -m pip install 'x<2'"),
        ("it needs x: '/a home/python' -m pip install x y", "'/a home/python' -m pip install x y"),
        ("it needs x: uv pip install --python /v x", "uv pip install --python /v x"),
        ("it needs the python of pip", ""),
    ],
)
def test_the_command_at_the_end_of_a_line_is_found(line: str, command: str) -> None:
    assert packages.command_at_the_end(line) == command
