"""Finds the true positions behind the nodes of a search tree by the rules of the game."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.core import errors, packing, printable, types
from seedzero.envs import pgx_games, pgx_rules, spiel
from seedzero.search import outcomes

State: TypeAlias = Any
"""A game's state, in the form that its `GamePlace` uses."""


class GamePlace(Protocol):
    """A game and its state at the root of a search tree."""

    @property
    def state(self) -> State: ...

    def legal(self, state: State) -> Sequence[int]:
        """Returns the legal actions, or the codes of outcomes if chance is next; empty if the game is over."""

    def name(self, state: State, action: int) -> str:
        """Returns the game's name of a legal action, or "" if it has no name."""

    def after(self, state: State, action: int) -> State:
        """Returns the state after a legal action."""

    def text(self, state: State) -> str:
        """Returns the state as text."""


class SpielPlace(NamedTuple):
    """A state of a game of OpenSpiel without chance."""

    game: spiel.Game
    state: spiel.State

    def legal(self, state: State) -> Sequence[int]:
        found: list[int] = [] if self.game.is_terminal(state) else state.legal_actions()
        return found

    def name(self, state: State, action: int) -> str:
        return str(state.action_to_string(self.game.mover(state), action))

    def after(self, state: State, action: int) -> State:
        return self.game.apply(state, action)

    def text(self, state: State) -> str:
        return str(state)


class _Decided(NamedTuple):
    """A state, with the keys [1, ...] from which the search draws what chance does behind it."""

    now: pgx_rules.State
    keys: jax.Array


class _Undecided(NamedTuple):
    """A state and an action whose outcome chance has not decided yet."""

    before: _Decided
    action: int


class PgxPlace(NamedTuple):
    """A state of Pgx, as a group of one, with empty observations; chance decides as in AlphaZero's search."""

    rules: pgx_rules.GameRules
    state: _Decided

    def legal(self, state: State) -> Sequence[int]:
        if isinstance(state, _Undecided):
            return range(np.iinfo(np.int32).max)
        is_over = bool(pgx_rules.is_over(state.now)[0])
        found: list[int] = [] if is_over else np.flatnonzero(state.now.legal_action_mask[0]).tolist()
        return found

    def name(self, state: State, action: int) -> str:
        board = pgx_games.board(self.rules.name, self.rules.observation.shape)
        return "" if isinstance(state, _Undecided) else str(action) if board is None else board.move(action)

    def after(self, state: State, action: int) -> State:
        if self.rules.has_chance and not isinstance(state, _Undecided):
            return _Undecided(state, action)
        is_drawn = isinstance(state, _Undecided)
        before, taken, code = (state.before, state.action, action) if is_drawn else (state, action, 0)
        with pgx_rules.on_cpu():
            return _Decided(*_step(self.rules)(*before, jnp.int32([taken]), jnp.int32([code])))

    def text(self, state: State) -> str:
        if isinstance(state, _Undecided):
            return f"{self.text(state.before)}\nafter {self.name(state.before, state.action)}, before chance"
        with pgx_rules.on_cpu():
            seen = np.asarray(_show(self.rules)(state.now))[0]
        if (board := pgx_games.board(self.rules.name, seen.shape)) is None:
            return pgx_games.numbers(seen).strip("\n")
        return board.text(seen, int(state.now._step_count[0]) % 2)


@functools.cache
def _step(rules: pgx_rules.GameRules) -> Any:
    def step(state: pgx_rules.State, keys: jax.Array, action: jax.Array, code: jax.Array) -> Any:
        drawn, behind = outcomes.outcome_keys(keys, code) if rules.has_chance else (None, keys)
        return rules.step(state, action, drawn)[0], behind

    return jax.jit(step)


@functools.cache
def _show(rules: pgx_rules.GameRules) -> Any:
    return jax.jit(rules.show)


def of_moves(env_id: str, spec: types.EnvSpec, moves: Sequence[int], observation: np.ndarray) -> SpielPlace:
    """Returns the state after all moves since the start.

    Raises UsageError as `after`, for a game of Pgx, and if the state's observation differs from the given one.
    """
    if not env_id.startswith("spiel:"):
        raise errors.UsageError(f"moves={list(moves)}: {env_id} is not a game of spiel:; leave them out")
    game, state = after(env_id, spec, moves)
    if not np.array_equal(game.observe(state), observation):
        raise errors.UsageError(f"moves={list(moves)} lead to another observation; expected all moves since the start")
    return SpielPlace(game, state)


