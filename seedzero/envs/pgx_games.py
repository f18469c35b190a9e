"""Pgx's games as single states, for matches and for opponents that look at a state, and as texts.

A state has methods of `pyspiel.State`, and a game those of `spiel.Game`, so that `spiel.Games` and matches can play
either. Shape letters: A actions.
"""

from __future__ import annotations

import functools
import string
from typing import Any, NamedTuple

import jax
import numpy as np

from seedzero.core import errors, packing
from seedzero.envs import env_base, pgx_ids, pgx_rules

# Shows games of Pgx as texts: boards with names for their cells, or the numbers that a player observes.
_MARKS = "XO"
"""Stones of the first and the second side."""
_FREE = "."
_MOST_NUMBERS = 64
"""Most numbers of an array in a text."""
_BOARDS = ("tic_tac_toe", "connect_four", "othello", "hex", "go", "go_9x9", "go_19x19")
"""Games whose observations begin with a plane of the mover's stones, and a plane of the opponent's."""


class PgxBoard(NamedTuple):
    """A board of H x W cells; game: its name without arguments."""

    game: str
    height: int
    width: int

    def text(self, seen: np.ndarray, mover: int) -> str:
        """Draws the board from the mover's observation [H, W, C]; mover: 0 for the first side, 1 for the second."""
        own, other = (seen[..., plane] > 0 for plane in (0, 1))
        stones = np.where(own, 1 + mover, np.where(other, 2 - mover, 0)).tolist()
        cells = [" ".join(f"{_FREE}{_MARKS}"[stone] for stone in line) for line in stones]
        if self.game == "connect_four":
            return "\n".join([*cells, " ".join(map(str, range(self.width)))])
        slant = " " if self.game == "hex" else ""
        lines = [f"{self.height - number:>2} {slant * number}{line}" for number, line in enumerate(cells)]
        return "\n".join([*lines, f"   {slant * self.height}{' '.join(string.ascii_lowercase[: self.width])}"])

    def move(self, action: int) -> str:
        """Returns the name of an action."""
        if self.game == "connect_four":
            return str(action)
        if action == self.height * self.width:
            return "swap" if self.game == "hex" else "pass"
        line, column = divmod(action, self.width)
        return f"{string.ascii_lowercase[column]}{self.height - line}"


def board(name: str, shape: tuple[int, ...]) -> PgxBoard | None:
    """Returns the board of a game, given the shape of its observations; None if they show no board."""
    if pgx_ids.module(name) or pgx_ids.parsed(name)[0] not in _BOARDS:
        return None
    return PgxBoard(pgx_ids.parsed(name)[0], *shape[:2])


def numbers(array: np.ndarray) -> str:
    """Shows an array of any game as text; where several planes are set in a cell, the highest one's number, from 1."""
    if array.ndim == 3:
        highest = np.where(array > 0, np.arange(1, array.shape[-1] + 1), 0).max(axis=-1)
        return "\n" + "\n".join(" ".join(f"{cell or _FREE:>3}" for cell in line) for line in highest.tolist())
    shown = [f"{value:g}" for value in array.reshape(-1)[:_MOST_NUMBERS].tolist()]
    return " ".join(shown) + (f" and {array.size - _MOST_NUMBERS} more" if array.size > _MOST_NUMBERS else "")


class _Facts(NamedTuple):
    """What is known about a state, in the host's memory."""

    observation: Any
    legal: Any  # [A] bool
    mover: Any  # scalar int
    rewards: Any  # [players] of the step that led to the state
    is_over: Any  # scalar bool


class State:
    """A state of a game, with the moves that led to it, or None if they are not known."""

    def __init__(
        self, game: PgxGame, state: pgx_rules.State, facts: _Facts, returns: np.ndarray, moves: tuple[int, ...] | None
    ):
        self._game, self.arrays, self.facts, self._returns, self._moves = game, state, facts, returns, moves

    def get_game(self) -> PgxGame:
        return self._game

    def clone(self) -> State:
        return State(self._game, self.arrays, self.facts, self._returns, self._moves)

    def is_terminal(self) -> bool:
        return bool(self.facts.is_over)

    def is_chance_node(self) -> bool:
        return False

    def current_player(self) -> int:
        return int(self.facts.mover)

    def legal_actions(self, player: int | None = None) -> list[int]:
        """Returns the legal actions of the player to move; other players, and terminal states, have none."""
        is_free = not self.is_terminal() and player in (None, self.current_player())
        found: list[int] = np.flatnonzero(self.facts.legal).tolist() if is_free else []
        return found

    def apply_action(self, action: int) -> None:
        """Makes a legal move."""
        after = self.child(action)
        self.arrays, self.facts, self._returns, self._moves = after.arrays, after.facts, after._returns, after._moves

    def child(self, action: int) -> State:
        """Returns the state after a legal move."""
        if action not in self.legal_actions():
            raise ValueError(f"action {action} is illegal")
        with pgx_rules.on_cpu():
            arrays, found = self._game.run.step(self.arrays, np.int32(action))
            facts = _Facts(*map(np.asarray, found))
        moves = None if self._moves is None else (*self._moves, int(action))
        return State(self._game, arrays, facts, self._returns + facts.rewards, moves)

    def returns(self) -> list[float]:
        """Returns each player's sum of rewards since the first move, or since the first known state."""
        found: list[float] = self._returns.tolist()
        return found

    def history(self) -> list[int]:
        """Returns the moves since the start, without those of chance. Raises ValueError if they are not known."""
        if self._moves is None:
            raise ValueError("the moves before this state are not known; use only the state")
        return list(self._moves)

    def move_number(self) -> int:
        return len(self.history())


