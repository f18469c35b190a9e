"""Matches of a league: opponents of slots, movers of rows, counts of results."""

from __future__ import annotations

import collections
import itertools
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import loop_world
import numpy as np
import pytest

from seedzero.config import configs, options
from seedzero.core import errors, types
from seedzero.device import apart, batches, meshes, states
from seedzero.league import matchmaking, members, payoffs
from seedzero.learner.league_play import league_seating, snapshot_pools
from seedzero.learner.loop import seatings

NUM_SLOTS, SIZE = 8, 4
GROUPS = np.repeat([0, 4], SIZE)


def _spec(seats: tuple[str, ...] = (), *, fixed: bool = False) -> types.EnvSpec:
    return types.EnvSpec((1,), "float32", 3, seats=seats, tasks=seats, fixed_seats=fixed)


def _make(
    reports: list[str] | None = None,
    *,
    has_seats: bool = False,
    agents: tuple[str, ...] = (),
    **settings: options.Value,
) -> league_seating.LeagueSeating:
    def load(name: str) -> Any:
        raise errors.CheckpointError(f"player {name}: params is missing")

    given: dict[str, options.Value] = {"league.freeze_every": 100, "league.redraw": 16, "league.self_play": 0.25}
    given |= {"worker.envs_per_group": SIZE}
    given |= {f"league.{name}": value for name, value in settings.items()}
    config = configs.override(configs.Config(), given)
    kept = snapshot_pools.ParamsPool(load, lambda params: params, on_devices=5, on_host=50)
    told = [] if reports is None else reports
    return league_seating.LeagueSeating(
        config,
        _spec(agents or ("first", "second") * has_seats, fixed=bool(agents)),
        NUM_SLOTS,
        kept,
        lambda number: f"{number:012x}",
        told.append,
    )


def _freeze(seating: league_seating.LeagueSeating, number: int) -> None:
    """Takes the snapshots p0, p1, ... of main."""
    for at in range(number):
        seating.freeze(0, states.PlayerSnapshot(f"p{at}"), version=at, env_steps=100 * (at + 1))


class Games:
    """Games of 3, 4 or 5 moves by slot, which the first mover wins in even slots, and draws in others."""

    def __init__(self, seating: league_seating.LeagueSeating, order: np.ndarray | None = None) -> None:
        self.seating = seating
        self.order = np.arange(NUM_SLOTS) if order is None else order  # of arrival
        self.row = np.zeros(NUM_SLOTS, int)
        self.length = 3 + np.arange(NUM_SLOTS) % 3

    def hands(self, slots: Sequence[int] = range(NUM_SLOTS)) -> list[tuple[np.ndarray, seatings.Hand]]:
        """Shows a row of each of some slots; returns the hands, each with its slots, [S] bool."""
        final = self.row == self.length
        first_won = final & (np.arange(NUM_SLOTS) % 2 == 0)
        # The reward is that of the mover of the row before: the first mover's where that row's number is even.
        reward = np.where(first_won, np.where((self.row - 1) % 2 == 0, 1.0, -1.0), 0.0)
        order = self.order[np.isin(self.order, slots)]
        joined = loop_world.rows(
            order,
            group=GROUPS[order],
            reward=reward[order].astype(np.float32),
            terminated=final[order],
            first=(self.row == 0)[order],
        )
        found = []
        for hand in self.seating.deal(joined, self.seating.home(joined.slot)):
            mine = np.zeros(NUM_SLOTS, bool)
            mine[joined.slot if hand.mine is None else joined.slot[hand.mine]] = True
            found.append((mine, hand))
        assert (np.sum([mine for mine, _ in found], axis=0) == np.isin(np.arange(NUM_SLOTS), slots)).all()
        return found

    def go_on(self, slots: Sequence[int] = range(NUM_SLOTS)) -> None:
        chosen = np.isin(np.arange(NUM_SLOTS), slots)
        self.row = np.where(chosen, np.where(self.row == self.length, 0, self.row + 1), self.row)

    def step(self) -> np.ndarray:
        """Shows a row of each slot; returns [S] the mover of each: a frozen player's parameters, or None."""
        return self.step_of(range(NUM_SLOTS))

    def step_of(self, slots: Sequence[int]) -> np.ndarray:
        """Shows a row of some slots, of groups at home with one player; returns as `step`."""
        movers = np.full(NUM_SLOTS, None, object)
        for mine, hand in self.hands(slots):
            for slot in np.flatnonzero(mine).tolist():
                movers[slot] = hand.params
        self.go_on(slots)
        return movers

    def play(self, num_steps: int) -> list[np.ndarray]:
        return [self.step() for _ in range(num_steps)]


