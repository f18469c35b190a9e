"""Fixtures of the checkpoint tests."""

import pathlib
import sys
from collections.abc import Iterator

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import checkpoint_harness as harness


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> Iterator[harness.Disk]:
    disk = harness.Disk(tmp_path)
    yield disk
    disk.close()


@pytest.fixture
def two_steps(disk: harness.Disk) -> harness.Steps:
    """Two durable steps with replay; returns templates and what they held."""
    rng = np.random.default_rng(0)
    state, rings = harness.make_state(1), harness.go_on(harness.make_rings(), rng, 5)
    checkpointer = disk.open()
    held = []
    for step in (1, 2):
        checkpointer.save(step, state, {"step": step}, rings)
        held.append((harness.on_host(state), harness.on_host(rings)))
        state, rings = harness.make_state(2), harness.go_on(rings, rng, 3)
    checkpointer.wait()
    return state, rings, held
