"""Plays Pgx's games: one compiled program steps a group of games.

A worker for these needs JAX, but only on its CPU. Shape letters: E environments of one group, A actions, N bytes of a
state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.config import sections
from seedzero.core import errors, opponents, packing, types
from seedzero.envs import bots, env_base, pgx_games, pgx_rules, spiel

State: TypeAlias = pgx_rules.State


class PgxGames:
    """E copies of one game, stepped by one program. A step's reward is the acting player's, since its last step."""

    def __init__(
        self,
        rules: pgx_rules.GameRules,
        num_envs: int,
        *,
        has_state: bool = False,
        against: Sequence[str] = (),
        random_opening: int = 0,
    ) -> None:
        """Makes the games. against, random_opening: see `spiel.Games`, except that opponents always move at random.

        has_state: shows the game's state next to the observation.
        """
        self._rules, self.num_envs, self._has_state = rules, num_envs, has_state
        two_players = rules.num_players == 2
        self._has_opponent = bool(against) and two_players
        self._opening = random_opening if two_players and not against else 0
        self.spec = rules.spec(has_state=has_state)
        self._raised = f"game {rules.name!r} raised"
        self._keys: Any = None
        self._number = np.zeros(num_envs, np.int64)  # how often the key was used
        self._episodes = np.zeros(num_envs, np.int64)
        self._states: State = None
        self._mask = np.ones((num_envs, rules.num_actions), bool)
        self._members: list[bots.Members] = []
        self._player = np.zeros(num_envs, np.int64)  # the player whose turns the agent sees, if others move, too
        self._lost = np.zeros(num_envs, np.float32)  # what the opponent earned before the agent's first move

    def reset(self, seeds: Sequence[int]) -> types.EnvStep:
        env_base.check_seeds(seeds, self.num_envs)
        with env_base.failures_of(self._raised), pgx_rules.on_cpu():
            self._keys = jax.vmap(jax.random.key)(np.array(seeds, np.uint32))
            self._number[:], self._episodes[:] = 0, 0
            self._members = [bots.Members(seed) for seed in seeds]
            self._begin(np.ones(self.num_envs, bool))
            return self._show(np.zeros(self.num_envs, np.float32))

    def step(self, actions: np.ndarray) -> types.EnvStep:
        env_base.check_actions(actions, self.num_envs, self.spec)
        env_base.check_legal(actions, self._mask, self._rules.name)
        with env_base.failures_of(self._raised), pgx_rules.on_cpu():
            was_over = np.asarray(pgx_rules.is_over(self._states))
            reward = self._move(actions, ~was_over)
            if self._has_opponent:
                reward -= self._reply(~was_over) + self._lost
                self._lost[:] = 0
            if was_over.any():
                self._begin(was_over)
            return self._show(np.where(was_over, np.float32(0.0), reward))

    def with_bots(self, actions: np.ndarray, names: Sequence[str]) -> np.ndarray:
        found, is_over = actions.copy(), np.asarray(pgx_rules.is_over(self._states))
        for index in np.flatnonzero([bool(name) for name in names] & ~is_over).tolist():
            state = self._game.of_group(self._states, index)
            found[index] = self._members[index].move(names[index], state, self._game.mover(state))
        return found

    def render(self) -> np.ndarray:
        board = np.asarray(self._states.observation[0])
        if board.ndim != 3:
            raise errors.EnvironmentFailure(
                f"game {self._rules.name!r} cannot be drawn: its observation is not a board"
            )
        if self._rules.num_players == 1:
            return env_base.paint(board.astype(np.float32))
        pieces = board[..., :2]  # the mover's own, and the other's; each player keeps a colour
        is_second = bool(self._states.current_player[0])
        return env_base.paint((pieces[..., ::-1] if is_second else pieces).astype(np.float32))

    def close(self) -> None:
        pass

    @functools.cached_property
    def _game(self) -> pgx_games.PgxGame:
        """The game in the form that bots take."""
        return pgx_games.PgxGame(self._rules.name)

    def _next_keys(self) -> jax.Array:
        keys: jax.Array = _fold(self._keys, self._number.astype(np.uint32))
        self._number += 1
        return keys

    def _begin(self, where: np.ndarray) -> None:
        """Starts a game in some environments, [E] bool, and makes the opponent's first move where it begins."""
        fresh = _programs(self._rules).begin(self._next_keys(), self._opening)
        self._states = fresh if self._states is None else _merge(where, fresh, self._states)
        if self._has_opponent:
            second = (np.arange(self.num_envs) + self._episodes) % 2
            begun, first = self._states, np.asarray(self._states.current_player)
            self._player[where] = ((first + second) % 2)[where]
            self._lost = self._reply(where)
            # An opening that ends the game leaves the agent no turn, so the agent moves first then.
            has_ended = where & np.asarray(pgx_rules.is_over(self._states))
            self._states = _merge(has_ended, begun, self._states) if has_ended.any() else self._states
            self._player[has_ended], self._lost[has_ended] = first[has_ended], 0
        for index in np.flatnonzero(where).tolist():
            self._members[index].begin(int(self._episodes[index]))
        self._episodes += where

    def _move(self, actions: np.ndarray, where: np.ndarray) -> np.ndarray:
        """Makes moves in some environments, [E] bool; returns the movers' rewards [E], 0 elsewhere."""
        after, reward = _programs(self._rules).step(self._states, jnp.asarray(actions, jnp.int32), self._next_keys())
        if self._rules.num_players == 2 and not self._rules.moves_again:
            again = where & (after.current_player == self._states.current_player) & ~pgx_rules.is_over(after)
            if np.any(again):
                raise errors.EnvironmentFailure(
                    f"in game {self._rules.name!r} a player moves twice in a row; supported are games whose players "
                    "take turns, and games with chance; give your own object the attribute has_chance=True"
                )
        self._states = _merge(where, after, self._states)
        return np.where(where, np.asarray(reward, np.float32), np.float32(0.0))

    def _reply(self, where: np.ndarray) -> np.ndarray:
        """Makes random moves in some environments until the agent's turn or the end; returns their rewards [E]."""
        total = np.zeros(self.num_envs, np.float32)
        while np.any(moving := where & self._is_others()):
            total += self._move(np.asarray(_random_moves(self._next_keys(), self._states)), moving)
        return total

    def _is_others(self) -> np.ndarray:
        """Returns where it is the opponent's turn, [E] bool."""
        is_over = np.asarray(pgx_rules.is_over(self._states))
        found: np.ndarray = ~is_over & (np.asarray(self._states.current_player) != self._player)
        return found

    def _show(self, reward: np.ndarray) -> types.EnvStep:
        states = self._states
        self._mask = np.array(states.legal_action_mask, bool)
        terminated = np.array(states.terminated, bool)
        self._mask[terminated | np.asarray(states.truncated)] = True
        seen = self._rules.observation
        observation = np.asarray(self._rules.seen(states))
        if self._has_state:
            values = {seen.name: observation, self._rules.state_name: self._rules.encode(states)}
            observation = packing.pack(self.spec.packed, values)
        truncated = np.array(states.truncated, bool) & ~terminated
        return types.EnvStep(observation, reward, terminated, truncated, self._mask.copy())