def _seated(**settings: options.Value) -> league_seating.LeagueSeating:
    """Returns a league with room for players, of which main is there."""
    seating = _make(builder="my_rules:build", max_players=3, **settings)
    seating.live = {"main": _player("main")}
    return seating


class _Player(NamedTuple):
    name: str
    params: str
    place: None = None


def _player(name: str) -> Any:
    return _Player(name, f"{name}'s")


def test_an_added_player_takes_groups_whose_matches_are_void_and_the_others_go_on() -> None:
    seating = _seated()
    games = Games(seating)
    games.play(2)
    pool, added = members.add(seating.members, "main_exploiter", source="main")
    seating.change(pool, seating.payoff, live={**seating.live, added.name: _player(added.name)})
    assert [seating.home(np.array([slot])) for slot in (0, 4)] == [0, 1]
    assert [mine.tolist() for mine in seating.homes.mine()] == [[True] * 4 + [False] * 4, [False] * 4 + [True] * 4]
    assert seating.num_matches()["void"] == 4
    assert set(seating._draws.homes[1].active) == {"main"}
    ticks = [[games.step_of(slots) for slots in (range(4), range(4, 8))] for _ in range(60)]
    assert _movers([one for one, _ in ticks]) <= {None, "main_exploiter_0's"}
    assert _movers([other[4:] for _, other in ticks]) == {None, "main's"}  # not before the next match
    assert _movers([other[4:] for _, other in ticks[:2]]) == {None}
    assert seating.num_matches()["main_exploiter"] > 0


def test_matches_against_a_player_that_retires_are_void() -> None:
    seating = _seated(self_play=0.0)
    pool, added = members.add(seating.members, "main_exploiter")
    seating.change(pool, seating.payoff, live={**seating.live, added.name: _player(added.name)})
    games = Games(seating)
    seating._draws.homes[0].active = (added.name,)
    assert _movers([games.step_of(range(4)) for _ in range(2)]) == {None, "main_exploiter_0's"}
    num_void = seating.num_matches()["void"]
    snapshot = states.PlayerSnapshot("its last")
    pool, last = seating.members.freeze(added.name, "0b", version=3, env_steps=30)
    seating.pool.add(last.name, snapshot)
    seating.change(pool.retire(added.name), seating.payoff, live={"main": seating.live["main"]})
    assert seating.num_matches()["void"] == num_void + 4
    assert seating.frozen() == (last.name,) and seating.params(last.name) == "its last"
    assert _movers(games.play(60)) == {None, "its last"}


def test_a_checkpoint_brings_the_players_and_their_groups_back() -> None:
    seating = _seated()
    for kind in ("main_exploiter", "main"):
        pool, added = members.add(seating.members, kind)
        seating.change(pool, seating.payoff, live={**seating.live, added.name: _player(added.name)})
    pool = seating.members.retire("main_exploiter_0")
    seating.change(pool, seating.payoff, live={name: _player(name) for name in pool.learning})
    saved = json.loads(json.dumps(seating.to_json()))
    again = _make(builder="my_rules:build", max_players=3)
    again.restore(saved)
    assert again.members == seating.members and again.members.has_room
    assert [mine.tolist() for mine in again.homes.mine()] == [mine.tolist() for mine in seating.homes.mine()]
    assert again.to_json() == seating.to_json()
    assert [home.number for home in again._draws.homes] == [0, 2]
    saved["league"]["homes_of_groups"] = [0]
    with pytest.raises(ValueError, match=r"the homes of groups are \[0\]; expected 2"):
        again.restore(saved)


def _movers(ticks: list[np.ndarray]) -> set[Any]:
    return {mover for movers in ticks for mover in movers.tolist()}


