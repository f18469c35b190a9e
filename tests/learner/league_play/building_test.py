"""Decisions of a league's builder are carried out: snapshots, resets, retirements."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jax
import loop_world
import numpy as np
import pytest

from seedzero.config import configs, options
from seedzero.core import errors
from seedzero.device import batches, states
from seedzero.league import builders, members
from seedzero.learner.league_play import league_seating, snapshot_pools
from seedzero.learner.loop import players
from seedzero.monitoring.metrics import counts

SETTINGS: dict[str, options.Value] = {"league.builder": "builders_of_tests:nothing", "league.main_exploiters": 1}


class World:
    """A loop of two learning players in a league, whose builder returns `actions`."""

    def __init__(self, device: loop_world.Device, monkeypatch: pytest.MonkeyPatch, *, max_players: int = 0) -> None:
        self.actions: list[builders.Action] = []
        self.asked: list[Any] = []
        monkeypatch.setattr(builders, "load", lambda name: self._build)
        monkeypatch.setattr(builders, "run", lambda builder, *args, name: builder(*args))
        settings = {**SETTINGS, "league.max_players": max_players}
        config = configs.override(configs.Config(), {**settings, "worker.envs_per_group": 2})
        pool = snapshot_pools.ParamsPool(self._lost, lambda params: params, on_devices=9, on_host=9)
        seating = league_seating.LeagueSeating(
            config, device.setup.spec, 4, pool, lambda number: f"{number:012x}", print
        )
        self.seating = seating
        self.world = loop_world.World(device, seating, **{name.replace(".", "__"): v for name, v in settings.items()})
        for player, name in zip(self.world.players, seating.members.learning, strict=True):
            player.name = name
            player.mine = np.arange(4) // 2 == len(seating.live)
            seating.live = {**seating.live, name: player}
        self.main, self.exploiter = self.world.players

    def _lost(self, name: str) -> Any:
        raise errors.CheckpointError(f"player {name}: params is missing")

    def _build(self, *args: Any) -> list[builders.Action]:
        self.asked.append(args)
        return self.actions

    def build(self, *actions: builders.Action, num_updates: int = 100) -> None:
        self.actions = list(actions)
        self.main.num_updates = num_updates - self.exploiter.num_updates
        self.world.building.after_update()


@pytest.fixture
def world(device: loop_world.Device, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(device, monkeypatch)


def _numbers(tree: Any) -> np.ndarray:
    return np.concatenate([[], *(np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree))])


@pytest.mark.thorough
def test_a_builder_runs_at_fixed_counts_of_all_updates(world: World) -> None:
    world.exploiter.num_updates = 40
    for number in (99, 100, 101, 200):
        world.build(num_updates=number)
    assert len(world.asked) == 2
    pool, _, counts, arguments, key = world.asked[0]
    assert pool == world.seating.members and arguments == {}
    assert {name: count.updates for name, count in counts.items()} == {"main": 60, "main_exploiter_0": 40}
    assert key != world.asked[1][-1]


def test_a_snapshot_is_kept_with_its_parent_and_reason(world: World) -> None:
    world.build(builders.Action("freeze", "main_exploiter_0", reason="wins"))
    (name,) = world.seating.frozen()
    assert world.world.frozen == [name] and members.is_frozen(name)
    member = world.seating.members.of(name)
    assert (member.parent, member.line, member.reason) == ("main_exploiter_0", "main_exploiter", "wins")
    assert world.world.decisions == []  # its saving notes it


def test_a_retired_player_keeps_its_counts_and_is_drawn_no_more(world: World) -> None:
    world.build(builders.Action("freeze", "main"))
    (name,) = world.seating.frozen()
    world.build(builders.Action("retire", name, reason="old"))
    assert world.seating.members.of(name).retired and world.seating.frozen() == (name,)
    assert name not in {opponent for home in world.seating._draws.homes for opponent in home.active}
    assert world.world.decisions == [{"event": "retire", "player": name, "reason": "old"}]


def test_a_player_meets_its_rival_alone(world: World) -> None:
    world.build(builders.Action("freeze", "main"))
    (name,) = world.seating.frozen()
    world.build(builders.Action("meet", "main", name, "first"))
    main, exploiter = world.seating._draws.homes
    assert set(main.active) == {name} != set(exploiter.active)
    assert world.world.decisions == [{"event": "meet", "player": "main", "source": name, "reason": "first"}]


def test_a_builder_may_ask_the_exact_judge(device: loop_world.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(device, monkeypatch)
    asked: list[Any] = []
    hooks = world.world.building._hooks
    world.world.building._hooks = hooks._replace(judge=lambda params: asked.append(params) or 1.25)
    world.build()
    counts = world.asked[-1][2]["main"]
    world.main.train = jax.tree.map(lambda x: x + 1 if x.dtype == np.float32 else x, world.main.train)  # not published
    assert counts.nash_conv() == 1.25
    ((judged,), newest) = asked, world.main.place.setup.agent.acting(world.main.train)
    assert np.array_equal(_numbers(judged), _numbers(newest))
    (noted,) = world.world.decisions
    assert noted == {"event": "judged", "player": "main", "nash_conv": 1.25, "version": 100, "env_steps": 0}
    assert world.world.reports == ["league: player main has a NashConv of 1.25"]


def test_without_seats_there_is_no_judge(world: World) -> None:
    world.build()
    with pytest.raises(ValueError, match="games of OpenSpiel with two seats"):
        world.asked[-1][2]["main"].nash_conv()


@pytest.mark.thorough
def test_a_reset_player_has_first_parameters_an_empty_replay_and_its_counts(world: World) -> None:
    player, setup = world.exploiter, world.exploiter.place.setup
    player.train = jax.tree.map(lambda x: x, states.init_train(setup, 77))._replace(num_updates=np.int32(9))
    player.num_updates, player.version = 9, 5
    weights = np.ones(player.place.rings.weight.shape, np.float32)
    player.place.rings = player.place.rings._replace(
        weight=jax.device_put(weights, player.place.rings.weight.sharding)
    )
    player.accounting._stored_per_shard[:] = 50
    world.build(builders.Action("reset", player.name, members.INITIAL, "stuck"))
    fresh = states.init_train(setup, player.seed)
    assert np.array_equal(_numbers(player.train.params), _numbers(fresh.params))
    assert np.array_equal(_numbers(player.train.opt_state), _numbers(fresh.opt_state))
    assert np.array_equal(_numbers(player.params), _numbers(setup.agent.acting(fresh)))  # acting takes them at once
    assert (int(player.train.num_updates), player.num_updates, player.version) == (9, 9, 9)
    assert np.asarray(player.place.rings.weight)[:, 0].tolist() == [1, 1, 0, 0]
    assert player.accounting.num_kept == 0 and player.rate_limiter.to_json()["pace"]["since"] == (
        9,
        player.accounting.ledger.counts.stored,
    )
    member = world.seating.members.of(player.name)
    assert (member.resets, member.source, member.reason) == (1, members.INITIAL, "stuck")
    (decision,) = world.world.decisions
    assert (decision["event"], decision["source"], decision["version"]) == ("reset", members.INITIAL, 9)


def test_resets_compile_the_initial_state_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made, make = [], states.train_maker
    monkeypatch.setattr(states, "train_maker", lambda setup: made.append(setup) or make(setup))
    for _ in range(2):
        world.build(builders.Action("reset", world.exploiter.name, members.INITIAL))
    assert len(made) == 1 and world.seating.members.of(world.exploiter.name).resets == 2


_AGENTS: dict[str, dict[str, options.Value]] = {
    "muzero": {**loop_world.MUZERO, "muzero.target_network_updates": 10},
    "ppo": {**loop_world.PPO, "reward.normalize": True, "network.normalize_observations": True},
    "vtrace": {**loop_world.VTRACE, "vtrace.popart": True},
}
_TAKEN = {
    "muzero": {"params", "target_params"},
    "ppo": {"params", "moments", "returns"},
    "vtrace": {"params", "returns"},
}
"""The fields of the train state that another player's parameters come with."""