class _GamePrograms(NamedTuple):
    """The compiled functions of a game, on single states."""

    begin: Any  # seed -> state, facts
    step: Any  # (state, action) -> state, facts
    rollout: Any  # (state, seed) -> each player's sum of rewards in a game with random moves


class _Type(NamedTuple):
    """Those parts of a `pyspiel.GameType` that a search reads."""

    short_name: str
    reward_model: Any
    dynamics: Any
    information: Any


class _Rollouts(NamedTuple):
    """Evaluates states for OpenSpiel's tree search by one game of random moves, which is a compiled loop."""

    run: _GamePrograms
    random: np.random.RandomState

    def evaluate(self, state: State) -> np.ndarray:
        """Returns each player's return."""
        with pgx_rules.on_cpu():
            rest: np.ndarray = np.asarray(self.run.rollout(state.arrays, np.uint32(self.random.randint(2**31))))
        return rest + state.returns()

    def prior(self, state: State) -> list[tuple[int, float]]:
        """Returns the legal actions, all with the same probability."""
        legal = state.legal_actions()
        return [(action, 1 / len(legal)) for action in legal]


class PgxGame:
    """The rules of a game for two players without chance; a `turn_games.TurnGame`, like `spiel.Game`."""

    has_chance = False

    def __init__(self, name: str, *, has_state: bool = False) -> None:
        """name: see `pgx_rules.GameRules`, which also raises. has_state: observations contain the game's state."""
        self._rules = pgx_rules.game(name)
        self.name, self._has_state, self.spec = name, has_state, self._rules.spec(has_state=has_state)
        if self._rules.num_players != 2 or self._rules.has_chance:
            raise errors.EnvironmentFailure(
                f"game {name!r}: matches, and opponents that search, are for games of two players without chance"
            )
        self.num_players, self.num_actions = 2, self._rules.num_actions
        self.kind = pgx_ids.kind(name)
        self.run = _game_programs(self._rules)
        self.first_mover = self.mover(self.initial())

    def initial(self, generator: np.random.Generator | None = None) -> State:
        """Returns the state before the first move, without drawing anything."""
        with env_base.failures_of(f"game {self.name!r} cannot be started"), pgx_rules.on_cpu():
            arrays, facts = self.run.begin(np.uint32(0))
            return State(self, arrays, _Facts(*map(np.asarray, facts)), np.zeros(2), ())

    def of_group(self, states: pgx_rules.State, index: int) -> State:
        """Returns one of the states [E], whose earlier moves are not known."""
        arrays = jax.tree.map(lambda leaf: np.asarray(leaf)[index], states)
        return State(self, arrays, _facts(self._rules, arrays), np.zeros(2), None)

    def mover(self, state: State) -> int:
        return state.current_player()

    def observe(self, state: State) -> np.ndarray:
        seen = self._rules.observation
        observation: np.ndarray = state.facts.observation.astype(seen.dtype)
        if not self._has_state:
            return observation
        states = jax.tree.map(lambda leaf: np.asarray(leaf)[None], state.arrays)
        values = {seen.name: observation[None], self._rules.state_name: self._rules.encode(states)}
        found: np.ndarray = packing.pack(self.spec.packed, values)[0]
        return found

    def legal_mask(self, state: State) -> np.ndarray:
        return np.ones(self.num_actions, bool) if state.is_terminal() else state.facts.legal.copy()

    def apply(self, state: State, action: int, generator: np.random.Generator | None = None) -> State:
        with env_base.failures_of(f"game {self.name!r} refuses action {action}"):
            return state.child(action)

    def is_terminal(self, state: State) -> bool:
        return state.is_terminal()

    def returns(self, state: State) -> tuple[float, ...]:
        return tuple(state.returns())

    def get_type(self) -> Any:
        """Returns what OpenSpiel needs to know about the game: its name, rewards at the end, and players in turn."""
        import pyspiel  # type: ignore[import-not-found, unused-ignore]

        kind = pyspiel.GameType
        is_open = kind.Information.PERFECT_INFORMATION
        return _Type(self.kind, kind.RewardModel.TERMINAL, kind.Dynamics.SEQUENTIAL, is_open)

    def get_parameters(self) -> dict[str, Any]:
        """Returns the size of a square board, and Go's komi, under OpenSpiel's names."""
        game = getattr(self._rules.env, "_game", None)
        found = {"board_size": getattr(game, "size", None), "komi": getattr(game, "komi", None)}
        return {name: value for name, value in found.items() if value is not None}

    def max_utility(self) -> float:
        return 1.0

    def rollouts(self, random: np.random.RandomState) -> _Rollouts:
        """Returns the evaluator for OpenSpiel's tree search in Python; random: draws its moves."""
        return _Rollouts(self.run, random)


def _facts(rules: pgx_rules.GameRules, state: pgx_rules.State) -> _Facts:
    mover = state.current_player.clip(0, rules.num_players - 1)
    return _Facts(state.observation, state.legal_action_mask, mover, state.rewards, pgx_rules.is_over(state))


@functools.cache
def _game_programs(rules: pgx_rules.GameRules) -> _GamePrograms:
    env, facts = rules.env, functools.partial(_facts, rules)

    def begin(seed: jax.Array) -> tuple[pgx_rules.State, _Facts]:
        state = env.init(jax.random.key(seed))
        return state, facts(state)

    def step(state: pgx_rules.State, action: jax.Array) -> tuple[pgx_rules.State, _Facts]:
        after = env.step(state, action)
        return after, facts(after)

    def rollout(state: pgx_rules.State, seed: jax.Array) -> jax.Array:
        return rules.rollout(state, jax.random.key(seed))

    return _GamePrograms(jax.jit(begin), jax.jit(step), jax.jit(rollout))
