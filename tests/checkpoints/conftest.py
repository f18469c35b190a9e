"""Fixtures of the checkpoint tests."""

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from seedzero.checkpoints import checkpoint
from seedzero.checkpoints import checkpointer as checkpointers
from seedzero.config import sections

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import checkpoint_harness as harness


@pytest.fixture
def events() -> harness.Events:
    return harness.Events()


@pytest.fixture
def reopen(tmp_path: pathlib.Path, events: harness.Events) -> Iterator[harness.Open]:
    """Opens the directory as a new process would."""
    opened: list[checkpointers.Checkpointer] = []

    def open_one(**settings: Any) -> checkpointers.Checkpointer:
        limit = settings.pop("max_copy_bytes", checkpoint.MAX_COPY_BYTES)
        host, peers = settings.pop("host", None), settings.pop("peers", None)
        for one in opened:
            one.close()
        opened[:] = [
            checkpointers.Checkpointer(
                tmp_path,
                sections.CheckpointConfig(**settings),
                on_durable=events.durable.append,
                on_error=events.errors.append,
                host=host,
                peers=peers,
                max_copy_bytes=limit,
                clock=lambda: 1.5,
            )
        ]
        return opened[0]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def two_steps(reopen: harness.Open) -> tuple[Any, Any, list[Any]]:
    """Two durable steps with replay; returns templates and what they held."""
    rng = np.random.default_rng(0)
    state, rings = harness.make_state(1), harness.go_on(harness.make_rings(), rng, 5)
    checkpointer = reopen()
    held = []
    for step in (1, 2):
        checkpointer.save(step, state, {"step": step}, rings)
        held.append((harness.on_host(state), harness.on_host(rings)))
        state, rings = harness.make_state(2), harness.go_on(rings, rng, 3)
    checkpointer.wait()
    return state, rings, held
