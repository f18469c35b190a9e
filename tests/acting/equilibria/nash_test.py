"""Mixtures and their NashConv, against numbers worked by hand and OpenSpiel's own tools."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from seedzero.acting.equilibria import game_tree

pyspiel = pytest.importorskip("pyspiel")

from open_spiel.python import policy as spiel_policies  # noqa: E402
from open_spiel.python.algorithms import cfr, expected_game_score, exploitability, policy_aggregator  # noqa: E402

UNEVEN = ("matrix_pd", "repeated_game(stage_game=matrix_pd(),num_repetitions=2)")
"""Returns do not sum to zero."""
GAMES = ("kuhn_poker", "leduc_poker", "matrix_brps", "goofspiel(num_cards=3,imp_info=true)", *UNEVEN)
Table = Mapping[str, Mapping[int, float]]


@functools.cache
def _tree(name: str) -> game_tree.GameTree:
    return game_tree.build(pyspiel.load_game(name))


def _from_table(seat: game_tree.InfoStates, table: Table) -> np.ndarray:
    """Returns the policy [S] by sequence in a table, as the inverse of `game_tree.to_table`."""
    found = np.ones(seat.num_sequences)
    for name, actions, begin in zip(seat.names, seat.actions, seat.begins.tolist(), strict=False):
        found[begin : begin + len(actions)] = [table[name].get(action, 0.0) for action in actions]
    return found


def _to_policy(seat: game_tree.InfoStates, plan: np.ndarray) -> np.ndarray:
    """Returns the policy [S] of a seat's plan [S], uniform after states that it never reaches."""
    policy = np.ones_like(plan)
    for parent, begin, end in zip(seat.parents.tolist(), seat.begins[:-1], seat.begins[1:], strict=True):
        policy[begin:end] = plan[begin:end] / plan[parent] if plan[parent] > 0 else 1 / (end - begin)
    return policy


def _uniform(tree: game_tree.GameTree) -> tuple[np.ndarray, np.ndarray]:
    """Returns policies [1, S] by seat."""
    one, other = (np.array([[1.0, *(1 / len(legal) for legal in seat.actions for _ in legal)]]) for seat in tree.seats)
    return one, other