def test_without_a_frozen_player_it_plays_against_itself_in_one_call() -> None:
    seating = _make()
    games = Games(seating)
    assert _movers(games.play(30)) == {None}
    table = {(row["type"], row["side"]): row for row in seating.payoff.table()}
    assert {kind for kind, _ in table} == {"self_play"}
    first, second = (table["self_play", side] for side in ("first", "second"))
    assert first["wins"] == second["losses"] > 0 == first["losses"] and first["draws"] == second["draws"] > 0
    assert first["games"] + second["games"] == 2 * seating.num_matches()["self_play"]


def test_a_frozen_player_moves_on_its_side_and_the_home_has_the_last_row() -> None:
    seating = _make(self_play=0.0)
    games = Games(seating)
    seating.freeze(0, states.PlayerSnapshot("old"), version=7, env_steps=100)
    seen = []
    for _ in range(60):
        row, final = games.row.copy(), games.row == games.length
        movers = games.step()
        assert set(movers[final].tolist()) <= {None}
        seen += list(zip(np.arange(NUM_SLOTS), row, final, movers == "old", strict=True))
    for slot in range(NUM_SLOTS):
        rows = [(row, old) for at, row, final, old in seen if at == slot and not final]
        length = games.length[slot]
        played = [rows[at : at + length] for at in range(0, len(rows), length)]
        sides = [int(match[0][1]) for match in played]  # 1: the frozen player moves first
        for match, side in zip(played, sides, strict=True):
            assert [bool(old) for _, old in match] == [(row + side) % 2 == 1 for row, _ in match]
        assert all(one != other for one, other in itertools.pairwise(sides))  # sides take turns
    counts = seating.num_matches()
    assert counts["past"] > 20 and counts["self_play"] == counts["void"] == 0
    table = seating.payoff.table()
    assert sum(row["games"] for row in table) == 2 * counts["past"]
    main = [row for row in table if row["player"] == "main"]
    assert {row["side"] for row in main} == {"first", "second"}
    assert all(row["losses"] == 0 for row in main if row["side"] == "first")  # the first mover never loses
    assert all(row["wins"] == 0 for row in main if row["side"] == "second")


def test_the_order_of_arrival_changes_nothing() -> None:
    orders = (np.arange(NUM_SLOTS), np.array([6, 1, 4, 7, 0, 3, 2, 5]))
    found = []
    for order in orders:
        seating = _make()
        games = Games(seating, order)
        moved = [movers.tolist() for movers in games.play(20)]
        for number in range(3):
            seating.freeze(0, states.PlayerSnapshot(f"p{number}"), version=number, env_steps=100 * (number + 1))
            moved += [movers.tolist() for movers in games.play(40)]
        found.append((moved, seating.to_json()))
    assert found[0] == found[1]
    assert {"p0", "p1", "p2"} <= {mover for movers in found[0][0] for mover in movers}


def test_a_group_has_two_opponents_at_most() -> None:
    seating = _make(self_play=0.0, active=8)
    games = Games(seating)
    _freeze(seating, 8)
    for _ in range(200):
        games.step()
        for group in (0, 4):
            playing = seating._meetings._boards.live[group : group + SIZE, 0]
            assert len(set(seating._meetings._opponent[group : group + SIZE][playing].tolist())) <= 2


def test_the_first_draws_are_as_their_keys_say() -> None:
    seating = _make(self_play=0.0)
    _freeze(seating, 3)
    games = Games(seating)
    games.step()
    for group in (0, 4):
        place = matchmaking.turn(seed=0, first_slot=group, epoch=0, number=0, size=4)
        names = {seating._meetings._names[at] for at in seating._meetings._opponent[group : group + SIZE].tolist()}
        assert names == {seating._draws.homes[0].active[place]}


def test_a_lost_or_reset_match_is_void() -> None:
    seating = _make()
    games = Games(seating)
    games.play(2)
    seating.lose(np.array([1, 2]))
    assert seating.num_matches()["void"] == 2
    seating.lose(np.array([1, 2]))
    assert seating.num_matches()["void"] == 2
    games.row[3] = 0  # an environment that began anew without an end
    games.step()
    assert seating.num_matches()["void"] == 3 and sum(seating.payoff.num_matches().values()) == 0


