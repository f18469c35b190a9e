"""Builds the whole tree of an OpenSpiel game of two seats in sequence form (von Stengel 1996).

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
_GAMES = "the judge is for OpenSpiel's games of two seats with hidden information, chance or simultaneous moves"


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
            f"{place} was trained in {name}, a game of perfect information in turn; {_GAMES}. `seedzero evaluate "
            "--opponent=exhaustive` plays all lines of a small game against the run, `seedzero league match` "
            "its players"
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