@pytest.mark.thorough
@pytest.mark.parametrize("source", [members.INITIAL, "main", "snapshot"])
@pytest.mark.parametrize("agent", _AGENTS)
def test_a_reset_takes_parameters_with_the_statistics_of_their_values(
    agent: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(loop_world.without_programs(_AGENTS[agent]), monkeypatch)
    setup, player, main = world.main.place.setup, world.exploiter, world.main
    learned = [jax.tree.map(lambda x, by=by: x + by if x.dtype == np.float32 else x, main.train) for by in (1, 2)]
    player.train, main.train = learned
    main.publish()
    if source == "snapshot":
        world.build(builders.Action("freeze", "main"))
        (source,) = world.seating.frozen()
        main.train = jax.tree.map(np.copy, states.init_train(setup, 5))  # which goes on
    world.build(builders.Action("reset", player.name, source))
    fresh = states.init_train(setup, player.seed)
    for field in fresh._fields:
        taken = source != members.INITIAL and field in _TAKEN[agent]
        expected = getattr(learned[1] if taken else fresh, field)
        assert np.array_equal(_numbers(getattr(player.train, field)), _numbers(expected)), field
    jax.tree.map(lambda leaf: leaf.delete(), player.train)  # as an update does
    assert np.isfinite(_numbers(main.params)).all()


def test_a_queue_s_steps_are_forgotten_with_the_network_that_chose_them(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(loop_world.without_programs(loop_world.PPO), monkeypatch)
    player, slots, none = world.exploiter, np.array([2, 3]), np.zeros(2, bool)
    rows = loop_world.rows(slots)

    def act(num_rows: int, *, first: bool = False) -> None:
        for row in range(num_rows):
            player.accounting.record(rows._replace(first=none | (first and row == 0)), 0.0)

    act(loop_world.UNROLL + 2, first=True)  # an unroll each, and a step of the next one
    assert player.rate_limiter.num_waiting == 2 * (loop_world.UNROLL + 1)
    world.build(builders.Action("reset", player.name, members.INITIAL))
    assert player.rate_limiter.num_waiting == 0 and not player.accounting.can_sample
    act(1)  # the row that ends a step of the old network begins an unroll of the new one
    assert player.rate_limiter.num_waiting == 0
    found = player.accounting.ledger.counts
    assert (found.stored, found.pending, found.discarded) == (0, 2, {"player_reset": 2 * (loop_world.UNROLL + 2)})
    assert found.env_steps == 2 * (loop_world.UNROLL + 2)
    act(loop_world.UNROLL)
    fed = player.rate_limiter.feed(0, 0.0)
    assert fed.time[fed.weight > 0].tolist() == [loop_world.UNROLL + 2] * 2


def test_a_reset_to_lost_parameters_ends_the_run_by_name(world: World) -> None:
    world.build(builders.Action("freeze", "main"))
    (name,) = world.seating.frozen()
    world.seating.pool.forget(name)
    with pytest.raises(errors.CheckpointError, match=f"main_exploiter_0 cannot begin as {name}"):
        world.build(builders.Action("reset", "main_exploiter_0", name))


def test_matches_of_a_reset_player_are_void(world: World) -> None:
    world.seating._meetings._boards.live[:, 0] = True
    world.build(builders.Action("reset", "main_exploiter_0", members.INITIAL))
    assert (
        world.seating._meetings._boards.live[:, 0].tolist() == [True, True, False, False]
        and world.seating.num_matches()["void"] == 2
    )


@pytest.mark.parametrize("builder", ["past", "self_play"])
def test_builders_without_rules_of_updates_are_not_asked(
    builder: str, device: loop_world.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builders, "load", lambda name: pytest.fail(name))
    world = loop_world.World(device, None, league__builder=builder)
    world.building.after_update()
    assert world.building._builder is None


def test_a_player_whose_snapshot_is_refused_is_not_reset(world: World) -> None:
    world.world.building._hooks = world.world.building._hooks._replace(freeze=lambda snapshot: False)
    world.build(
        builders.Action("freeze", "main_exploiter_0"),
        builders.Action("reset", "main_exploiter_0", members.INITIAL),
        builders.Action("reset", "main", members.INITIAL),
    )
    found = world.seating.members
    assert (found.frozen, found.of("main_exploiter_0").resets, found.of("main").resets) == ((), 0, 1)


# ------------------------------------------------------------------------------------ players that come and go


@pytest.mark.thorough
@pytest.mark.parametrize("source", [members.INITIAL, "main", "snapshot"])
def test_an_added_player_begins_as_its_source_and_with_numbers_of_its_own(
    device: loop_world.Device, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    world = World(device, monkeypatch, max_players=4)
    main = world.main
    main.train = jax.tree.map(lambda x: x + 1 if x.dtype == np.float32 else x, main.train)
    main.publish()
    if source == "snapshot":
        world.build(builders.Action("freeze", "main"))
        (source,) = world.seating.frozen()
        main.train = states.init_train(main.place.setup, 77)  # which goes on
    world.build(builders.Action("add", "main_exploiter", "" if source == members.INITIAL else source, "stuck"))
    added = world.world.dispatcher.players[-1]
    fresh = states.init_train(added.place.setup, added.seed)
    given = _numbers(fresh.params) if source == members.INITIAL else _numbers(world.seating.params(source))
    assert np.array_equal(_numbers(added.train.params), given)
    assert np.array_equal(_numbers(added.params), given) and added.params is not main.params
    assert np.array_equal(_numbers(added.train.opt_state), _numbers(fresh.opt_state))
    assert (added.name, added.seed, added.num_updates, added.version) == ("main_exploiter_1", 2, 0, 0)
    assert world.seating.live["main_exploiter_1"] is added
    decision = {"event": "add", "player": "main_exploiter_1", "source": source, "reason": "stuck"}
    assert world.world.decisions == [decision]


def _at_home(world: World) -> list[list[int]]:
    return [np.flatnonzero(player.mine).tolist() for player in world.world.dispatcher.players]


def test_a_player_that_retires_is_saved_and_another_takes_its_groups(
    device: loop_world.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(device, monkeypatch, max_players=3)
    exploiter = world.exploiter
    exploiter.num_updates, exploiter.num_reanalyses = 7, 3
    forgotten: list[str] = []
    monkeypatch.setattr(world.seating.visitors, "forget", forgotten.append)
    world.build(builders.Action("add", "league_exploiter"))
    assert _at_home(world) == [[0, 1], [2, 3], []]  # there are as many groups as two players have
    expected = _numbers(exploiter.train.params)
    world.build(builders.Action("retire", "main_exploiter_0", reason="beaten"), num_updates=200)
    (name,) = world.seating.frozen()
    assert world.world.frozen == [name] and world.seating.members.of(name).reason == "beaten"
    assert np.array_equal(_numbers(world.seating.params(name)), expected)
    assert [player.name for player in world.world.dispatcher.players] == ["main", "league_exploiter_0"]
    assert "main_exploiter_0" in forgotten  # copies in other places
    assert _at_home(world) == [[0, 1], [2, 3]] and not world.seating.members.of("main_exploiter_0").learns
    *_, decision = world.world.decisions
    assert decision == {"event": "retire", "player": exploiter.name, "version": 7, "env_steps": 0, "reason": "beaten"}
    everyone = world.world.dispatcher.everyone  # the run's counts never fall
    assert (everyone.num_updates, everyone.num_reanalyses) == (200, 3)
    assert world.world.loop.look().num_updates == 200
    saved = json.loads(json.dumps(players.to_json(everyone)))
    assert saved["num_updates"] == 200 and saved["players"].keys() == {"main", "league_exploiter_0"}
    assert players.restore(everyone.learning, saved, has_replay=True).retired == everyone.retired


@pytest.mark.parametrize("max_players", [2, 4])
def test_a_player_that_cannot_retire_keeps_its_place_and_no_other(
    device: loop_world.Device, monkeypatch: pytest.MonkeyPatch, max_players: int
) -> None:
    world = World(device, monkeypatch, max_players=max_players)
    world.world.building._hooks = world.world.building._hooks._replace(freeze=lambda snapshot: False)
    ends = [builders.Action("retire", name) for name in ("main", "main_exploiter_0")]
    adds = [builders.Action("add", kind) for kind in ("main", "main_exploiter")]
    world.build(*ends, *adds, builders.Action("freeze", "main_exploiter_1"))
    expected = ("main", "main_exploiter_0", "main_1", "main_exploiter_1")
    assert world.seating.members.learning == expected[:max_players]
    assert world.world.dispatcher.players[:2] == (world.main, world.exploiter) and not world.seating.frozen()
    assert {decision["event"] for decision in world.world.decisions} <= {"add"}


def test_a_builder_that_adds_without_end_is_stopped_by_name(
    device: loop_world.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(device, monkeypatch, max_players=3)
    world.build(builders.Action("add", "main"))
    with pytest.raises(ValueError, match=r"3 players learn, and --league.max_players=3 allows no more"):
        world.build(builders.Action("add", "main"))


@pytest.fixture(scope="module")
def shared() -> loop_world.Device:
    """Rings that players share."""
    settings, spec = {**loop_world.MUZERO, **SETTINGS}, dataclasses.replace(loop_world.SPEC, num_players=2)
    return loop_world.make_device({**settings, "muzero.n_step": 2, "league.max_players": 3}, spec).without_refresh


@pytest.mark.thorough
def test_nobody_draws_the_rows_before_a_group_changed_its_home(
    shared: loop_world.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(shared, monkeypatch, max_players=3)
    loop, session = world.world, world.world.join()
    loop.play(session, 7)  # whole episodes of 3 steps, and 2 rows more
    kept = [player.accounting.num_kept for player in loop.dispatcher.players]
    assert kept == [10, 10] and (loop.rings.weight > 0).sum(1).tolist() == [5] * 4
    world.build(builders.Action("add", "main"), num_updates=300)
    world.build(builders.Action("retire", "main_exploiter_0"), num_updates=300)
    main, added = loop.dispatcher.players
    assert (loop.rings.weight > 0).sum(1).tolist() == [5, 5, 0, 0]
    assert (main.accounting.num_kept, added.accounting.num_kept, added.accounting.can_sample) == (10, 0, False)
    for value in (3.0, 4.0):  # the step that was pending is nobody's; the next one is the new home's
        loop.show(session, 1, value)
        loop.work()
    assert (loop.rings.weight > 0).sum(1).tolist() == [5, 5, 1, 1]
    assert [np.flatnonzero(loop.rings.first[slot]).tolist() for slot in (0, 2)] == [[0, 4], [0, 4, 7]]
    found = counts.total(loop.dispatcher.everyone.counts())
    assert found.acknowledged == found.stored + found.pending + sum(found.discarded.values())
    assert found.discarded == {"home_changed_pending": 2}
    assert (added.accounting.ledger.counts.stored, found.stored) == (2, 22)


def test_a_queue_goes_on_at_the_rows_where_another_player_left_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(loop_world.without_programs(loop_world.PPO), monkeypatch, max_players=3)
    session = loop_world.make_session([2, 3])
    rows = batches.join([loop_world.message(session, 0, 0.0, first=True)])
    for number in range(loop_world.UNROLL + 2):
        world.exploiter.accounting.record(rows._replace(first=np.full(2, number == 0)), 0.0)
    world.build(builders.Action("add", "main"), builders.Action("retire", "main_exploiter_0"))
    _, added = world.world.dispatcher.players
    for number in range(loop_world.UNROLL + 1):
        added.accounting.record(rows._replace(first=np.full(2, number == 0)), 0.0)
    fed = added.rate_limiter.feed(0, 0.0)
    assert fed.slot[fed.weight > 0].tolist() == [2, 3]
    assert fed.time[fed.weight > 0].tolist() == [loop_world.UNROLL + 2] * 2
    discarded = world.world.dispatcher.everyone.retired.steps.discarded
    assert discarded == {"home_changed": 2 * (loop_world.UNROLL + 1), "home_changed_pending": 2}


@pytest.mark.thorough
def test_players_that_have_retired_leave_nothing_on_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    others = jax.live_arrays()  # of earlier tests, kept: else they may be collected at any time
    world = World(loop_world.without_programs(loop_world.PPO), monkeypatch, max_players=3)
    found = list[tuple[int, int]]()
    for number in range(50):
        world.build(builders.Action("add", "main_exploiter", "main"), num_updates=100 * (number + 1))
        world.build(builders.Action("retire", f"main_exploiter_{number}"), num_updates=100 * (number + 1))
        world.asked.clear()  # which holds the players
        sizes = [array.nbytes for array in jax.live_arrays()]
        found.append((len(sizes) - len(others), sum(sizes)))
    assert len(world.seating.frozen()) == 50
    assert len(set(found[20:])) == 1  # once the caches of snapshots are full