def test_a_checkpoint_brings_players_counts_and_opponents_back() -> None:
    seating = _make()
    games = Games(seating)
    for number in range(3):
        seating.freeze(0, states.PlayerSnapshot(f"p{number}"), version=number, env_steps=100 * (number + 1))
        games.play(40)
    saved = json.loads(json.dumps(seating.to_json()))
    again = _make()
    again.restore(saved)
    assert again.to_json() == seating.to_json() and again.frozen() == seating.frozen()
    assert len(again.frozen()) == 3 and again.num_matches()["past"] > 0
    assert again.win_rate() == seating.win_rate() is not None and _make().win_rate() is None


def test_matches_of_evaluations_are_counted_and_draw_no_opponents() -> None:
    seating = _make()
    before = seating.to_json()["league"]
    seating.count(payoffs.evaluated([("mcts-9/second", -1.0)] * 100))
    after = seating.to_json()["league"]
    always = [name for name in payoffs.TYPES if name != members.SCRIPTED]
    assert seating.num_matches() == {**dict.fromkeys(always, 0), "evaluation": 100, "void": 0}
    assert {**after, "payoff": {}} == {**before, "payoff": {}}
    again = _make()
    again.restore(seating.to_json())
    Games(again).play(8)
    Games(seating).play(8)
    assert again.to_json() == seating.to_json()


def test_snapshots_are_due_by_training_steps() -> None:
    seating = _make()
    assert [seating.freezes(0, steps) for steps in (0, 99, 100, 150)] == [False, False, True, True]
    name = seating.freeze(0, states.PlayerSnapshot("p"), version=3, env_steps=150)
    assert name == "main-000000000000"
    assert [seating.freezes(0, steps) for steps in (150, 199, 200)] == [False, False, True]
    again = _make()
    again.restore(seating.to_json())
    for one in (seating, again):
        one.remove(name)  # refused by a full disk, or lost: the next one is due as planned
        assert [one.freezes(0, steps) for steps in (150, 199, 200)] == [False, False, True]


@pytest.mark.parametrize(
    ("mode", "expected"), [("explore", types.EXPLORE), ("sample", types.SAMPLE), ("greedy", types.GREEDY)]
)
def test_opponents_move_by_the_setting(mode: str, expected: np.int8) -> None:
    seating = _make(self_play=0.0, opponents=mode)
    seating.freeze(0, states.PlayerSnapshot("old"), version=1, env_steps=100)
    joined = loop_world.rows(range(NUM_SLOTS), first=np.ones(NUM_SLOTS, bool), group=GROUPS)
    modes = {hand.params: hand.action_mode for hand in seating.deal(joined, 0)}
    assert modes == {None: types.EXPLORE, "old": expected}


@pytest.mark.parametrize("num_steps", [0, 2])
def test_the_league_goes_on_without_a_player_whose_files_are_damaged(num_steps: int) -> None:
    """Matches against it that are under way are void."""
    reports: list[str] = []
    seating = _make(reports, self_play=0.0)
    seating.freeze(0, states.PlayerSnapshot("old"), version=1, env_steps=100)
    games, (name,) = Games(seating), seating.frozen()
    assert ("old" in _movers(games.play(num_steps))) == (num_steps > 0)
    seating.pool.forget(name)  # and its files are damaged
    assert _movers(games.play(20)) == {None}
    assert seating.frozen() == () and len(reports) == 1 and name in reports[0] and "params is missing" in reports[0]
    found = seating.num_matches()
    assert (found["void"], found["past"]) == (NUM_SLOTS * (num_steps > 0), 0) and found["self_play"] > 0


def test_other_groups_are_refused_where_several_players_have_homes_in_them() -> None:
    settings: dict[str, options.Value] = {"league.builder": "alphastar", "league.main_exploiters": 1}
    seatings = []
    for size in (4, 2):
        config = configs.override(configs.Config(), {**settings, "worker.envs_per_group": size})
        pool = snapshot_pools.ParamsPool(lambda name: None, lambda params: params, on_devices=5, on_host=50)
        seatings.append(league_seating.LeagueSeating(config, _spec(), NUM_SLOTS, pool, str, print))
    assert [seating.home(np.array([4])) for seating in seatings] == [1, 0]
    with pytest.raises(errors.ResumeError, match=r"--worker\.envs_per_group=2: .*=4$"):
        seatings[1].restore(seatings[0].to_json())