class _Programs(NamedTuple):
    begin: Callable[[jax.Array, int], State]  # (keys [E], largest number of random moves) -> states [E]
    step: Callable[[State, jax.Array, jax.Array], tuple[State, jax.Array]]  # see `pgx_rules.GameRules.step`


@functools.cache
def _programs(rules: pgx_rules.GameRules) -> _Programs:
    def opened(key: jax.Array, most: int) -> State:
        """Returns the state after 0 to `most` random moves, equally likely numbers.

        Stops before a move that ends the game.
        """
        begin_key, number_key, move_key = jax.random.split(key, 3)
        state, number = rules.env.init(begin_key), jax.random.randint(number_key, (), 0, most + 1)

        def move(carry: tuple[State, jax.Array], index: jax.Array) -> tuple[tuple[State, jax.Array], None]:
            state, goes_on = carry
            action_key, chance_key = jax.random.split(jax.random.fold_in(move_key, index))
            after = pgx_rules.after_action(rules, state, _random_move(action_key, state), chance_key)
            goes_on &= (index < number) & ~pgx_rules.is_over(after)
            return (jax.tree.map(lambda new, old: jnp.where(goes_on, new, old), after, state), goes_on), None

        (state, _), _ = jax.lax.scan(move, (state, jnp.array(True)), jnp.arange(most))
        return state

    @functools.partial(jax.jit, static_argnums=1)
    def begin(keys: jax.Array, most: int) -> State:
        return jax.vmap(opened if most else lambda key, _: rules.env.init(key), (0, None))(keys, most)

    return _Programs(begin, jax.jit(rules.step))


def _random_move(key: jax.Array, state: State) -> jax.Array:
    """Draws a legal action, all equally likely."""
    return jax.random.categorical(key, jnp.where(state.legal_action_mask, 0.0, -jnp.inf))


_random_moves = jax.jit(jax.vmap(_random_move))
_fold = jax.jit(jax.vmap(jax.random.fold_in))


@jax.jit
def _merge(where: jax.Array, new: State, old: State) -> State:
    """Takes new states where `where` [E] bool is true, and old ones elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(where.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old)


def make(
    name: str, settings: sections.EnvConfig, num_envs: int, *, role: types.Role = types.Role.TRAIN
) -> PgxGames | spiel.Games:
    """Returns E copies of a game by name: self-play, or evaluation against the opponents in the settings.

    If opponents look at single states, games are single, too. Raises as `pgx_rules.GameRules`.
    """
    against, rules = opponents.parse(settings.opponents) if role is types.Role.EVALUATE else (), pgx_rules.game(name)
    if rules.num_players == 2 and set(against) - {opponents.RANDOM}:
        game = pgx_games.PgxGame(name, has_state=settings.game_state)
        return spiel.Games(game, num_envs, against=against)
    return PgxGames(
        rules,
        num_envs,
        has_state=settings.game_state,
        against=against,
        random_opening=settings.random_opening,
    )
