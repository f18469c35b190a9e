"""Devices share the work in one of three ways; how each runs is tested beside its file."""

from __future__ import annotations

from typing import Any

import fake_agent
import jax
import pytest

from seedzero.device import apart, host_frames
from seedzero.device import mesh as meshes
from seedzero.device import programs as device_programs
from seedzero.device import setup as setups
from seedzero.device import strategy as strategies
from seedzero.replay import data as sources


def _setup(data: sources.Data = fake_agent.ONE_ROW, *, num_acting: int = 0) -> setups.Setup:
    setup = fake_agent.make_setup(fake_agent.make(data), 1)
    mesh, learners = meshes.split(meshes.make(2), num_acting) if num_acting else (setup.mesh, None)
    return setup._replace(mesh=mesh, learners=learners)


def _choose(setup: setups.Setup, *, on_host: bool = False) -> strategies.Strategy:
    return device_programs.choose_strategy(setup, on_host=on_host, on_ready=lambda: None)


def test_devices_alike_is_the_strategy_that_does_nothing_else() -> None:
    strategy = _choose(_setup())
    assert (
        type(strategy) is strategies.Strategy
        and strategy.holds_frames
        and strategy.is_ready
        and not strategy.takes_turns
    )
    rings: Any = object()
    params: Any = object()
    assert (
        strategy.begin(rings) is strategy.whole(rings) is rings
        and strategy.publish(params) is params
        and strategy.is_there(params)
    )
    assert strategy.lanes(3) == (3,)
    assert not strategy.is_apart


def test_the_host_keeps_frames_where_that_is_asked_for() -> None:
    strategy = _choose(_setup(), on_host=True)
    assert isinstance(strategy, host_frames.FramesWithHost) and not strategy.holds_frames and strategy.lanes(2) == (2,)
    strategy.close()


@pytest.mark.parametrize(("max_lag", "most"), [(1, 1), (2, apart.MOST_UPDATES)])
def test_learning_devices_have_their_own_lane_and_take_turns_if_needed(max_lag: int, most: int) -> None:
    queue = sources.Queue(length=1, batch_size=4, max_lag=max_lag, wait_seconds=0.0)
    strategy = _choose(_setup(queue, num_acting=1))
    assert (
        isinstance(strategy, apart.Apart) and strategy.lanes(3) == (3, most) and strategy.takes_turns == (max_lag == 1)
    )
    params = jax.numpy.zeros(2)
    assert strategy.publish(params).sharding.device_set == {jax.devices()[0]}
    assert strategy.is_apart
