"""Moves that no network chooses: whole matches against random moves and a bot, from the replies to the rings' rows."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import loop_world
import numpy as np
import pytest

from seedzero.config import configs, options
from seedzero.core import types
from seedzero.device import batches
from seedzero.envs import spiel, spiel_seats
from seedzero.learner.league_play import league_seating, snapshot_pools
from seedzero.learner.loop import rosters, scripted_moves, seatings
from seedzero.replay import frame_rows
from seedzero.transport import messages

BOT = "spiel:uniform_random"
MEMBERS: dict[str, options.Value] = {
    "league.builder": "self_play",
    "league.members": f"random,{BOT}",
    "league.self_play": 0.3,
    "league.redraw": 8,
}
GAME = spiel.Game("tic_tac_toe")


def _seating(device: loop_world.Device, *, knows_bots: bool = True) -> league_seating.LeagueSeating:
    config = configs.override(configs.Config(), device.settings)
    kept = snapshot_pools.ParamsPool(lambda name: None, lambda params: params, on_devices=1, on_host=1)
    return league_seating.LeagueSeating(
        config,
        device.setup.spec,
        loop_world.LAYOUT.num_train,
        kept,
        str,
        print,
        knows_bots=lambda slot: knows_bots,
    )


class Match:
    """Environments of a group that a world plays, with the bots that it names."""

    def __init__(self, world: loop_world.World, session: rosters.Session, group: int, env: Any) -> None:
        self.world, self.session, self.group, self.env = world, session, group, env
        self.step: types.EnvStep = env.reset([group * 10, group * 10 + 1])
        self.sequence, self.first = 0, np.ones(2, bool)
        self.played: list[np.ndarray] = []

    def go_on(self) -> None:
        """Shows the newest step, and plays the answer."""
        shown = np.ones(2, bool) if self.step.shown is None else self.step.shown
        session = self.session
        request = messages.StepRequest(
            session.session_id, session.role, self.group, self.sequence, self.step, self.first & shown
        )
        slots = session.slots[self.group]
        if session.num_seats:
            self.world.inbox.put(batches.seated(request, slots, 0.0, session.num_seats))
        else:
            self.world.inbox.put(batches.Message(request, slots, 0.0))
        self.world.work()
        _, actions, _ = self.world.replies[-1]
        given = np.array(actions, np.int32)
        if numbers := self.world.bots[-1]:
            given = self.env.with_bots(given, [("", BOT)[number] for number in numbers])
        self.first = np.where(shown, self.step.final, self.first)
        self.step, self.sequence = self.env.step(given), self.sequence + 1
        if numbers:
            self.step = self.step._replace(played=given)


@pytest.fixture(scope="module")
def playing() -> loop_world.Device:
    return loop_world.make_device({**loop_world.MUZERO, **MEMBERS, "muzero.n_step": 2}, GAME.spec)


def _world(device: loop_world.Device, num_seats: int = 0, **which: bool) -> tuple[loop_world.World, rosters.Session]:
    world = loop_world.World(device, _seating(device, **which))
    session = world.join()
    return world, session if not num_seats else world.people.begin(session.session_id, num_seats=num_seats)


def test_the_rings_hold_the_moves_that_were_played(playing: loop_world.Device) -> None:
    """Each row's action leads from its position to that of the next row, by the rules of the game."""
    world, session = _world(playing)
    matches = [Match(world, session, group, spiel.Games(GAME, 2)) for group in range(2)]
    for _ in range(40):
        for match in matches:
            match.go_on()
    rings, num_moves = world.rings, {True: 0, False: 0}
    times = np.arange(rings.weight.shape[1])
    observations = frame_rows.get(world.player.rings.observation, np.arange(4)[:, None], times)
    for slot in range(4):
        num_rows = int(rings.cursor[slot])
        state = None
        for row in range(num_rows - 1):  # the newest row's move is not known yet, where a bot made it
            state = GAME.initial() if rings.first[slot, row] else state
            np.testing.assert_array_equal(observations[slot, row], GAME.observe(state))
            if not rings.terminated[slot, row]:
                state = GAME.apply(state, int(rings.stored["action"][slot, row]))
                num_moves[bool(rings.stored["own"][slot, row])] += 1
        assert num_rows == 40
    assert num_moves[True] > num_moves[False] > 20
    counts = world.loop.look().counts
    assert (counts.stored, counts.acknowledged) == (sum(num_moves.values()), counts.stored + counts.pending)


