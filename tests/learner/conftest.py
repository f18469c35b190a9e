"""Fixtures of the learner host's tests."""

import functools
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parent / "processes"))  # made_up.py

import parts_world


@pytest.fixture
def make_parts(tmp_path: pathlib.Path) -> parts_world.Make:
    return functools.partial(parts_world.PartsWorld, tmp_path)
