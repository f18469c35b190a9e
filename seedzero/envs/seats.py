"""Plays games in which a row is a seat: hidden information, simultaneous moves, or several players.

Shape letters: E rows of one group, S seats of a game, A actions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from seedzero.core import errors, opponents, types
from seedzero.envs import bots, env_base

State = Any
"""A state of a game, of the game's own type; functions here return new ones instead of changing them."""


class SeatGame(Protocol):
    """The rules of a game of S = `num_seats` seats, as functions of single states."""

    name: str
    spec: types.EnvSpec  # with seats and an action mask
    num_seats: int

    def initial(self, generator: np.random.Generator) -> State:
        """Returns the state before the first move."""

    def movers(self, state: State) -> tuple[int, ...]:
        """Returns the seats that move now, simultaneously; none if the game is over."""

    def is_out(self, state: State, seat: int) -> bool:
        """Returns whether a seat's episode has ended while others continue, so that it no longer moves."""

    def observe(self, state: State, seat: int) -> np.ndarray:
        """Returns a seat's observation, [*observation_shape] of the spec's dtype."""

    def legal_mask(self, state: State, seat: int) -> np.ndarray:
        """Returns [A] bool, true: legal; at least one."""

    def apply(self, state: State, actions: Mapping[int, int], generator: np.random.Generator) -> State:
        """Returns the state after the actions of all movers, by seat; the generator draws chance."""

    def returns(self, state: State) -> Sequence[float]:
        """Returns [S], each seat's sum of rewards since the first move."""


def random_action(mask: np.ndarray, generator: np.random.Generator) -> int:
    """Draws a legal action, all equally likely; mask: [A] bool."""
    legal = np.flatnonzero(mask)
    return int(legal[generator.integers(len(legal))])


@dataclasses.dataclass
class _Table:
    """A game in progress, with its rows. Chairs without a row move at random."""

    index: int
    generator: np.random.Generator
    state: State = None
    movers: Sequence[int] = ()  # chairs that move, including those without a row
    moving: Sequence[int] = ()  # chairs that move and have a row, all of them where none had a turn; none: it is over
    rows: dict[int, int] = dataclasses.field(default_factory=dict)  # chair -> its row
    # chair whose episode has begun and continues -> rewards paid so far
    paid: dict[int, float] = dataclasses.field(default_factory=dict)
    num_episodes: int = 0
    opponent: str = opponents.RANDOM  # moves in chairs without a row
    members: bots.Members = dataclasses.field(default_factory=lambda: bots.Members(0))


