import sys

import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.envs import registry, seats, spiel, spiel_seats
from seedzero.transport import sessions

KUHN = spiel_seats.SpielSeats("kuhn_poker")


class Drawn:
    """A generator that draws given numbers between 0 and 1."""

    def __init__(self, *numbers):
        self.random = iter(numbers).__next__


def after(game, moves, *drawn):
    """Returns the state after moves, each {seat: action}."""
    generator = Drawn(*drawn)
    state = game.initial(generator)
    for move in moves:
        state = game.apply(state, move, generator)
    return state


# --- single states ---------------------------------------------------------------------------------------------------


def test_kuhn_poker_by_hand():
    dealt = after(KUHN, [], 0.5, 0.4)  # the second of three cards, then the first of the other two
    assert KUHN.movers(dealt) == (0,)
    # Own number, own card, then pass or bet of each move: all that a seat knows.
    np.testing.assert_array_equal(KUHN.observe(dealt, 0), [1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(KUHN.observe(dealt, 1), [0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0])
    bet = KUHN.apply(dealt, {0: 1}, Drawn())
    assert KUHN.movers(bet) == (1,) and KUHN.movers(dealt) == (0,)
    assert KUHN.returns(bet) == (0, 0)
    called, folded = (KUHN.apply(bet, {1: action}, Drawn()) for action in (1, 0))
    assert KUHN.movers(called) == KUHN.movers(folded) == ()
    assert KUHN.returns(called) == (2, -2) and KUHN.returns(folded) == (1, -1)
    assert not KUHN.is_out(called, 0)
    assert KUHN.legal_mask(dealt, 0).all() and KUHN.legal_mask(called, 0).all()


def test_leduc_poker_remembers_the_betting():
    leduc = spiel_seats.SpielSeats("leduc_poker")
    fold, call, bet = range(3)
    raised = after(leduc, [{0: bet}, {1: bet}], 0, 0)
    np.testing.assert_array_equal(leduc.legal_mask(raised, 0), [True, True, False])  # two raises at most
    checked, called = (after(leduc, moves, 0, 0, 0) for moves in ([{0: call}, {1: call}], [{0: bet}, {1: call}]))
    assert leduc.movers(checked) == leduc.movers(called) == (0,)  # the second round, with the public card
    assert np.any(leduc.observe(checked, 0) != leduc.observe(called, 0))
    folded = leduc.apply(raised, {0: fold}, Drawn())
    assert leduc.returns(folded) == (-3, 3)


def test_chance_is_drawn_by_its_probabilities_also_where_they_do_not_sum_to_one():
    cards = [after(KUHN, [], drawn, 0).history()[0] for drawn in (0, 0.33, 0.34, 0.66, 0.67, 1.0)]
    assert cards == [0, 0, 1, 1, 2, 2]


def test_simultaneous_moves_are_made_by_all_seats():
    rps = spiel_seats.SpielSeats("matrix_brps")
    state = after(rps, [])
    assert rps.movers(state) == (0, 1) and rps.observe(state, 0).shape == rps.spec.observation_shape == (1,)
    played = rps.apply(state, {1: 1, 0: 0}, Drawn())
    assert rps.movers(played) == () and rps.returns(played) == (-25, 25)


def test_a_seat_without_a_choice_takes_action_0():
    class NoChoice:
        def is_terminal(self):
            return False

        def legal_actions(self, seat):
            return []

    assert KUHN.legal_mask(NoChoice(), 1).tolist() == [True, False]


def test_rewards_may_come_before_the_end():
    laser_tag = spiel_seats.SpielSeats("laser_tag")
    generator = np.random.default_rng(3)
    state, sums = laser_tag.initial(generator), set()
    while movers := laser_tag.movers(state):
        moves = {seat: seats.random_action(laser_tag.legal_mask(state, seat), generator) for seat in movers}
        state = laser_tag.apply(state, moves, generator)
        sums.add(laser_tag.returns(state))
    assert len(sums) > 1


def test_the_spec_tells_seats_mask_and_bounds():
    sides = ("first", "second")
    assert KUHN.spec == types.EnvSpec((11,), "float32", 2, 0, 1, has_action_mask=True, tasks=sides, seats=sides)
    three = spiel_seats.SpielSeats("kuhn_poker(players=3)")
    assert three.spec.seats == ("seat 1", "seat 2", "seat 3") and three.num_seats == 3
    backgammon = spiel_seats.SpielSeats("backgammon").spec  # of perfect information: its observation tensor
    assert (backgammon.observation_shape, backgammon.observation_high) == ((200,), np.inf)


def test_a_refused_move_is_named():
    leduc = spiel_seats.SpielSeats("leduc_poker")
    with pytest.raises(errors.EnvironmentFailure, match="'leduc_poker' refuses a move: SpielError"):
        leduc.apply(after(leduc, [], 0, 0), {0: 7}, Drawn())


# --- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("role", types.Role)
@pytest.mark.parametrize(
    ("name", "sum_is_zero"),
    [
        ("kuhn_poker", True),
        ("kuhn_poker(players=3)", True),
        ("leduc_poker", True),
        ("liars_dice", True),
        ("matrix_brps", True),
        ("goofspiel(num_cards=4)", True),
        ("backgammon", True),
        ("bargaining", False),
        ("laser_tag(horizon=20)", False),
    ],
)
def test_a_learner_takes_every_step_and_rewards_add_up(name, sum_is_zero, role):
    num_envs, num_steps = 6, 300
    env = registry.make(f"spiel:{name}", sections.EnvConfig(), num_envs, role=role)
    size = len(env.spec.seats) if role is types.Role.TRAIN else 1
    assignment = types.Assignment("id", role, "spiel", "{}", 1, num_envs, (0,) * num_envs)
    session = sessions.LearnerSession("worker", assignment, 15.0, 0.0)
    session.begin(env.spec, 0.0)
    rng, step = np.random.default_rng(0), env.reset(range(num_envs))
    first, sums, num_games, chairs = np.ones(num_envs, bool), np.zeros(num_envs), 0, set()
    for number in range(num_steps):
        session.accept(0, number, step)
        session.answer(0, number, b"", 0.0)
        shown = np.ones(num_envs, bool) if step.shown is None else step.shown
        sums = np.where(first & shown, 0, sums) + step.reward
        first = np.where(shown, step.final, first)
        over = step.terminated.reshape(-1, size).all(axis=1)
        num_games += np.count_nonzero(over)
        chairs |= set(step.task[step.terminated].tolist())
        if sum_is_zero and role is types.Role.TRAIN:
            assert not sums.reshape(-1, size)[over].sum(axis=1).any()
        preference = np.where(step.action_mask, rng.random(step.action_mask.shape), -1)
        step = env.step(preference.argmax(axis=1).astype(np.int32))
    assert num_games > 0 and chairs == set(range(len(env.spec.seats)))


def test_seeds_repeat_the_cards():
    def cards(seeds):
        env = registry.make("spiel:leduc_poker", sections.EnvConfig(), 8)
        steps = [env.reset(seeds), *(env.step(np.ones(8, np.int32)) for _ in range(20))]  # always call
        return np.stack([step.observation for step in steps])

    np.testing.assert_array_equal(cards(range(8)), cards(range(8)))
    assert np.any(cards(range(8)) != cards(range(8, 16)))
    np.testing.assert_array_equal(cards(range(8))[:, :2], cards([0, *range(9, 16)])[:, :2])


# --- the kinds of games ----------------------------------------------------------------------------------------------


def test_boards_stay_whole_games():
    for name in ("tic_tac_toe", "oware", "cliff_walking"):
        assert isinstance(registry.make(f"spiel:{name}", sections.EnvConfig(), 1), spiel.Games)
        registry.check_id(f"spiel:{name}")
    assert isinstance(registry.make("spiel:kuhn_poker", sections.EnvConfig(), 1), seats.SeatGames)
    registry.check_id("spiel:kuhn_poker")


@pytest.mark.parametrize("name", ["hanabi", "negotiation", "kuhn_poker(players=99)"])
def test_unsupported_games_are_refused_with_the_reason(name):
    with pytest.raises(errors.ConfigError, match=name.partition("(")[0]):
        registry.check_id(f"spiel:{name}")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (dict(opponents="random,mcts-100"), "opponents=random,mcts-100: .*'kuhn_poker' .*--env.opponents=random$"),
        (dict(random_opening=4), "random_opening=4: .*'kuhn_poker' .*--env.random_opening=0"),
        (dict(render=True), "'kuhn_poker' cannot be drawn"),
    ],
    ids=["opponents", "opening", "render"],
)
@pytest.mark.parametrize("role", types.Role)
def test_settings_of_boards_are_refused_by_name(settings, told, role):
    given = dict(settings)
    render = given.pop("render", False)
    with pytest.raises(errors.EnvironmentFailure, match=told):
        registry.make("spiel:kuhn_poker", sections.EnvConfig(**given), 2, role=role, render=render)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    with pytest.raises(errors.EnvironmentFailure, match=r"open_spiel.*-m pip install 'open_spiel<3"):
        spiel_seats.SpielSeats("kuhn_poker")
