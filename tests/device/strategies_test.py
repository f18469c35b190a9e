"""Devices share the work in one of three ways; how each runs is tested beside its file."""

from __future__ import annotations

from typing import Any

import fake_agent
import jax
import pytest

from seedzero.device import apart, device_programs, host_frames, meshes, setups, strategies
from seedzero.replay import sources


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
    assert strategy.begin(rings) is strategy.whole(rings) is rings
    assert strategy.lanes(3) == (3,)


def test_devices_alike_act_and_refresh_with_the_newest_parameters_at_once() -> None:
    strategy, source = _choose(_setup()), jax.numpy.arange(3.0)
    published = strategy.publish(strategies.Acting(source, 7))
    assert published is not None and published.version == 7 and strategy.receive() is None
    assert strategy.when_there()() is None
    newest, acting = strategies.Acting(source, 8), published
    assert strategy.reanalysing(newest, acting) is newest
    source.delete()  # an update donates them
    assert published.params.tolist() == [0, 1, 2]


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
    assert strategy.copy(jax.numpy.zeros(2)).sharding.device_set == {jax.devices()[0]}


def test_with_learners_apart_the_newest_copies_act_once_they_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[float] = []
    monkeypatch.setattr(apart, "is_there", lambda params: float(params) in there)
    strategy = _choose(_setup(num_acting=1))
    acting = strategies.Acting(jax.numpy.zeros(()), 0)
    for version in range(1, apart.MOST_COPIES + 2):
        newest = strategies.Acting(jax.numpy.float32(version), version)
        assert strategy.publish(newest) is None and strategy.receive() is None
        assert strategy.reanalysing(newest, acting) is acting  # the newest are elsewhere
    strategy.when_there()()
    there += [1.0, apart.MOST_COPIES + 1.0]  # the copies between gave way to the last
    found = strategy.receive()
    assert found is not None and (found.version, float(found.params)) == (apart.MOST_COPIES + 1,) * 2
    assert found.params.sharding.device_set == {jax.devices()[0]} and strategy.receive() is None


def test_a_deterministic_run_acts_with_a_publication_at_once() -> None:
    strategy = _choose(_setup(num_acting=1)._replace(ahead=False))
    found = strategy.publish(strategies.Acting(jax.numpy.ones(()), 1))
    assert found is not None and found.version == 1 and strategy.receive() is None
