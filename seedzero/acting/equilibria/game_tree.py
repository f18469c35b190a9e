"""Builds the tree of an OpenSpiel game of two seats in sequence form (von Stengel 1996), and computes NashConv.

A sequence consists of a seat's own actions on the way to a state, with everything that it knew there. Exactly one
sequence leads to each information state, so a seat's policy is a vector indexed by sequence, and a game is a matrix.
In some games the information state strings forget earlier actions; then two information states have the same string.

Shape letters: I information states of a seat, S sequences of a seat.
"""

from __future__ import annotations

import array
from typing import Any, NamedTuple

import numpy as np

from seedzero.core import errors, user_code
from seedzero.envs import spiel, spiel_seats

MAX_HISTORIES = 10_000_000
"""Most nodes of a tree, including chance nodes and terminal states. About 70,000 are visited a second."""
_PROBES = 1_000
"""Number of random games that estimate the size of a tree."""
_DOUBT = 4.0
"""An estimate is wrong by less than this factor; measured were 0.55 to 1.2 times the true number."""
_MOST_MOVES = 20_000
"""Most moves in these games, all together."""

NUM_SEATS = 2
_GAMES = "expected a game of OpenSpiel for two seats with hidden information, chance or simultaneous moves"


class InfoStates(NamedTuple):
    """One seat's information states, earlier ones before later ones. Sequence 0 has no action."""

    names: tuple[str, ...]  # [I] OpenSpiel's information state strings
    # [I] a state with that information, as environments have it: simultaneous, not turn-based
    states: tuple[spiel.State, ...]
    actions: tuple[tuple[int, ...], ...]  # [I] legal actions, ascending
    begins: np.ndarray  # [I + 1] sequence of each information state's first action; its other actions follow
    parents: np.ndarray  # [I] the sequence that leads to the information state
    # [I] float32 received since the seat's last turn, 0 at the first; earlier rewards count at the second turn
    rewards: np.ndarray

    @property
    def num_sequences(self) -> int:
        """S, the number of sequences."""
        return int(self.begins[-1])


class GameTree(NamedTuple):
    """A game as arrays. A simultaneous game is made turn-based; seat 1 does not see seat 0's action."""

    text: str  # the game as text, for pyspiel.load_game
    seats: tuple[InfoStates, InfoStates]
    payoff: Any  # scipy.sparse.csr_array [S of seat 0, S of seat 1]: seat 0's returns times the probability of chance
    second: Any  # the same for seat 1; None if returns sum to zero, so that it is the negative
    num_histories: int

    @property
    def has_own_strings(self) -> bool:
        """Whether every information state has a different string."""
        names = [name for seat in self.seats for name in seat.names]
        return len(set(names)) == len(names)


class _Found:
    """Collects the information states of a seat."""

    def __init__(self) -> None:
        self.place: dict[tuple[str, int], int] = {}  # (name, parent)
        self.states: list[spiel.State] = []
        self.actions: list[tuple[int, ...]] = []
        self.begins, self.parents, self.rewards = [1], list[int](), list[float]()

    def of(self, turns: spiel.State, seat: int, parent: int, reward: float) -> int:
        """Returns the index of a state's information state, after adding it if it is new."""
        name = turns.information_state_string(seat)
        place = self.place.setdefault((name, parent), len(self.states))
        if place == len(self.states):
            is_turn = hasattr(turns, "simultaneous_game_state")
            self.states.append(turns.simultaneous_game_state().clone() if is_turn else turns)
            self.actions.append(tuple(turns.legal_actions()))
            self.begins.append(self.begins[-1] + len(self.actions[-1]))
            self.parents.append(parent)
            self.rewards.append(reward)
        return place

    def listed(self) -> InfoStates:
        begins, parents = np.array(self.begins, np.int64), np.array(self.parents, np.int64)
        rewards = np.array(self.rewards, np.float32)
        return InfoStates(
            tuple(name for name, _ in self.place), tuple(self.states), tuple(self.actions), begins, parents, rewards
        )


def game_of(env_id: str, place: str, *, needs_strings: bool = True) -> spiel_seats.SpielSeats:
    """Returns an environment's game. Raises UsageError if its exploitability cannot be computed.

    place: the run's name, for messages. needs_strings: whether information state strings are needed.
    """
    kind, _, name = env_id.partition(":")
    if kind != "spiel":
        raise errors.UsageError(f"{place} was trained with --env={env_id}; {_GAMES}, as spiel:kuhn_poker")
    game = spiel.load(name)
    if not spiel_seats.has_seats(game):
        raise errors.UsageError(
            f"{place} was trained in {name}, a turn-based game of perfect information; {_GAMES}. Score the run with "
            "`seedzero evaluate --opponent=exhaustive`, or its players with `seedzero league match`"
        )
    reasons = {
        f"it has {game.num_players()} seats": game.num_players() != NUM_SEATS,
        "it has no information state strings, which experiments/large_games.py does without": needs_strings
        and not in_turn(game).get_type().provides_information_state_string,
    }
    if found := [reason for reason, holds in reasons.items() if holds]:
        raise errors.UsageError(f"{place} was trained in {name}, and {', '.join(found)}; {_GAMES}")
    return spiel_seats.SpielSeats(name)