def test_scripted_members_move_their_side_and_their_matches_count() -> None:
    seating = _make(self_play=0.0, members="random,mcts-9")
    games, sides = Games(seating), np.zeros(NUM_SLOTS, int)
    for _ in range(80):
        first, final = games.row == 0, games.row == games.length
        hands = games.hands()
        scripted = np.any([mine for mine, hand in hands if hand.is_scripted], axis=0)
        sides = np.where(first, scripted, sides)  # 1: the member moves first
        assert not np.any(scripted & final)
        np.testing.assert_array_equal(scripted, ((games.row + sides) % 2 == 1) & ~final)
        assert {(hand.bot, hand.given is None) for _, hand in hands if hand.is_scripted} <= {(0, False), (1, True)}
        assert all(hand.stored and hand.params is None for _, hand in hands)
        games.go_on()
    counts = seating.num_matches()
    assert counts["scripted"] > 60 and counts["self_play"] == counts["past"] == 0
    assert sum(row["games"] for row in seating.payoff.table()) == 2 * counts["scripted"]
    found = {row["opponent"]: row["games"] for row in seating.payoff.table() if row["player"] == "main"}
    assert found.keys() == {"random", "mcts-9"}
    saved = json.loads(json.dumps(seating.to_json()))
    again = _make(self_play=0.0, members="random,mcts-9")
    again.restore(saved)
    assert again.to_json() == seating.to_json() and again.num_matches() == counts


@pytest.mark.thorough
def test_active_sets_of_a_run_match_the_shares_of_matchmaking() -> None:
    """A chi-square test of all sets that were drawn while matches were played."""
    from scipy import stats

    seating = _make(members="random,mcts-9", weighting="uniform", redraw=1, active=1)
    _freeze(seating, 2)
    games, drawn, number = Games(seating), collections.Counter[str](), seating._draws.homes[0].num_sets
    while number < 2_000:
        games.step()
        home = seating._draws.homes[0]
        if home.num_sets > number:
            number = home.num_sets
            drawn.update(home.active)
    shares = matchmaking.chances(seating.payoff, seating.members, "main", seating._settings)
    assert shares == {"main": 0.25, **dict.fromkeys(("random", "mcts-9", *seating.frozen()), 0.75 / 4)}
    expected = [share * drawn.total() for share in shares.values()]
    assert stats.chisquare([drawn[name] for name in shares], expected).pvalue > 0.01


class SeatGames:
    """Games of two seats that move in turn, 2 rows each, in two groups: slots 2g and 2g + 1 are game g's rows.

    The seat in the first chair wins a point. Chairs rotate.
    """

    def __init__(self, seating: league_seating.LeagueSeating) -> None:
        self.seating = seating
        self.time = 0

    def step(self) -> dict[int, tuple[str | None, bool]]:
        """Returns by slot the mover, None: the home, and whether the row is stored."""
        number, at = divmod(self.time, 4)
        chair = (np.arange(NUM_SLOTS) + number) % 2
        final = at == 3
        shown = np.full(NUM_SLOTS, True) if final else chair == at % 2
        slots = np.flatnonzero(shown).astype(np.int32)
        joined = loop_world.rows(
            slots,
            group=GROUPS[slots],
            game=slots // 2 * 2,
            reward=np.where(final, np.where(chair == 0, 1.0, -1.0), 0.0)[slots].astype(np.float32),
            terminated=np.full(len(slots), final),
            first=np.full(len(slots), at < 2),
            task=chair[slots].astype(np.int32),
        )
        self.time += 1
        found: dict[int, tuple[str | None, bool]] = {}
        for hand in self.seating.deal(joined, self.seating.home(joined.slot)):
            mine = slots if hand.mine is None else slots[hand.mine]
            assert not found.keys() & set(mine.tolist())
            found |= dict.fromkeys(mine.tolist(), (hand.params, hand.stored))  # type: ignore[arg-type]
        assert found.keys() == set(slots.tolist())
        return found