class SeatGames:
    """E rows, which are seats in copies of one game."""

    def __init__(
        self,
        game: SeatGame,
        num_envs: int,
        *,
        role: types.Role = types.Role.TRAIN,
        against: Sequence[str] = (opponents.RANDOM,),
    ) -> None:
        """Makes the rows; `reset` rejects a number of rows that does not make whole games.

        role: in training row g * S + r is a seat of game g, and sits in chair (r + j + g) % S in its episode j. An
          evaluating row e is a separate game, and sits in chair (e + j) % S; the others move at random.
        against: names of opponents for evaluating rows in games of two seats. If there are others than random moves,
          episode j of row e has number n = e + E j, and is played in chair n % 2 against opponent n // 2 modulo their
          number, so that the first episodes, however many, have all opponents equally often.
        """
        tasks = opponents.tasks(against) if role is types.Role.EVALUATE else ()
        self._against = tuple(against) if tasks else ()
        self.spec, self.num_envs = dataclasses.replace(game.spec, tasks=tasks or game.spec.tasks), num_envs
        self._game = game
        self._plays_all = role is types.Role.TRAIN
        self._rows_per_game = game.num_seats if self._plays_all else 1
        self._tables: list[_Table] = []
        self._task = np.zeros(num_envs, np.int32)
        self._mask = np.ones((num_envs, self.spec.num_actions), bool)

    @property
    def states(self) -> list[State]:
        """The games' states, after a reset."""
        return [table.state for table in self._tables]

    def reset(self, seeds: Sequence[int]) -> types.EnvStep:
        """Starts a new game everywhere, with the seed of its first row.

        Raises EnvironmentFailure if, in training, the number of rows is not a multiple of the seats.
        """
        env_base.check_seeds(seeds, self.num_envs)
        size = self._rows_per_game
        env_base.check_whole(self.num_envs, size, f"game {self._game.name!r} has {size} seats")
        self._tables = [
            _Table(index, np.random.default_rng(seed), members=bots.Members(seed))
            for index, seed in enumerate(seeds[::size])
        ]
        with env_base.failures_of(f"game {self._game.name!r} raised"):
            return self._step([0] * self.num_envs)

    def step(self, actions: np.ndarray) -> types.EnvStep:
        env_base.check_actions(actions, self.num_envs, self.spec)
        env_base.check_legal(actions, self._mask, self._game.name)
        with env_base.failures_of(f"game {self._game.name!r} raised"):
            return self._step(actions.tolist())

    def with_bots(self, actions: np.ndarray, names: Sequence[str]) -> np.ndarray:
        """Returns the actions [E] for the next step: in rows that `names` [E] has a bot for, and that move, the bot's.

        For games whose states are OpenSpiel's. Raises EnvironmentFailure if a bot raised, or chose no legal action.
        """
        found: np.ndarray = actions.copy()
        for table in self._tables:
            for chair in table.moving if table.movers else ():
                if name := names[table.rows[chair]]:
                    found[table.rows[chair]] = table.members.move(name, table.state, chair)
        return found

    def render(self) -> np.ndarray:
        raise errors.EnvironmentFailure(
            f"game {self._game.name!r} cannot be drawn: a row shows the numbers that a seat knows, and no board"
        )

    def close(self) -> None:
        pass

    def _step(self, actions: Sequence[int]) -> types.EnvStep:
        """Advances every game; actions: [E]."""
        game, num_envs = self._game, self.num_envs
        observation = np.zeros((num_envs, *self.spec.observation_shape), self.spec.observation_dtype)
        reward, terminated = np.zeros(num_envs, np.float32), np.zeros(num_envs, bool)
        shown, self._mask = np.zeros(num_envs, bool), np.ones((num_envs, self.spec.num_actions), bool)
        for table in self._tables:
            ended, rows = self._advance(table, actions), table.rows
            state, returns, paid = table.state, game.returns(table.state), table.paid
            for chair in table.moving:
                row = rows[chair]
                shown[row], observation[row] = True, game.observe(state, chair)
                if table.movers:
                    self._mask[row] = game.legal_mask(state, chair)
                if chair in paid:
                    reward[row], paid[chair] = returns[chair] - paid[chair], returns[chair]
                else:
                    paid[chair] = 0.0
            for chair in ended:
                row = rows[chair]
                shown[row], terminated[row], observation[row] = True, True, game.observe(state, chair)
                reward[row] = returns[chair] - paid.pop(chair)
        return types.EnvStep(
            observation,
            reward,
            terminated,
            np.zeros(num_envs, bool),
            self._mask & shown[:, np.newaxis],
            self._task.copy(),
            shown if self._plays_all else None,
        )

    def _advance(self, table: _Table, actions: Sequence[int]) -> list[int]:
        """Advances until a chair with a row moves or ends; returns the chairs that end. actions: [E]."""
        game = self._game
        if table.moving and not table.movers:
            ended, table.moving = list(table.moving), ()
            return ended
        if table.moving:
            state = self._moved(table, {chair: actions[table.rows[chair]] for chair in table.moving})
        else:
            state = self._begin(table)
        while True:
            table.state, table.movers = state, game.movers(state)
            table.moving = [chair for chair in table.movers if chair in table.rows]
            ended = [chair for chair in table.paid if not table.movers or game.is_out(state, chair)]
            if table.moving or ended:
                return ended
            if not table.movers:  # over without a turn: shown once for any action, because its rewards count
                table.moving = list(table.rows)
                return []
            state = self._moved(table, {})

    def _moved(self, table: _Table, actions: dict[int, int]) -> State:
        """Returns the state after the given actions of chairs, and the opponent's moves for the other movers."""
        for chair in table.movers:
            if chair not in actions and table.opponent != opponents.RANDOM:
                actions[chair] = table.members.move(table.opponent, table.state, chair)
            elif chair not in actions:
                actions[chair] = random_action(self._game.legal_mask(table.state, chair), table.generator)
        return self._game.apply(table.state, actions, table.generator)

    def _begin(self, table: _Table) -> State:
        """Starts another game and assigns its rows to chairs; returns its first state."""
        size, step = self._rows_per_game, self.num_envs if self._against else 1
        number = table.index + table.num_episodes * step
        table.rows = {(row + number) % self._game.num_seats: table.index * size + row for row in range(size)}
        for chair, row in table.rows.items():
            self._task[row] = chair
        if self._against:
            place = number // 2 % len(self._against)
            table.opponent = self._against[place]
            self._task[table.index] += 2 * place
        table.members.begin(table.num_episodes)
        table.paid, table.num_episodes = {}, table.num_episodes + 1
        return self._game.initial(table.generator)