def can_judge(env_id: str) -> bool:
    """Returns whether `seedzero league nash` works in an environment; False for a user's own game, of unknown size.

    This does not import a user's module.
    """
    if user_code.named({user_code.ENVIRONMENT: env_id}):
        return False
    try:
        game = spiel.load(game_of(env_id, "this run").name)
    except (errors.UsageError, errors.EnvironmentFailure):
        return False
    return is_small(game)


def in_turn(game: Any) -> Any:
    """Returns a pyspiel.Game in turn-based form; only a simultaneous game is changed."""
    import pyspiel  # type: ignore[import-not-found, unused-ignore]

    kind = game.get_type()
    return pyspiel.convert_to_turn_based(game) if kind.dynamics == kind.Dynamics.SIMULTANEOUS else game


def estimated_histories(game: Any) -> float:
    """Estimates the number of histories of a pyspiel.Game from random games (Knuth 1975).

    A history that follows choices among n_1, n_2, ... children represents n_1 n_2 ... histories of its length; the
    mean over games is unbiased. It takes a fraction of a second, and always gives the same estimate for a game.
    """
    turns, random = in_turn(game), np.random.default_rng(0)
    total, num_games, num_moves = 0.0, 0, 0
    while num_games < _PROBES and num_moves < _MOST_MOVES:
        state, number = turns.new_initial_state(), 1.0
        total, num_games = total + 1.0, num_games + 1
        while not state.is_terminal():
            actions = state.legal_actions()
            number *= len(actions)
            total += number
            state.apply_action(actions[int(random.integers(len(actions)))])
            num_moves += 1
    return total / num_games


def is_small(game: Any, *, max_histories: int = MAX_HISTORIES) -> bool:
    """Returns whether a pyspiel.Game, by an estimate, has far fewer histories than can be visited."""
    return estimated_histories(game) <= max_histories / _DOUBT


def build(game: Any, *, max_histories: int = MAX_HISTORIES) -> GameTree:
    """Returns the tree of a pyspiel.Game of two seats.

    Raises UsageError for a game of more than `max_histories` histories, at once if the estimate is far above that.
    """
    from scipy import sparse  # type: ignore[import-untyped]  # slow to import, and few runs need it

    if (expected := estimated_histories(game)) > _DOUBT * max_histories:
        raise _too_large(game, f"about {expected:.1e}", max_histories)
    kind, turns = game.get_type(), in_turn(game)
    has_rewards = kind.reward_model != kind.RewardModel.TERMINAL
    sums_to_zero = kind.utility == kind.Utility.ZERO_SUM
    found, places, ends = (_Found(), _Found()), array.array("q"), array.array("d")
    # State, each seat's sequence, probability of chance, and each seat's returns at its last turn. The last entry is
    # visited next, so an information state's earlier ones are found before it.
    waiting = [(turns.new_initial_state(), (0, 0), 1.0, (0.0, 0.0))]
    num_histories = 0
    while waiting:
        state, sequences, probability, before = waiting.pop()
        num_histories += 1
        if num_histories > max_histories:
            raise _too_large(game, f"more than {max_histories:,}", max_histories)
        if state.is_terminal():
            places.extend(sequences)
            ends.extend(probability * value for value in state.returns())
        elif state.is_chance_node():
            waiting += [(state.child(x), sequences, probability * p, before) for x, p in state.chance_outcomes()]
        else:
            seat = state.current_player()
            is_first = sequences[seat] == 0
            returns = state.returns()[seat] if has_rewards and not is_first else 0.0
            place = found[seat].of(state, seat, sequences[seat], returns - before[seat])
            now = (returns, before[1]) if seat == 0 else (before[0], returns)
            for sequence, action in enumerate(found[seat].actions[place], found[seat].begins[place]):
                after = (sequence, sequences[1]) if seat == 0 else (sequences[0], sequence)
                waiting.append((state.child(action), after, probability, now))
    seats = (found[0].listed(), found[1].listed())
    rows, columns = np.array(places).reshape(-1, NUM_SEATS).T
    shape = (seats[0].num_sequences, seats[1].num_sequences)
    first, second = (
        sparse.coo_array((values, (rows, columns)), shape).tocsr()
        for values in np.array(ends).reshape(-1, NUM_SEATS).T
    )
    return GameTree(str(turns), seats, first, None if sums_to_zero else second, num_histories)


def _too_large(game: Any, number: str, max_histories: int) -> errors.UsageError:
    return errors.UsageError(
        f"game {game} is too large for an exact judge: it has {number} histories, and the judge visits at most "
        f"{max_histories:,}; experiments/large_games.py learns a response instead"
    )


def to_table(seat: InfoStates, policy: np.ndarray) -> dict[str, dict[int, float]]:
    """Turns a policy [S] into {information state string: {action: probability}}, without sequence 0."""
    values = policy.tolist()
    places = zip(seat.names, seat.actions, seat.begins.tolist(), strict=False)
    return {
        name: dict(zip(actions, values[begin : begin + len(actions)], strict=True)) for name, actions, begin in places
    }