def test_of_two_seats_the_home_has_the_first_row() -> None:
    seating = _make(has_seats=True, self_play=0.5, redraw=4)
    games = SeatGames(seating)
    assert {found for _ in range(8) for found in games.step().values()} == {(None, True)}
    assert seating.num_matches()["self_play"] == 2 * NUM_SLOTS / 2
    seating.freeze(0, states.PlayerSnapshot("old"), version=7, env_steps=100)
    of_game = {}
    for tick in range(200):
        for slot, found in games.step().items():
            assert found == (None, True) if slot % 2 == 0 else found in ((None, True), ("old", False))
            if slot % 2 and tick >= 4:
                assert of_game.setdefault((tick // 4, slot), found) == found  # for a whole match
    assert set(of_game.values()) == {(None, True), ("old", False)}
    table = {(row["type"], row["player"], row["side"]): row for row in seating.payoff.table()}
    first, second = (table["past", "main", side] for side in ("first", "second"))
    assert first["games"] == first["wins"] > 20 < second["games"] == second["losses"]
    assert (first["mean_return"], second["mean_return"]) == (1.0, -1.0)


def test_a_seat_whose_player_is_lost_is_moved_by_the_home_and_not_stored() -> None:
    reports: list[str] = []
    seating = _make(reports, has_seats=True, self_play=0.0)
    seating.freeze(0, states.PlayerSnapshot("old"), version=1, env_steps=100)
    games = SeatGames(seating)
    games.step()  # the home's rows
    seating.pool.forget(seating.frozen()[0])
    movers = [games.step() for _ in range(3)]
    assert {found for tick in movers for slot, found in tick.items() if slot % 2} == {(None, False)}
    assert seating.frozen() == () and len(reports) == 1
    assert {found for _ in range(4) for found in games.step().values()} == {(None, True)}
    assert seating.num_matches()["past"] == 0 and seating.num_matches()["void"] == NUM_SLOTS / 2


def test_a_seat_whose_player_is_lost_before_the_homes_first_move_is_not_stored() -> None:
    seating = _make(has_seats=True, self_play=0.0)
    seating.freeze(0, states.PlayerSnapshot("old"), version=1, env_steps=100)
    games = SeatGames(seating)
    for _ in range(4):
        games.step()
    assert set(games.step().values()) == {("old", False)}, "the other seat moves first"
    before = seating.num_matches()
    seating.remove(seating.frozen()[0])  # without it the home plays against itself
    movers = [games.step() for _ in range(3)]
    assert {found for tick in movers for slot, found in tick.items() if slot % 2} == {(None, False)}
    assert seating.num_matches() == {**before, "void": NUM_SLOTS / 2}
    assert {found for _ in range(4) for found in games.step().values()} == {(None, True)}
    assert seating.num_matches() == {**before, "void": NUM_SLOTS / 2, "self_play": NUM_SLOTS / 2}


@pytest.mark.parametrize("score", ["win", "return"])
def test_each_seat_s_own_return_counts_where_they_do_not_sum_to_zero(score: str) -> None:
    """Both get 5; then the home of a game gets 1, the other one 10; then a seat of each game has no turn."""
    reports: list[str] = []
    seating = _make(reports, has_seats=True, self_play=0.0, score=score)
    seating.freeze(0, states.PlayerSnapshot("old"), version=1, env_steps=100)

    def play(*rewards: float) -> None:
        slots = np.arange(NUM_SLOTS, dtype=np.int32)
        slots = slots[slots % 2 < len(rewards)]
        of_game = {"task": slots % 2, "group": GROUPS[slots], "game": slots // 2 * 2}
        for last in (False, True):
            flags = {"first": np.full(len(slots), not last), "terminated": np.full(len(slots), last)}
            reward = np.array(rewards, np.float32)[slots % 2] * last
            seating.deal(loop_world.rows(slots, reward=reward, **flags, **of_game), 0)

    play(5.0, 5.0)
    (name,), games = seating.frozen(), NUM_SLOTS // 2
    assert seating.payoff.recent["main", name].score == pytest.approx(0.5 * sum(0.99**age for age in range(games)))
    play(1.0, 10.0)
    found = {row["player"]: row for row in seating.payoff.table()}
    assert (found["main"]["losses"], found["main"]["mean_return"]) == (games, 3.0)
    assert (found[name]["wins"], found[name]["draws"], found[name]["mean_return"]) == (games, games, 7.5)
    assert (seating.payoff.spread is None) == (score == "win") and len(reports) == 1
    play(3.0)
    assert seating.num_matches()["void"] == games and seating.num_matches()["past"] == 2 * games
    again = _make(reports, has_seats=True, self_play=0.0, score=score)
    again.restore(json.loads(json.dumps(seating.to_json())))
    assert again.payoff == seating.payoff and not again._meetings._boards.sums_to_zero and len(reports) == 1


def test_main_has_one_side_in_turn_and_evaluations_measure_it_alone() -> None:
    seating = _make(agents=("left_0", "left_1", "left_2", "right_0"), self_play=0.0)
    seating.freeze(0, states.PlayerSnapshot("old"), version=1, env_steps=100)
    slots = np.arange(NUM_SLOTS, dtype=np.int32)  # two games of three against one
    reward, everywhere = np.array([1, 1, 1, -1] * 2, np.float32), np.ones(NUM_SLOTS, bool)

    def shown(flag: str) -> batches.Batch:
        given = {"reward": reward, "task": slots % 4, "group": GROUPS, "game": GROUPS, flag: everywhere}
        return loop_world.rows(slots, **given)

    for mains in ([0, 1, 2, 7], [3, 4, 5, 6]):
        mine, theirs = seating.deal(shown("first"), 0)
        assert mine.own and mine.stored and np.flatnonzero(mine.mine).tolist() == mains
        assert theirs.params == "old" and not theirs.stored and np.flatnonzero(theirs.mine).size == 4
        seating.deal(shown("truncated"), 0)
    results = {(row["side"], row["wins"], row["losses"]) for row in seating.payoff.table() if row["player"] == "main"}
    assert results == {("first", 2, 0), ("second", 0, 2)} and seating.num_matches()["past"] == 4
    measured = seatings.measured(seating.sides, slots)
    assert measured.tolist() == [0, 1, 2, 7]
    (number, main), (_, others) = seating.evaluating(shown("first"), measured)
    assert number == 0 and main.own and np.flatnonzero(main.mine).tolist() == measured.tolist()
    assert others.is_scripted and not others.stored and others.given is not None and len(others.given) == 4


def _place(number: int) -> Any:
    mesh = meshes.part(meshes.make(2), (number,))
    return SimpleNamespace(number=number, setup=SimpleNamespace(mesh=mesh))


class World:
    """A player at home in the first of two places; `there` tells whether its newest parameters are computed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, lock_step: bool) -> None:
        self.home, self.other, self.there = _place(0), _place(1), True
        self.visitors = league_seating.Visitors(lock_step=lock_step)
        self.player: Any = SimpleNamespace(name="main", place=self.home)
        self.publish(0)
        monkeypatch.setattr(apart, "is_there", lambda tree: self.there)

    def publish(self, number: int) -> None:
        self.player.params = {"w": jax.device_put(jnp.full(2, float(number)), jax.devices()[0])}

    def seen(self) -> float:
        found = self.visitors.params(self.player, self.other)["w"]
        assert found.devices() == {jax.devices()[1]}
        return float(found[0])


def test_a_match_elsewhere_takes_the_newest_parameters_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, lock_step=False)
    assert world.seen() == 0
    world.there = False
    world.publish(1)
    assert world.seen() == 0  # an update is under way, and delays nobody
    world.there = True
    assert world.seen() == 1
    before = world.visitors.params(world.player, world.other)
    assert world.visitors.params(world.player, world.other) is before  # copied once
    assert world.visitors.params(world.player, world.home) is world.player.params


def test_in_lock_step_a_match_elsewhere_takes_the_newest_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, lock_step=True)
    world.there = False
    for number in range(3):
        world.publish(number)
        assert world.seen() == number


def test_copies_of_a_player_that_has_retired_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, lock_step=False)
    world.seen()
    world.visitors.forget("main_1")
    assert world.visitors._copies.keys() == {("main", 1)}
    world.visitors.forget("main")
    assert not world.visitors._copies
