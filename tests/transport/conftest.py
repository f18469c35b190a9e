"""Makes wire.py importable, which lies beside this file, and serves a learner."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import wire

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "javascript"


@pytest.fixture(scope="module")
def node() -> str:
    """The program node, where the packages of the JavaScript examples are installed."""
    path = shutil.which("node")
    if path is None:
        pytest.skip("node is not installed")
    found = subprocess.run([path, "-e", "require('@grpc/proto-loader')"], cwd=FOLDER, capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"npm install has not been run in {FOLDER}")
    return path


@pytest.fixture
def learner() -> wire.Learner:
    return wire.Learner()


@pytest.fixture
def address(learner: wire.Learner) -> Iterator[str]:
    """The address of `learner`, which serves."""
    with wire.serving(learner) as bound:
        yield bound
