"""Ids of environments in file names."""

from __future__ import annotations

import pytest

from seedzero.core import env_ids


@pytest.mark.parametrize(
    ("env_id", "name"),
    [
        ("catch", "catch"),
        ("remote", "remote"),
        ("gym:LunarLander-v3", "LunarLander-v3"),
        ("gym:MinAtar/Breakout-v1", "MinAtar-Breakout-v1"),
        ("gym:my_module:MyEnv-v0", "my_module-MyEnv-v0"),
        ("spiel:connect_four(rows=4,columns=5)", "connect_four-rows-4-columns-5"),
        ("python:../../x:make", "x-make"),
        ("python:ä:", "run"),
        ("gym:" + "x" * 300, "x" * 80),
    ],
)
def test_a_run_is_named_after_its_environment_without_family_and_separators(env_id: str, name: str) -> None:
    assert env_ids.file_name(env_id) == name