def after(env_id: str, spec: types.EnvSpec, moves: Any) -> tuple[Any, State]:
    """Returns the rules of a game, a `turn_games.TurnGame`, and its state after all moves since the start.

    Raises UsageError for other environments, for moves that the game does not allow, and for a game that is over.
    """
    kind, _, name = env_id.partition(":")
    if spec.seats or spec.has_chance or (kind != "spiel" and (kind != "pgx" or spec.num_players != 2)):
        raise errors.UsageError(
            f"moves={moves!r:.100}: {env_id} is not a game of spiel: or pgx: without chance and seats; leave them out"
        )
    if not isinstance(moves, list | tuple | np.ndarray):
        raise errors.UsageError(f"moves is {moves!r:.100}; expected a list of all moves since the start, as [4, 0]")
    game: Any = _game(name) if kind == "spiel" else _pgx_game(name, bool(spec.packed))
    state, given = game.initial(), np.asarray(moves, object).ravel().tolist()
    for number, move in enumerate(given):
        if move not in state.legal_actions():
            raise errors.UsageError(f"moves={given!s:.100}: the game does not allow {move!r:.20} after {number} moves")
        state = game.apply(state, int(move))
    return game, state


def seen(env_id: str, spec: types.EnvSpec, moves: Any) -> dict[str, Any]:
    """Returns `observation` and `action_mask` after all moves since the start of a game. Raises as `after`."""
    game, state = after(env_id, spec, moves)
    if game.is_terminal(state):
        raise errors.UsageError(f"moves={list(moves)!s:.100}: the game is over after them; expected fewer")
    rows = game.observe(state)[np.newaxis]
    arrays = {name: array[0] for name, array in packing.unpack(spec.packed, rows).items()} if spec.packed else rows[0]
    return {"observation": arrays, "action_mask": game.legal_mask(state)}


_game = functools.lru_cache(maxsize=8)(spiel.Game)
_pgx_game = functools.lru_cache(maxsize=8)(lambda name, has_state: pgx_games.PgxGame(name, has_state=has_state))


def of_observation(
    env_id: str, spec: types.EnvSpec, observation: np.ndarray, action_mask: np.ndarray | None, key: jax.Array
) -> PgxPlace | None:
    """Returns the game state contained in an observation [1, ...], or None if it contains none. key: the search's."""
    kind, _, name = env_id.partition(":")
    if kind != "pgx" or not spec.packed or action_mask is None:
        return None
    rules = pgx_rules.game(name)
    states = packing.unpack(spec.packed, observation).get(rules.state_name)
    if states is None:
        return None
    with pgx_rules.on_cpu():
        state = rules.decode(jnp.asarray(states), jnp.asarray(action_mask))
        return PgxPlace(rules, _Decided(state, outcomes.root_keys(key, 1)))


class Position(NamedTuple):
    """What the rules of the game say about a node.

    is_legal: whether all actions up to here are legal, or None if unknown. text: the game's own text, or None if it is
    unknown or there is no such position. name: the action that leads here, or "" if the game has no name for it.
    """

    is_legal: bool | None
    text: str | None
    name: str


def along(parents: Sequence[int], actions: Sequence[int], place: GamePlace | None) -> list[Position]:
    """Returns the position of each node of a tree; the first node is the root."""
    if place is None:
        return [Position(None, None, "")] * len(parents)
    states: list[State | None] = [place.state]
    names = [""]
    for parent, action in zip(parents[1:], actions[1:], strict=True):
        before = states[parent]
        is_legal = before is not None and action in place.legal(before)
        names.append(printable.escape(place.name(before, action)) if is_legal else str(action))
        states.append(place.after(before, action) if is_legal else None)
    return [
        Position(state is not None, None if state is None else printable.escape_lines(place.text(state)), name)
        for state, name in zip(states, names, strict=True)
    ]
