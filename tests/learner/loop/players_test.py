"""A player's states go through its programs, and checkpoints bring its counters back."""

from __future__ import annotations

from typing import Any

import jax
import loop_world
import numpy as np
import pytest

from seedzero.core import types
from seedzero.device import apart, batches, states, steps
from seedzero.learner.loop import places, players
from seedzero.replay import ring_store
from seedzero.storage.checkpoints import trees


def _make(device: loop_world.Device, **functions: Any) -> players.Player:
    return loop_world.World(loop_world.replaced(device, **functions)).player


def _act(device: loop_world.Device, player: players.Player, num_inserts: int = 0, num_calls: int = 0) -> np.ndarray:
    """Acts on a batch in fresh memory; returns its actions."""
    player.place.carried = trees.copy(device.actor.carried)
    counters = steps.counters(num_inserts, 0, num_calls)
    return np.asarray(player.place.run_act(player.seed, player.params, player.mine, _batch(), counters))


def _batch() -> batches.Batch:
    session = loop_world.make_session([0, 1], [2, 3])
    waiting = [loop_world.message(session, group, 1.0, first=True) for group in (0, 1)]
    batch, _ = batches.assemble(
        waiting, batches.join(waiting), None, loop_world.SPEC, loop_world.LAYOUT, loop_world.SIZES, types.EXPLORE
    )
    return batch


def _numbers(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)])


def test_acting_keeps_the_parameters_of_the_last_publication(device: loop_world.Device) -> None:
    player = _make(device)
    first = _numbers(player.params)
    _act(device, player)
    player.run_update(0.0)
    assert (player.num_updates, player.version) == (1, 0)
    assert np.array_equal(_numbers(player.params), first)
    player.publish()
    assert player.version == 1
    assert np.array_equal(_numbers(player.params), _numbers(player.copy_params()))
    published = player.params
    player.run_update(0.0)  # donates what the copies were made from
    assert np.isfinite(_numbers(published)).all()


@pytest.fixture(scope="module")
def device_apart() -> loop_world.Device:
    """A device that acts, and one that learns."""
    return loop_world.make_device(loop_world.MUZERO, num_learning=1)


def test_parameters_act_once_they_are_on_the_devices_that_do(
    device_apart: loop_world.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[int] = []
    published: list[Any] = []
    monkeypatch.setattr(apart, "is_there", lambda params: any(params is published[index] for index in there))
    player = _make(device_apart)
    copy = player.place.strategy.copy

    def publish() -> None:
        player.run_update(0.0)
        player.publish()

    def copied(params: Any) -> Any:
        published.append(copy(params))
        return published[-1]

    monkeypatch.setattr(player.place.strategy, "copy", copied)
    for _ in range(3):
        publish()
    player.receive()
    assert (player.num_updates, player.version) == (3, 0)
    there.append(0)
    player.receive()
    assert player.version == 1 and player.params is published[0]
    there.append(2)  # the second gave way to it: only two are on their way
    player.receive()
    assert player.version == 3 and player.params is published[2]
    assert {leaf.sharding.device_set == {jax.devices()[0]} for leaf in jax.tree.leaves(player.params)} == {True}
    assert {leaf.sharding.device_set == {jax.devices()[1]} for leaf in jax.tree.leaves(player.train)} == {True}
    player.restore({**player.to_json(), "num_updates": 9}, has_replay=True)
    assert player.version == 9 and player.params is published[3]  # a run that resumes waits for them


def test_targets_are_refreshed_with_the_parameters_that_act(device_apart: loop_world.Device) -> None:
    seen: list[Any] = []

    def reanalyse(seed: Any, params: Any, rings: Any, counters: steps.Counters) -> Any:
        seen.append((params, int(counters.version)))
        return rings, np.zeros(3)

    player = _make(device_apart, reanalyse=reanalyse)
    player.run_update(0.0)
    player.run_reanalyse()
    assert seen == [(player.params, 0)]


def test_every_call_says_how_many_were_before_it(reanalysing: loop_world.Device) -> None:
    seen: list[tuple[int, ...]] = []

    def act(seed: Any, params: Any, actor: Any, batch: Any, counters: steps.Counters) -> Any:
        seen.append(tuple(map(int, counters)))
        return actor, np.zeros(4)

    def reanalyse(seed: Any, params: Any, rings: Any, counters: steps.Counters) -> Any:
        seen.append(tuple(map(int, counters)))
        return rings, np.zeros(3)

    player = _make(reanalysing, act=act, reanalyse=reanalyse)
    player.run_update(0.0)
    for num_inserts in (5, 6):
        _act(reanalysing, player, num_inserts, num_inserts - 5)
    player.run_reanalyse()
    player.run_reanalyse()
    own = True  # as in every call without a league
    assert seen == [(5, 0, 0, own), (6, 0, 1, own), (0, 1, 0, own), (0, 1, 1, own)]
    assert (player.num_updates, player.num_reanalyses) == (1, 2)


def test_players_of_other_seeds_share_programs_and_draw_otherwise(reanalysing: loop_world.Device) -> None:
    found = []
    for seed in (1, 1, 2):
        world = loop_world.World(reanalysing, run__seed=seed)
        assert world.player.place.programs is reanalysing.programs
        world.play(world.join(), 12)
        actions = [actions for _, actions, _ in world.replies]
        found.append((actions, world.gathered.means()["loss"], world.rings.stored["target_version"].tolist()))
    assert found[0] == found[1]
    # The first parameters and the frames are the same: the keys of acting, updates and reanalyses differ.
    assert [one != other for one, other in zip(found[0], found[2], strict=True)] == [True] * 3


def test_a_batch_of_one_shard_asks_for_the_program_of_its_size(device: loop_world.Device) -> None:
    player = _make(device)
    actions = _act(device, player)
    assert actions.shape == (4,) and set(actions.tolist()) <= {0, 1, 2}
    assert places.whole((player.place,)).cursor.tolist() == [1, 1, 1, 1]  # type: ignore[union-attr]


def test_a_checkpoint_holds_the_replay_with_its_frames(
    device: loop_world.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = np.ones(3)
    player = _make(device)
    monkeypatch.setattr(player.place.strategy, "whole", lambda rings: rings._replace(observation=frames))
    rings = places.whole((player.place,))
    assert isinstance(rings, ring_store.Rings) and rings.observation is frames
    assert player.state().keys() == states.parts(device.setup.agent, device.train).keys()


def test_a_queues_rings_hold_nothing_to_keep(queued: loop_world.Device) -> None:
    assert places.whole((_make(queued).place,)) is None


def test_counters_come_back_and_acting_takes_the_newest_parameters(reanalysing: loop_world.Device) -> None:
    player = _make(reanalysing)
    player.run_update(0.0)
    player.run_reanalyse()
    saved = player.to_json()
    assert (saved["num_updates"], saved["num_reanalyses"]) == (1, 1)
    again = _make(reanalysing)
    again.restore(saved, has_replay=True)
    assert again.to_json() == saved
    assert again.version == 1
