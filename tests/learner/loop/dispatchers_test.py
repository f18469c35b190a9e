"""Calls on the device, and the work that their completion brings."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import loop_world
import numpy as np
import pytest

from seedzero.agents import base
from seedzero.config import configs, options
from seedzero.core import errors, types
from seedzero.device import batches
from seedzero.envs import spiel, spiel_seats
from seedzero.learner.league_play import league_seating, snapshot_pools
from seedzero.learner.loop import dispatchers, rosters, seatings
from seedzero.replay import ring_store
from seedzero.transport import messages


def test_each_message_of_a_call_gets_the_actions_of_its_own_rows(device: loop_world.Device) -> None:
    def act(seed: Any, params: Any, actor: Any, batch: Any, counters: Any) -> Any:
        return actor, batch.observation[:, 0].astype(np.int32)

    world = loop_world.World(loop_world.replaced(device, act=act))
    session = world.join()
    world.show(session, 1, 21.0, first=True)
    world.show(session, 0, 10.0, first=True)
    world.dispatcher.act([0])
    world.complete()
    assert [(request.group, actions) for request, actions, _ in world.replies] == [(1, [21, 21]), (0, [10, 10])]


def test_metrics_of_the_agent_s_acting_are_means_over_rows_of_training(device: loop_world.Device) -> None:
    def act(seed: Any, params: Any, actor: Any, batch: Any, counters: Any) -> Any:
        shown = batch.observation[:, 0]
        return actor, (
            shown.astype(np.int32),
            {"epsilon": np.where(shown > 50, np.nan, shown), "never": shown * np.nan},
        )

    world = loop_world.World(loop_world.replaced(device, act=act))
    session = world.join()
    for group, shown in ((0, 10.0), (1, 21.0)):
        world.show(session, group, shown, first=True)
        world.dispatcher.act([0])
        world.complete()
    world.show(session, 0, 60.0)
    world.dispatcher.act([0])
    world.complete()
    means = world.gathered.means()
    assert means["epsilon"] == 15.5 and "never" not in means
    assert list(world.replies[-1][1]) == [60, 60]


def test_acting_says_how_full_and_how_late_its_batches_are(make: loop_world.Make) -> None:
    world = make()
    world.show(world.join(), 0, 0.0, first=True)
    world.now = 0.25
    world.dispatcher.act([0])
    means = world.gathered.means()
    assert (means["batch_rows"], means["batch_fill"], means["batch_wait_seconds"]) == (2, 0.5, 0.25)
    assert means["policy_age"] == 0


def test_the_history_of_a_session_is_cut_where_it_ended(make: loop_world.Make) -> None:
    world = make()
    session = world.join()
    for place in range(3):
        world.answer(session, 0, float(place), first=place == 0)
    world.show(session, 1, 7.0, first=True)  # waits when the session is lost: nobody needs its answer
    num_replies = len(world.replies)
    world.lose(session, "worker_left")
    again = world.join()
    assert set(again.all_slots) == set(session.all_slots)
    world.work()
    assert len(world.replies) == num_replies
    counts = world.loop.look().counts
    assert (counts.stored, counts.pending, counts.discarded) == (4, 0, {"worker_left": 2})
    world.show(again, 0, 10.0, first=True)
    world.answer(again, 1, 20.0, first=True)
    rings = world.rings
    slot = int(again.slots[0][0])
    assert rings.observation[slot, :4, 0].tolist() == [0, 1, 2, 10]
    assert rings.first[slot, :4].tolist() == [True, False, False, True]
    assert (rings.weight[slot, :4] > 0).tolist() == [True, True, False, False]  # no step leads from 2 to 10
    assert 7.0 not in rings.observation


@pytest.mark.parametrize("every", [1, 3])
def test_parameters_act_from_the_update_on_that_publishes_them(make: loop_world.Make, every: int) -> None:
    world = make(training__publish_every=every)
    session = world.join()
    world.play(session, 1)
    for number in range(1, 7):
        world.dispatcher.update(world.player)
        world.complete()
        assert world.player.version == number // every * every
    world.show(session, 0, 1.0)
    world.dispatcher.act([0])
    world.complete()
    assert world.replies[-1][2] == 6


def test_updates_that_are_refused_again_and_again_end_training(device: loop_world.Device) -> None:
    num_rejected = iter(range(1, 100))

    def update(seed: Any, train: base.TrainState, rings: Any, num_inserts: Any) -> Any:
        names = device.programs.update.result().metric_names
        values = dict.fromkeys(names, 0.0) | {"num_rejected": float(next(num_rejected))}
        return train, rings, np.array(list(values.values()), np.float32)

    world = loop_world.World(loop_world.replaced(device, update=update))
    with pytest.raises(errors.TrainingFailure, match=r"not finite in 10 updates in a row; .*learning rate"):
        world.play(world.join(), 100)
    assert world.num_updates == 10


def test_the_share_of_clipped_gradients_is_a_metric_where_there_is_a_limit(device: loop_world.Device) -> None:
    """Of the norms 4.5 and 5.5, the default limit of 5 clips one."""
    norms = itertools.cycle([4.5, 5.5])

    def update(seed: Any, train: base.TrainState, rings: Any, num_inserts: Any) -> Any:
        values = dict.fromkeys(device.programs.update.result().metric_names, 0.0) | {"grad_norm": next(norms)}
        return train, rings, np.array(list(values.values()), np.float32)

    world = loop_world.World(loop_world.replaced(device, update=update))
    for _ in range(2):
        world.dispatcher.update(world.player)
        world.complete()
    assert world.gathered.means()["grad_clipped"] == 0.5


def test_means_over_refreshed_rows_count_those_alone(reanalysing: loop_world.Device) -> None:
    names = reanalysing.programs.reanalyse.result().metric_names
    shares = iter([1.0, 0.0, 0.5])

    def reanalyse(seed: Any, params: Any, rings: Any, counters: Any) -> Any:
        share = next(shares)
        values = dict.fromkeys(names, 8.0 * share) | {"refreshed_share": share}
        return rings, np.array([values[name] for name in names], np.float32)

    world = loop_world.World(loop_world.replaced(reanalysing, reanalyse=reanalyse))
    for _ in range(3):
        world.dispatcher.reanalyse(world.player)
    world.complete()
    means = world.gathered.means()
    assert means["refreshed_share"] == 0.5
    assert means["refresh_age"] == pytest.approx((8.0 * 1.0 + 4.0 * 0.5) / 1.5)


def test_evaluation_is_answered_by_frozen_parameters_and_never_stored(make: loop_world.Make) -> None:
    world = make(evaluation__every_updates=4)
    session, watched = world.join(), world.join(types.Role.EVALUATE, "evaluator")
    assert (watched.all_slots >= loop_world.LAYOUT.num_train).all()
    world.answer(watched, 0, 0.5, first=True)
    assert not world.replies  # no evaluation is due before the first update
    world.play(session, 2)
    assert world.num_updates >= 1
    before, stored = world.rings, world.loop.look().counts
    version = world.num_updates
    (answer,) = [reply for reply in world.replies if reply[0].role is types.Role.EVALUATE]
    assert 1 <= answer[2] <= version
    world.answer(watched, 0, 0.25, reward=3.0)
    world.answer(watched, 0, 0.25, reward=4.0, final=True)
    (result,) = world.results
    assert (result.episodes, result.mean_return, result.mean_length) == (2, 7.0, 2.0)
    answers = [reply for reply in world.replies if reply[0].role is types.Role.EVALUATE]
    assert [version for _, _, version in answers] == [answer[2]] * 2
    assert world.restarts == [watched.session_id]  # fresh episodes for the next one
    assert world.people.evaluation_index == 1
    assert world.loop.look().counts == stored
    after = world.rings
    assert np.array_equal(before.cursor, after.cursor) and np.array_equal(before.observation, after.observation)
    assert not {0.5, 0.25} & set(after.observation.ravel().tolist())


@pytest.mark.parametrize(
    ("seats", "policy", "expected"),
    [
        ((), "auto", types.GREEDY),
        ((), "sample", types.SAMPLE),
        (("first", "second"), "auto", types.SAMPLE),
        (("first", "second"), "greedy", types.GREEDY),
    ],
)
def test_evaluations_draw_their_actions_in_games_of_seats_or_if_asked(
    seats: tuple[str, ...], policy: str, expected: np.int8, device: loop_world.Device
) -> None:
    modes: list[int] = []

    def act(seed: Any, params: Any, actor: Any, batch: Any, counters: Any) -> Any:
        modes.extend(batch.action_mode[batch.ring == device.setup.layout.num_train])
        return actor, np.zeros(len(batch.slot), np.int32)

    spec = dataclasses.replace(device.setup.spec, tasks=seats, seats=seats)
    seated = loop_world.replaced(device._replace(setup=device.setup._replace(spec=spec)), act=act)
    world = loop_world.World(seated, evaluation__every_updates=1, evaluation__policy=policy)
    watched = world.join(types.Role.EVALUATE, "evaluator")
    world.dispatcher.update(world.player)
    world.complete()
    world.dispatcher.begin_evaluation(is_last=False)
    world.show(watched, 0, 0.0, first=True)
    world.dispatcher.evaluate(is_last=False)
    world.complete()
    assert set(modes) == {expected} and len(world.replies) == 1


@pytest.mark.parametrize("deterministic", [False, True])
def test_time_makes_evaluations_due_but_not_in_a_deterministic_run(
    deterministic: bool, make: loop_world.Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make(evaluation__every_updates=1000, run__deterministic=deterministic)
    world.join(types.Role.EVALUATE, "evaluator")
    evaluator = world.dispatcher.evaluator
    evaluator.restore({**evaluator.to_json(), "last_evaluation": {"update": 1}})
    monkeypatch.setattr(world.player, "num_updates", 2)
    world.dispatcher.begin_evaluation(is_last=False)
    assert evaluator.running is None
    world.now = 1e6
    world.dispatcher.begin_evaluation(is_last=False)
    assert (evaluator.running is None) == deterministic


def test_the_parameters_of_an_evaluation_outlive_the_updates_beside_it(make: loop_world.Make) -> None:
    world = make(evaluation__every_updates=1, replay__min_steps=1000)
    world.join(types.Role.EVALUATE, "evaluator")
    world.play(world.join(), 2)
    world.dispatcher.update(world.player)
    assert world.dispatcher.evaluator.running is None
    world.dispatcher.begin_evaluation(is_last=False)
    running = world.dispatcher.evaluator.running
    assert running is not None and running.update == 1
    assert running.env_steps == world.loop.look().counts.stored > 0
    frozen = _numbers(running.params)
    world.dispatcher.update(world.player)
    world.complete()
    assert np.array_equal(frozen, _numbers(running.params))
    assert not np.array_equal(frozen, _numbers(world.player.params))


def test_an_evaluation_whose_environments_are_lost_starts_anew(make: loop_world.Make) -> None:
    world = make(evaluation__every_updates=1000)
    session, watched = world.join(), world.join(types.Role.EVALUATE, "evaluator")
    world.play(session, 2)
    world.answer(watched, 0, 0.0, first=True)
    assert world.loop.look().evaluating
    world.answer(watched, 0, 0.0, reward=100.0)
    world.lose(watched)
    world.work()
    assert not world.loop.look().evaluating
    watched = world.join(types.Role.EVALUATE, "evaluator")
    world.answer(watched, 0, 0.0, first=True)
    world.answer(watched, 0, 0.0, reward=1.0, final=True)
    assert [result.mean_return for result in world.results] == [1.0]
    assert world.loop.look().counts.discarded == {}


def test_a_reset_ends_training_sessions_alone_and_drops_their_messages(make: loop_world.Make) -> None:
    world = make(evaluation__every_updates=1000)
    session, watched = world.join(), world.join(types.Role.EVALUATE, "evaluator")
    world.play(session, 2)
    world.show(session, 0, 2.0)
    world.dispatcher.reset_environments()
    assert world.restarts == [session.session_id] and world.people.epoch == 1
    assert world.people.get(session.session_id) is None and world.people.get(watched.session_id) is not None
    assert world.inbox.waiting(types.Role.TRAIN) == []
    counts = world.loop.look().counts
    assert (counts.pending, counts.discarded) == (0, {"checkpoint_reset": 4})
    assert not world.inbox.take_ended()  # the loop itself ended them


def test_a_checkpoint_brings_every_counter_back(make: loop_world.Make) -> None:
    world = make(evaluation__every_updates=2, training__publish_every=1000)
    session, watched = world.join(), world.join(types.Role.EVALUATE, "evaluator")
    world.show(watched, 0, 0.0, first=True)
    world.play(session, 6)
    world.answer(watched, 0, 0.0, reward=5.0, final=True)
    world.dispatcher.reset_environments()
    state: dispatchers.CheckpointState = world.loop.state()
    assert world.player.version == world.num_updates  # acting goes on with what a resume begins with
    resumed = make(evaluation__every_updates=2)
    resumed.dispatcher.restore(state.counters, has_replay=True)
    assert resumed.loop.state().counters == state.counters
    one, other = world.loop.look(), resumed.loop.look()
    assert one.counts == other.counts and one.last_evaluation == other.last_evaluation is not None
    assert (resumed.people.evaluation_index, resumed.people.epoch) == (1, 1)


def test_environments_meet_new_episodes_after_each_resume(make: loop_world.Make) -> None:
    hello = messages.Hello("local-0", "", (types.Role.TRAIN,), ("catch",), 4)
    seeds, counters = set(), None
    for _ in range(3):
        world = make()
        if counters is not None:
            world.dispatcher.restore(counters, has_replay=True)
        seeds.add(world.people.assign(hello).seeds)
        counters = world.loop.state().counters
    assert len(seeds) == 3


def test_a_deterministic_checkpoint_does_not_tell_how_often_workers_joined(make: loop_world.Make) -> None:
    world = make(run__deterministic=True)
    before = world.loop.state().counters
    world.join()
    assert world.loop.state().counters == before


def _numbers(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in jax.tree.leaves(tree)])


def test_a_run_goes_on_beyond_the_largest_number_of_32_bits(make: loop_world.Make) -> None:
    before = 2**31 - 20
    world = make()
    counters = world.loop.state().counters
    counters["ledger"]["stored"] = before
    counters["pace"] = {**counters["pace"], "since": (0, before)}
    world.dispatcher.restore(counters, has_replay=True)
    world.play(world.join(), 16)
    assert world.loop.look().counts.stored > 2**31 and world.num_updates >= 5
    assert {before + 4, -(2**31)} <= set(world.rings.inserted_at.ravel().tolist())


def test_numbers_of_the_environment_are_means_over_ended_episodes(make: loop_world.Make) -> None:
    world = make()
    session = world.join()
    world.show_all(session, 0.0, first=True)
    world.work()
    for group, success, final in ((0, (1.0, 0.0), True), (1, (7.0, 7.0), False), (1, (1.0, np.nan), True)):
        shown = loop_world.message(session, group, 1.0, final=final)
        step = shown.request.step._replace(info={"success": np.array(success, np.float32)})
        world.inbox.put(shown._replace(request=shown.request._replace(step=step)))
        world.work()
    found = world.dispatcher.gathered.drain()
    assert found["info/success"] == pytest.approx(2 / 3) and found["episodes"] == 4
    world.show_all(session, 0.0, first=True)
    world.work()
    assert not [name for name in world.dispatcher.gathered.drain() if name.startswith("info")]


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


@pytest.mark.thorough
def test_the_rings_hold_the_moves_that_were_played(playing: loop_world.Device) -> None:
    """Each row's action leads from its position to that of the next row, by the rules of the game."""
    world, session = _world(playing)
    matches = [Match(world, session, group, spiel.Games(GAME, 2)) for group in range(2)]
    for _ in range(40):
        for match in matches:
            match.go_on()
    rings, num_moves = world.rings, {True: 0, False: 0}
    times = np.arange(rings.weight.shape[1])
    observations = ring_store.get_frames(world.player.rings.observation, np.arange(4)[:, None], times)
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


@pytest.mark.thorough
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


@pytest.mark.thorough
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
    moves, slots, nothing = dispatchers.ScriptedMoves(3), np.arange(3, dtype=np.int32), np.zeros(3, bool)
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
    found = dispatchers.bots_of_rows(hands, slots == 1)
    assert found is not None and found.tolist() == [2, 0, 1, 0] and found.dtype == np.uint8
    assert dispatchers.bots_of_rows([seatings.Hand(given=np.zeros(4, np.int32))], nothing) is None
    assert dispatchers.bots_of_rows([seatings.Hand(None, bot=1)], ~nothing) is None


def test_an_unstored_hand_answers_without_a_call() -> None:
    mine = np.array([True, False, True])
    acted = dispatchers.scripted_call(seatings.Hand(mine, given=np.array([4, 2], np.int32), stored=False), 3)
    assert (
        not isinstance(acted.actions, jax.Array) and acted.actions.tolist() == [4, 2] and acted.rows.tolist() == [0, 1]
    )
    assert dispatchers.scripted_call(seatings.Hand(None, bot=1, stored=False), 3).actions.tolist() == [0, 0, 0]
