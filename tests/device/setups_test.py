"""What the device functions of a run are made from."""

from __future__ import annotations

from typing import Any

import fake_agent
import numpy as np
import pytest

from seedzero.agents import base, muzero
from seedzero.config import configs, options
from seedzero.core import errors, types
from seedzero.device import meshes, setups
from seedzero.replay import ring_store, sources

SPEC = types.EnvSpec((2,), "float32", 3)
SETTINGS: dict[str, options.Value] = {
    "batcher.max_batch": 16,
    "worker.envs_per_group": 4,
    "replay.capacity": 100,
    "replay.num_slots": 8,
    "replay.batch_size": 32,
    "evaluation.every_updates": 0,
    "network.width": 8,
    "network.head_width": 8,
}


def _make(num_devices: int = 1, **changes: options.Value) -> setups.Setup:
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    config = configs.override(configs.Config(), {**SETTINGS, **dotted})
    return setups.make(config, SPEC, meshes.make(num_devices))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts an agent into MuZero's place."""

    def put(agent: base.Agent) -> None:
        monkeypatch.setattr(muzero, "make", lambda config, spec, platform: agent)

    return put


def test_a_replays_rings_hold_their_share_of_the_capacity() -> None:
    setup = _make()
    # 100 steps of 8 slots: 13 each; one frame, the pending row, and the one that is overwritten next.
    assert setup.slot_length == 13 + 1 + 2
    assert (setup.batch_size, setup.capacity, setup.ahead) == (32, 100, True)
    assert (setup.layout.num_shards, setup.layout.num_train) == (1, 8)
    assert setup.sizes == (4, 8, 16)
    assert _make(network__frame_stack=4).slot_length == 13 + 4 + 2
    assert not _make(run__deterministic=True).ahead


def test_rings_for_environments_that_join_later_are_as_long_as_the_others() -> None:
    setup = _make(replay__num_envs=5)
    assert setup.slot_length == 20 + 1 + 2 and setup.layout.num_train == 8
    assert setup.capacity == 100  # of all steps the newest, whoever made them


def test_the_largest_batch_is_that_of_all_devices() -> None:
    setup = _make(2)
    assert setup.sizes == (2, 4, 8) and setup.max_rows == 16


def test_slots_and_rings_are_shared_by_those_that_act() -> None:
    setup = _make(4, training__acting_devices=1, replay__batch_size=33)
    assert setup.layout.num_shards == setup.mesh.devices.size == 1 and setup.learns_on.devices.size == 3
    together = _make(4)
    assert together.learners is None and together.learns_on == together.mesh
    with pytest.raises(errors.ConfigError, match=r"^32 windows .* 1 and 3 devices"):
        _make(4, training__acting_devices=1, replay__batch_size=32)


def test_a_queues_rings_hold_the_unrolls_that_may_wait_and_one_more() -> None:
    setup = _make(run__agent="vtrace", vtrace__unroll_length=5, vtrace__max_lag=3, vtrace__batch_size=6)
    # Whatever the replay's capacity is; beside the steps one frame and two rows.
    assert setup.slot_length == 4 * 5 + 1 + 2
    assert (setup.batch_size, setup.capacity) == (6, 2**31 - 1)
    stacked = _make(run__agent="vtrace", vtrace__unroll_length=5, vtrace__max_lag=3, network__frame_stack=4)
    assert stacked.slot_length == 4 * 5 + 4 + 2


@pytest.mark.parametrize(
    ("stride", "every", "slot_length"), [(1, (), 16), (4, (), 16), (5, (), 20), (6, (3,), 18), (24, (6, 1, 8), 24)]
)
def test_the_length_of_a_ring_is_a_multiple_of_strides(
    fake: Any, stride: int, every: tuple[int, ...], slot_length: int
) -> None:
    stored = {str(number): sources.Stored((), np.dtype(np.int32), number) for number in every}
    fake(fake_agent.make(fake_agent.ONE_ROW._replace(stride=stride), stored=stored))
    assert _make().slot_length == slot_length


@pytest.mark.parametrize(
    "data",
    [
        fake_agent.ONE_ROW._replace(stride=6),
        sources.Queue(length=4, batch_size=2, max_lag=1, wait_seconds=0.0),  # after a cut it begins at any row
    ],
)
def test_arrays_of_some_rows_alone_are_refused_where_windows_begin_at_others(fake: Any, data: Any) -> None:
    fake(fake_agent.make(data, stored={"state": sources.Stored((), np.dtype(np.int32), 4)}))
    with pytest.raises(errors.ConfigError, match=r"'state' .* 4th"):
        _make()


def test_rows_have_the_agents_arrays_and_the_version_that_acted() -> None:
    version = sources.Stored((), np.dtype(np.int32))
    setup = _make()
    assert setup.stored == {**setup.agent.stored, ring_store.VERSION: version}
    assert setups.version_names(setup.agent) == (ring_store.VERSION,)
    reanalysing = _make(reanalyse__per_insert=1.0)
    assert reanalysing.stored == {
        **reanalysing.agent.stored,
        ring_store.VERSION: version,
        ring_store.TARGET_VERSION: version,
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"replay__batch_size": 31}, "^31 windows .* 2 devices"),
        ({"run__agent": "vtrace", "vtrace__batch_size": 3}, "^3 windows .* 2 devices"),
        ({"reanalyse__per_insert": 1.0, "reanalyse__batch_size": 33}, "^33 reanalysed rows .* 2 devices"),
    ],
)
def test_batches_that_devices_cannot_share_are_refused(settings: dict[str, options.Value], message: str) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        _make(2, **settings)