# Computes the exact NashConv of players and of their mixtures in a game of two seats.
#
# A policy is a vector [S] of a seat's action probabilities by sequence (`game_tree`). A plan is the vector [S] of
# their products along the way, the seat's own reach probabilities. Plans mix linearly but policies do not: a mixture
# of players plays pi(a|I) = sum_i s_i r_i(I) pi_i(a|I) / sum_i s_i r_i(I), where r_i is player i's own reach (Kuhn
# 1953).
#
# Shape letters: N players, I information states of a seat, S sequences of a seat.
SMALLEST_WEIGHT = 1e-6
"""Smaller weights in a mixture count as 0, because the linear program's solver is exact to 1e-7."""
SMALLEST_RETURN = 1e-6
"""Smaller mean returns between two players count as 0, because probabilities are float32."""


class Players(NamedTuple):
    """Players' plans for each seat, and their returns against each other."""

    plans: tuple[np.ndarray, np.ndarray]  # [N, S] for each seat
    returns: np.ndarray  # [N, N] exact return of player i in seat 0 against player j in seat 1
    second: np.ndarray  # [N, N] player j's return in that match


def players(tree: GameTree, policies: tuple[np.ndarray, np.ndarray]) -> Players:
    """Returns the players that have these policies [N, S] in each seat."""
    one, other = (to_plans(seat, policy) for seat, policy in zip(tree.seats, policies, strict=True))
    first = (one @ tree.payoff) @ other.T
    return Players((one, other), first, -first if tree.second is None else (one @ tree.second) @ other.T)


def to_plans(seat: InfoStates, policies: np.ndarray) -> np.ndarray:
    """Returns the plans [..., S] of a seat's policies [..., S]."""
    plans = np.array(policies, np.float64)
    plans[..., 0] = 1.0
    for parent, begin, end in _places(seat):
        plans[..., begin:end] *= plans[..., parent, np.newaxis]
    return plans


def best_response(seat: InfoStates, gains: np.ndarray) -> float:
    """Returns a seat's largest return against a fixed plan of the other seat.

    gains: [S] for each own sequence, the sum over terminal states of its return times the probabilities of chance and
    of the other seat.
    """
    values = gains.tolist()
    for parent, begin, end in reversed(_places(seat)):
        values[parent] += max(values[begin:end])
    return float(values[0])


def nash_conv(tree: GameTree, plans: tuple[np.ndarray, np.ndarray]) -> float:
    """Returns NashConv, the gain of best responses summed over both seats; 0 at an equilibrium. plans: [S] by seat."""
    one = best_response(tree.seats[0], tree.payoff @ plans[1])
    if tree.second is None:  # the returns of the plans themselves cancel
        return one + best_response(tree.seats[1], -(plans[0] @ tree.payoff))
    own = float(plans[0] @ tree.payoff @ plans[1]) + float(plans[0] @ tree.second @ plans[1])
    return one + best_response(tree.seats[1], plans[0] @ tree.second) - own


def equilibrium(returns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mixtures [N] for seats 0 and 1 with the best worst-case return, from returns [N, N].

    It solves two linear programs. The mixtures are an equilibrium between these players only if returns sum to zero.
    """
    return _maximin(returns), _maximin(-returns.T)


def _maximin(returns: np.ndarray) -> np.ndarray:
    """Returns the mixture [N] of rows that maximizes the smallest mean over the columns of [N, M]."""
    from scipy import optimize  # takes half a second, and little else needs it

    num_rows, num_columns = returns.shape
    # Variables (weights, value): value - weights @ returns[:, j] <= 0 for each j; weights sum to 1; maximizes value.
    found = optimize.linprog(
        c=[*[0.0] * num_rows, -1.0],
        A_ub=np.hstack([-returns.T, np.ones((num_columns, 1))]),
        b_ub=np.zeros(num_columns),
        A_eq=[[*[1.0] * num_rows, 0.0]],
        b_eq=[1.0],
        bounds=[*[(0.0, None)] * num_rows, (None, None)],
        method="highs",
    )
    assert found.status == 0, found.message  # it is always feasible, and bounded by the largest return
    weights = np.where(found.x[:-1] > SMALLEST_WEIGHT, found.x[:-1], 0.0)
    return np.asarray(weights / weights.sum())


def cyclic_triples(players: Players) -> int:
    """Returns how many triples of players beat each other in a cycle, by mean returns over both seats."""
    lead = players.returns - players.second  # lead of player i in seat 0 over player j
    beats = ((lead - lead.T) / 4 > SMALLEST_RETURN).astype(np.int64)
    return int(np.trace(beats @ beats @ beats)) // 3


def _places(seat: InfoStates) -> list[tuple[int, int, int]]:
    """Returns the parent's sequence, and the first and the end of its own sequences, for each information state."""
    begins = seat.begins.tolist()
    return list(zip(seat.parents.tolist(), begins[:-1], begins[1:], strict=True))
