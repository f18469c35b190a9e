"""Makes wire.py importable, which lies beside this file, and serves a learner."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import wire


@pytest.fixture
def learner() -> wire.Learner:
    return wire.Learner()


@pytest.fixture
def address(learner: wire.Learner) -> Iterator[str]:
    """The address of `learner`, which serves."""
    with wire.serving(learner) as bound:
        yield bound