@pytest.mark.parametrize(
    ("num_devices", "num_players", "devices", "players"),
    [
        (4, 10, [1, 1, 1, 1], [(0, 4, 8), (1, 5, 9), (2, 6), (3, 7)]),
        (8, 3, [3, 3, 2], [(0,), (1,), (2,)]),
        (8, 2, [4, 4], [(0,), (1,)]),
        (2, 5, [1, 1], [(0, 2, 4), (1, 3)]),
        (1, 4, [1], [(0, 1, 2, 3)]),
        (3, 3, [1, 1, 1], [(0,), (1,), (2,)]),
        (5, 2, [3, 2], [(0,), (1,)]),
        (5, 1, [5], [(0,)]),
    ],
)
def test_players_are_dealt_over_devices(
    num_devices: int, num_players: int, devices: list[int], players: list[tuple[int, ...]]
) -> None:
    found = setups.deal_players(num_devices, num_players)
    assert [len(place.devices) for place in found] == devices
    assert [place.players for place in found] == players
    used = [device for place in found for device in place.devices]
    assert used == list(range(sum(devices))) and sum(devices) <= num_devices


def test_a_place_leaves_devices_that_its_batches_cannot_use() -> None:
    found = setups.deal_players(8, 3, lambda number: 64 % number == 0)
    assert [place.devices for place in found] == [(0, 1), (2, 3), (4, 5)]
    alone = setups.deal_players(3, 1, lambda number: 64 % number == 0)  # is refused with its reason elsewhere
    assert [place.devices for place in alone] == [(0, 1, 2)]


def _config(**changes: options.Value) -> configs.Config:
    values: dict[str, options.Value] = {
        "league.freeze_every": 1000,
        "league.main_exploiters": 1,
        "worker.envs_per_group": 4,
        "worker.num_groups": 4,
        "replay.num_slots": 18,
        "replay.batch_size": 8,
        "batcher.max_batch": 8,
        "evaluation.every_updates": 10,
        "evaluation.num_envs": 2,
    }
    return configs.override(configs.Config(), values | {name.replace("__", "."): to for name, to in changes.items()})


def test_groups_take_the_places_in_turn_and_spread_over_a_places_devices() -> None:
    first, second = setups.plan_places(_config(), 4)
    groups = np.arange(16).reshape(4, 4)
    assert first.layout.num_slots == second.layout.num_slots == 18
    assert np.flatnonzero(first.layout.is_here).tolist() == groups[[0, 2]].reshape(-1).tolist()
    assert np.flatnonzero(second.layout.is_here).tolist() == groups[[1, 3]].reshape(-1).tolist()
    assert (
        setups.places_table([first.layout, second.layout]).tolist() == [0] * 4 + [1] * 4 + [0] * 4 + [1] * 4 + [-1] * 2
    )
    assert (first.layout.num_evaluate, second.layout.num_evaluate) == (2, 0)
    assert (first.sizes, second.sizes) == ((1, 2, 4), (1, 2, 4))
    for place, mine in ((first, groups[[0, 2]]), (second, groups[[1, 3]])):
        for slots in mine:  # half of a group is on each device
            shard, local = place.layout.place(slots)
            assert shard.tolist() == [0, 1, 0, 1] and (local < place.layout.train_per_shard).all()
        assert sorted(place.layout.ring(mine.reshape(-1)).tolist()) == list(range(8))
    shard, local = first.layout.place(np.array([18, 19]))  # those of evaluations are behind all training slots
    assert (shard.tolist(), local.tolist()) == ([0, 1], [4, 4])


def test_a_property_of_slots_goes_to_the_rings_of_a_place() -> None:
    _, second = setups.plan_places(_config(), 2)
    assert second.layout.own(np.arange(18)).tolist() == [4, 5, 6, 7, 12, 13, 14, 15]
    (alone,) = setups.plan_places(_config(), 1)
    assert alone.layout.own(np.arange(18)).tolist() == list(range(18)) and alone.layout.numbers is None
    assert setups.places_table([alone.layout]).tolist() == [0] * 18


def test_places_without_groups_are_named() -> None:
    with pytest.raises(errors.ConfigError, match=r"--replay\.num_slots=4 .*\b1\b.*\b2\b.*--replay\.num_slots=8"):
        setups.plan_places(_config(replay__num_slots=4), 2)


def test_the_start_tells_which_player_learns_where() -> None:
    names = ("main", "main_exploiter_0", "league_exploiter_0")
    assert setups.places_text(setups.deal_players(1, 3), names, 1) == ""
    two = setups.places_text(setups.deal_players(2, 3), names, 2)
    assert "main, league_exploiter_0 on device 0; main_exploiter_0 on device 1" in two
    eight = setups.places_text(setups.deal_players(8, 3, lambda number: 64 % number == 0), names[:2], 8)
    assert "main on devices 0, 1; main_exploiter_0 on devices 2, 3; players to come on devices 4, 5; 2 left" in eight