def _random(tree: game_tree.GameTree, num_players: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns policies [N, S] by seat, some of them pure in many states."""
    random = np.random.default_rng(0)

    def policy(seat: game_tree.InfoStates) -> np.ndarray:
        found = [np.ones(1)]
        for legal in seat.actions:
            drawn = random.dirichlet(np.ones(len(legal)))
            found.append(drawn if random.random() < 0.7 else np.eye(len(legal))[0])
        return np.concatenate(found)

    one, other = (np.stack([policy(seat) for _ in range(num_players)]) for seat in tree.seats)
    return one, other


def _nash_conv(tree: game_tree.GameTree, players: game_tree.Players, *weights: np.ndarray) -> float:
    one, other = (weight @ plans for weight, plans in zip(weights, players.plans, strict=True))
    return game_tree.nash_conv(tree, (one, other))


class _OfTables(spiel_policies.Policy):  # type: ignore[misc]
    """A policy of OpenSpiel by information state strings."""

    def __init__(self, game: Any, table: Table) -> None:
        super().__init__(game, [0, 1])
        self._table = table

    def action_probabilities(self, state: Any, player_id: int | None = None) -> dict[int, float]:
        seat = state.current_player() if player_id is None else player_id
        return dict(self._table[state.information_state_string(seat)])


def _spiel(tree: game_tree.GameTree, one: np.ndarray, other: np.ndarray) -> tuple[Any, _OfTables]:
    """Returns OpenSpiel's game and the joint policy of policies [S] by seat."""
    game = pyspiel.load_game(tree.text)
    first, second = tree.seats
    return game, _OfTables(game, {**game_tree.to_table(first, one), **game_tree.to_table(second, other)})


@pytest.mark.parametrize(
    ("name", "expected"), [("kuhn_poker", 0.9167), ("leduc_poker", 4.7472), ("matrix_brps", 16.667)]
)
def test_uniform_play_has_its_known_value(name: str, expected: float) -> None:
    tree = _tree(name)
    players = game_tree.players(tree, _uniform(tree))
    assert _nash_conv(tree, players, np.ones(1), np.ones(1)) == pytest.approx(expected, rel=1e-4)


def test_counterfactual_regret_minimization_has_its_known_value() -> None:
    """Of the average policy after 100 iterations in Kuhn poker."""
    tree = _tree("kuhn_poker")
    game = pyspiel.load_game("kuhn_poker")
    solver = cfr.CFRSolver(game)
    for _ in range(100):
        solver.evaluate_and_update_policy()
    average = solver.average_policy()
    table = {name: dict(enumerate(average.policy_for_key(name))) for seat in tree.seats for name in seat.names}
    one, other = (_from_table(seat, table)[np.newaxis] for seat in tree.seats)
    found = _nash_conv(tree, game_tree.players(tree, (one, other)), np.ones(1), np.ones(1))
    assert found == pytest.approx(0.0165, abs=5e-5)
    assert found == pytest.approx(exploitability.nash_conv(game, average), abs=1e-12)


def test_a_mixture_weighs_players_by_their_own_reach() -> None:
    """Seat 0 of Kuhn poker with a jack: A passes in 1/4 and folds to a bet, B passes in 3/4 and calls.

    Half A, half B, at a bet behind a pass: A is there in 1/4 of its games, B in 3/4, so the mixture folds in
    (1/2 1/4 1 + 1/2 3/4 0) / (1/2 1/4 + 1/2 3/4) = 1/4. The mean by information state says 1/2.

    Against a seat 1 that always bets or calls, a jack loses 1 by a fold and 2 else: A -(1/4) 1 - (3/4) 2 = -1.75,
    B -2, so the mixture -1.875. By reach: passes 1/2, and 1/2 (1/4 (-1) + 3/4 (-2)) + 1/2 (-2) = -1.875. By the mean
    of information states 1/2 (1/2 (-1) + 1/2 (-2)) + 1/2 (-2) = -1.75, which is wrong.
    """
    tree, bets = _tree("kuhn_poker"), {0: 0.0, 1: 1.0}
    seat, other = tree.seats

    def player(passes: float, folds: float) -> np.ndarray:
        table = {name: bets for name in seat.names}  # a king or a queen bets and calls
        table |= {"0": {0: passes, 1: 1 - passes}, "0pb": {0: folds, 1: 1 - folds}}
        return _from_table(seat, table)

    policies = np.stack([player(1 / 4, 1.0), player(3 / 4, 0.0)])
    always_bets = _from_table(other, {name: bets for name in other.names})
    plan = np.array([0.5, 0.5]) @ game_tree.to_plans(seat, policies)
    mixed = game_tree.to_table(seat, _to_policy(seat, plan))
    assert mixed["0"] == {0: 0.5, 1: 0.5} and mixed["0pb"] == {0: 0.25, 1: 0.75}

    def of_a_jack(plan: np.ndarray) -> float:
        """Returns the mean return given a jack, which has a third of the deals."""
        is_jack = np.array(
            [False, *(name[0] == "0" for name, legal in zip(seat.names, seat.actions, strict=True) for _ in legal)]
        )
        return 3 * float((plan * is_jack) @ tree.payoff @ game_tree.to_plans(other, always_bets))

    naive = game_tree.to_plans(seat, policies.mean(axis=0))
    players = [of_a_jack(game_tree.to_plans(seat, policy)) for policy in policies]
    assert players == pytest.approx([-1.75, -2.0])
    assert of_a_jack(plan) == pytest.approx(-1.875) and of_a_jack(naive) == pytest.approx(-1.75)


@pytest.mark.parametrize("name", GAMES)
def test_returns_are_those_of_open_spiel(name: str) -> None:
    tree, num_players = _tree(name), 3
    policies = _random(tree, num_players)
    _, returns, second = game_tree.players(tree, policies)
    for i in range(num_players):
        for j in range(num_players):
            game, joint = _spiel(tree, policies[0][i], policies[1][j])
            values = expected_game_score.policy_value(game.new_initial_state(), [joint, joint])
            assert (returns[i, j], second[i, j]) == pytest.approx(values, abs=1e-12)


@pytest.mark.parametrize("name", GAMES)
def test_nash_conv_is_that_of_open_spiel(name: str) -> None:
    tree = _tree(name)
    policies = _random(tree, 1)
    found = _nash_conv(tree, game_tree.players(tree, policies), np.ones(1), np.ones(1))
    assert found == pytest.approx(exploitability.nash_conv(*_spiel(tree, policies[0][0], policies[1][0])), abs=1e-12)


@pytest.mark.parametrize("name", ["kuhn_poker", "goofspiel(num_cards=3,imp_info=true)"])
def test_mixtures_are_those_of_open_spiel(name: str) -> None:
    tree, weights = _tree(name), (np.array([0.2, 0.5, 0.3]), np.array([0.7, 0.0, 0.3]))
    policies = _random(tree, 3)
    plans = game_tree.players(tree, policies).plans
    mixed = [_to_policy(seat, w @ plan) for seat, w, plan in zip(tree.seats, weights, plans, strict=True)]
    own = [game_tree.to_table(seat, policy) for seat, policy in zip(tree.seats, mixed, strict=True)]
    joint = [_spiel(tree, one, other)[1] for one, other in zip(*policies, strict=True)]
    aggregator = policy_aggregator.PolicyAggregator(pyspiel.load_game(tree.text))
    theirs = aggregator.aggregate([0, 1], [joint, joint], [w.tolist() for w in weights]).policy
    for seat in (0, 1):
        assert own[seat].keys() == theirs[seat].keys()
        for state, probabilities in own[seat].items():
            assert probabilities == pytest.approx(theirs[seat][state], abs=1e-9)


def test_a_mixture_s_plan_and_its_policy_agree() -> None:
    tree = _tree("leduc_poker")
    players, weight = game_tree.players(tree, _random(tree, 4)), np.full(4, 0.25)
    for seat, plans in zip(tree.seats, players.plans, strict=True):
        plan = weight @ plans
        np.testing.assert_allclose(game_tree.to_plans(seat, _to_policy(seat, plan)), plan, atol=1e-15)


def test_pure_players_of_biased_rock_paper_scissors_are_mixed_to_its_equilibrium() -> None:
    """Rock beats scissors by 50, paper rock by 25, scissors paper by 5: the weights are (5, 50, 25) / 80."""
    tree = _tree("matrix_brps")
    pure = np.concatenate([np.ones((3, 1)), np.eye(3)], axis=1)
    players = game_tree.players(tree, (pure, pure))
    weights = game_tree.equilibrium(players.returns)
    for weight in weights:
        assert weight == pytest.approx([1 / 16, 10 / 16, 5 / 16])
    assert _nash_conv(tree, players, *weights) == pytest.approx(0.0, abs=1e-9)
    assert game_tree.cyclic_triples(players) == 1


def test_in_the_prisoner_s_dilemma_cooperation_is_no_equilibrium_and_defection_is() -> None:
    """Both get 5 or both 1; who defects alone gets 10, the other one 0: each seat gains 5 over cooperation."""
    tree = _tree("matrix_pd")
    pure = np.concatenate([np.ones((2, 1)), np.eye(2)], axis=1)
    players = game_tree.players(tree, (pure, pure))
    assert players.returns.tolist() == [[5, 0], [10, 1]] and players.second.tolist() == [[5, 10], [0, 1]]
    one, other, half = *np.eye(2), np.full(2, 0.5)
    assert [_nash_conv(tree, players, weight, weight) for weight in (one, other)] == [10.0, 0.0]
    # Half and half: each gets (5 + 0 + 10 + 1) / 4 = 4 and, by defection, (10 + 1) / 2 = 5.5.
    assert _nash_conv(tree, players, half, half) == pytest.approx(3.0)
    assert game_tree.cyclic_triples(players) == 0


def test_seats_of_an_unfair_game_have_mixtures_of_their_own() -> None:
    """Of ((3, 1), (0, 2)): 3 p = p + 2 (1 - p) gives p = 1/2, and 3 q + (1 - q) = 2 (1 - q) gives q = 1/4."""
    one, other = game_tree.equilibrium(np.array([[3.0, 1.0], [0.0, 2.0]]))
    assert one == pytest.approx([0.5, 0.5]) and other == pytest.approx([0.25, 0.75])


def test_a_dominated_player_has_no_weight() -> None:
    one, other = game_tree.equilibrium(np.array([[0.0, 1.0], [-1.0, 0.0]]))
    assert one.tolist() == [1.0, 0.0] and other.tolist() == [1.0, 0.0]


def test_triples_are_counted_over_both_seats() -> None:
    """The advantage of a seat is none of its player: i beats j by (U_ij - U_ji) / 2."""
    cycle = np.array([[0, 1, -1], [-1, 0, 1], [1, -1, 0]])

    def triples(returns: np.ndarray) -> int:
        return game_tree.cyclic_triples(game_tree.Players((returns, returns), returns, -returns))

    assert triples(cycle + 5.0) == 1
    assert triples(np.triu(np.ones((4, 4)), 1)) == 0  # in a row
    assert triples(cycle * 1e-8) == 0  # equal but for rounding
    two = np.block([[cycle, np.ones((3, 3))], [-np.ones((3, 3)), cycle]])
    assert triples(two) == 2