def test_games_in_the_payoff_are_twice_the_matches(playing: loop_world.Device) -> None:
    world, session = _world(playing)
    matches = [Match(world, session, group, spiel.Games(GAME, 2)) for group in range(2)]
    num_ended = 0
    for _ in range(60):
        for match in matches:
            num_ended += int(match.step.terminated.sum())
            match.go_on()
    seating = world.dispatcher.seating
    assert isinstance(seating, league_seating.LeagueSeating)
    counts = seating.num_matches()
    assert sum(counts.values()) == num_ended and min(counts["scripted"], counts["self_play"]) > 3
    table = seating.payoff.table()
    assert sum(row["games"] for row in table) == 2 * num_ended
    met = {(row["opponent"], row["side"]) for row in table if row["player"] == "main" and row["type"] == "scripted"}
    assert met == {*itertools.product(("random", BOT), ("first", "second"))}


def test_a_worker_without_bots_meets_other_opponents_alone(playing: loop_world.Device) -> None:
    world, session = _world(playing, knows_bots=False)
    matches = [Match(world, session, group, spiel.Games(GAME, 2)) for group in range(2)]
    for _ in range(60):
        for match in matches:
            match.go_on()
    seating = world.dispatcher.seating
    assert isinstance(seating, league_seating.LeagueSeating) and not any(world.bots)
    assert {row["opponent"] for row in seating.payoff.table()} == {"main", "random"}
    assert BOT in {name for home in seating._draws.homes for name in home.active}


def test_the_seat_of_a_scripted_member_makes_no_call() -> None:
    games = [spiel_seats.make("kuhn_poker", configs.Config().env, 2) for _ in range(2)]
    device = loop_world.make_device({**loop_world.PPO, **MEMBERS, "league.self_play": 0.0}, games[0].spec)
    world, session = _world(device, num_seats=2)
    matches = [Match(world, session, group, game) for group, game in enumerate(games)]
    num_home = 0
    for _ in range(40):
        for match in matches:
            assert match.step.shown is not None
            num_home += int(match.step.shown[0])
            match.go_on()
    rings, others = world.rings, [slots[1] for slots in session.slots]
    assert rings.cursor[others].tolist() == [0, 0] and rings.cursor.sum() == num_home
    assert world.dispatcher._num_acts == num_home, "one call for each row of the home's"
    seating = world.dispatcher.seating
    assert isinstance(seating, league_seating.LeagueSeating)
    assert {row["opponent"] for row in seating.payoff.table() if row["player"] == "main"} == {"random", BOT}


def test_what_was_played_is_told_where_no_network_chose_it_and_once() -> None:
    """By hand: slot 0 has a given move, slot 1 a bot's, slot 2 the network's; then slot 0 begins anew."""
    moves, slots, nothing = scripted_moves.ScriptedMoves(3), np.arange(3, dtype=np.int32), np.zeros(3, bool)
    joined = batches.Batch(slots, np.zeros(3), nothing)
    hands = [
        seatings.Hand(slots == 0, given=np.array([7], np.int32)),
        seatings.Hand(slots == 1, bot=1),
        seatings.Hand(slots == 2),
    ]
    assert moves.settle(joined, hands).played.tolist() == [-1, -1, -1]
    told = joined._replace(played=np.array([3, 5, 4], np.int32))
    found = moves.settle(told, hands)
    assert found.played.tolist() == [7, 5, -1] and found.played.dtype == np.int32
    again = moves.settle(told._replace(first=slots == 0), [seatings.Hand()])
    assert again.played.tolist() == [-1, 5, -1]
    assert moves.settle(told, [seatings.Hand()]).played.tolist() == [-1, -1, -1]


def test_a_bot_is_named_where_it_has_a_move() -> None:
    slots, nothing = np.arange(4), np.zeros(4, bool)
    hands = [seatings.Hand(slots < 2, bot=2), seatings.Hand(slots == 2, bot=1), seatings.Hand(slots == 3)]
    found = scripted_moves.bots(hands, slots == 1)
    assert found is not None and found.tolist() == [2, 0, 1, 0] and found.dtype == np.uint8
    assert scripted_moves.bots([seatings.Hand(given=np.zeros(4, np.int32))], nothing) is None
    assert scripted_moves.bots([seatings.Hand(None, bot=1)], ~nothing) is None


def test_an_unstored_hand_answers_without_a_call() -> None:
    mine = np.array([True, False, True])
    acted = scripted_moves.acted(seatings.Hand(mine, given=np.array([4, 2], np.int32), stored=False), 3)
    assert (
        not isinstance(acted.actions, jax.Array) and acted.actions.tolist() == [4, 2] and acted.rows.tolist() == [0, 1]
    )
    assert scripted_moves.acted(seatings.Hand(None, bot=1, stored=False), 3).actions.tolist() == [0, 0, 0]
