"""Plays OpenSpiel's games in which rows are seats: several players, hidden information, chance, simultaneous moves.

States are OpenSpiel's and are not changed here: a move returns a new one. Shape letters: N numbers of an observation,
A actions, S seats.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from seedzero.config import sections
from seedzero.core import errors, opponents, types
from seedzero.envs import bots, env_base, seats, spiel

State = spiel.State

_SIMULTANEOUS = -2
"""The number that OpenSpiel gives as the player where all move; seats have numbers from 0."""


class SpielSeats:
    """The rules of a game with seats, as functions of single states; a `seats.SeatGame`."""

    def __init__(self, name: str) -> None:
        """Loads a game and plays a few random games, because OpenSpiel does not declare the range of observations.

        name: see `spiel.load`, such as "kuhn_poker" or "goofspiel(num_cards=4)".

        Raises EnvironmentFailure if OpenSpiel is missing, or the game is unknown, unsupported, or over at its start.
        """
        self.name = name
        self._game = spiel.load(name)
        kind = self._game.get_type()
        self._shows_information_state = bool(kind.provides_information_state_tensor)
        _refuse_unsupported(name, self._game)
        self.num_seats = int(self._game.num_players())
        self.num_actions = int(self._game.num_distinct_actions())
        self.sums_to_zero = kind.utility == kind.Utility.ZERO_SUM
        self._pays_at_the_end = kind.reward_model == kind.RewardModel.TERMINAL
        self._nothing = (0.0,) * self.num_seats
        self._refusal = f"game {name!r} refuses a move"
        with env_base.failures_of(f"game {name!r} cannot be played"):
            self._shape = (math.prod(_observation_shape(self._game)),)
            self._order = [self._own_first(seat) for seat in range(self.num_seats)]
            low, high = (0.0, 1.0) if self._try_out() else (-math.inf, math.inf)
            names = opponents.SIDES if self.num_seats == 2 else tuple(f"seat {n + 1}" for n in range(self.num_seats))
            self.spec = types.EnvSpec(
                self._shape, "float32", self.num_actions, low, high, has_action_mask=True, tasks=names, seats=names
            )

    def initial(self, generator: np.random.Generator) -> State:
        return spiel.draw_chance(self._game.new_initial_state(), generator)

    def movers(self, state: State) -> tuple[int, ...]:
        """Returns the seats that move: all of them if moves are simultaneous, none if the game is over."""
        player = state.current_player()
        if player >= 0:
            return (player,)
        return tuple(range(self.num_seats)) if player == _SIMULTANEOUS else ()

    def is_out(self, state: State, seat: int) -> bool:
        """Returns whether a seat's game has ended early, which OpenSpiel never reports."""
        return False

    def observe(self, state: State, seat: int) -> np.ndarray:
        """Returns [N] float32, all that a seat knows: its information state, or the state if nothing is hidden."""
        tensor = state.information_state_tensor if self._shows_information_state else state.observation_tensor
        shown: np.ndarray = np.array(tensor(seat), np.float32).reshape(self._shape)[self._order[seat]]
        return shown

    def legal_mask(self, state: State, seat: int) -> np.ndarray:
        """Returns [A] bool, true: legal; all true if the game is over, only action 0 if a seat has no choice."""
        is_over = state.is_terminal()
        mask = np.full(self.num_actions, is_over)
        if not is_over:
            mask[state.legal_actions(seat) or [0]] = True
        return mask

    def apply(self, state: State, actions: Mapping[int, int], generator: np.random.Generator) -> State:
        """Returns the state after a legal action of each mover, and after chance.

        Raises EnvironmentFailure if it is refused.
        """
        with env_base.failures_of(self._refusal):
            after = state.clone()
            if state.current_player() == _SIMULTANEOUS:
                after.apply_actions([actions[seat] for seat in range(self.num_seats)])
            else:
                after.apply_action(actions[state.current_player()])
            return spiel.draw_chance(after, generator)

    def returns(self, state: State) -> tuple[float, ...]:
        if self._pays_at_the_end and not state.is_terminal():
            return self._nothing
        return tuple(state.returns())

    def _own_first(self, seat: int) -> slice | np.ndarray:
        """Returns the order in which a seat's numbers are shown.

        OpenSpiel shows the last moves of a repeated game, [moves, seats, actions], in the same order to all seats,
        which then could not tell their own moves; these come first here.
        """
        if self._shows_information_state or self._game.get_type().short_name != opponents.REPEATED:
            return slice(None)
        places = np.arange(self._shape[0]).reshape(-1, self.num_seats, self.num_actions)
        return np.roll(places, -seat, axis=1).reshape(-1)

    def _try_out(self) -> bool:
        """Returns whether the observations of a few random games, always the same, contain only 0 and 1."""
        generator = np.random.default_rng(0)
        state, num_games, binary, has_moves = self.initial(generator), 1, True, False
        for _ in range(spiel.TRIAL_MOVES):
            movers = self.movers(state)
            has_moves = has_moves or bool(movers)
            for seat in movers or range(self.num_seats):
                binary = binary and set(self.observe(state, seat).tolist()) <= {0, 1}
            if movers:
                actions = {seat: seats.random_action(self.legal_mask(state, seat), generator) for seat in movers}
                state = self.apply(state, actions, generator)
            elif num_games < spiel.TRIAL_GAMES:
                state, num_games = self.initial(generator), num_games + 1
            else:
                break
        if not has_moves:
            raise spiel.over_at_start(self.name)
        return binary


_made = functools.lru_cache(SpielSeats)
"""All groups share the rules, because in some games, such as bridge, the random games take seconds."""


def make(
    name: str,
    settings: sections.EnvConfig,
    num_envs: int,
    *,
    role: types.Role = types.Role.TRAIN,
    render: bool = False,
) -> spiel.Games | seats.SeatGames:
    """Returns E rows of a game by name, from `spiel.make` or with seats; render: whether pictures are needed.

    Raises EnvironmentFailure as the game, and for settings or pictures that games with seats do not have.
    """
    if not has_seats(spiel.load(name), by_turns=settings.by_turns):
        return spiel.make(name, settings, num_envs, role=role)
    place = f"rows of game {name!r} are seats"
    game, against = _made(name), opponents.parse(settings.opponents)
    for other in against:
        if other != opponents.RANDOM and not opponents.roshambo_bot(other):
            raise errors.EnvironmentFailure(
                f"--env.opponents={settings.opponents}: {place}, and the other seats of evaluations move at random; "
                f"give --env.opponents={opponents.RANDOM}"
            )
        bots.check_plays(other, spiel.load(name))
    if settings.random_opening:
        raise errors.EnvironmentFailure(
            f"--env.random_opening={settings.random_opening}: {place}, which have no random opening; give "
            "--env.random_opening=0"
        )
    made = seats.SeatGames(game, num_envs, role=role, against=against)
    if render:
        made.render()
    return made


def check(name: str) -> None:
    """Raises EnvironmentFailure for an unknown or unsupported game; does not import a user's module."""
    if not spiel.check_form(name):
        (_made if has_seats(spiel.load(name)) else spiel.Game)(name)


def has_seats(game: Any, *, by_turns: bool = False) -> bool:
    """Returns whether rows are seats in OpenSpiel's game; otherwise `spiel.Game` plays it, or explains why it cannot.

    by_turns: see the settings; chance alone makes no seats then.
    """
    return bool(set(_seated_by(game)) - ({opponents.CHANCE} if by_turns else set()))


def seated_by(name: str, *, by_turns: bool = False) -> str:
    """Returns why a game's rows are seats, such as "chance and hidden information", or "" if they are not."""
    game = spiel.load(name)
    return " and ".join(_seated_by(game)) if has_seats(game, by_turns=by_turns) else ""


def _seated_by(game: Any) -> list[str]:
    kind, num_players = game.get_type(), game.num_players()
    reasons = {
        opponents.CHANCE: kind.chance_mode != kind.ChanceMode.DETERMINISTIC,
        "hidden information": kind.information != kind.Information.PERFECT_INFORMATION,
        "simultaneous moves": kind.dynamics != kind.Dynamics.SEQUENTIAL,
        f"{num_players} players": num_players > 2,
        "returns that do not sum to zero": kind.utility != kind.Utility.ZERO_SUM,
    }
    return [reason for reason, holds in reasons.items() if holds and num_players > 1]


def _observation_shape(game: Any) -> list[int]:
    kind = game.get_type()
    shown = game.information_state_tensor_shape if kind.provides_information_state_tensor else None
    shape: list[int] = (shown or game.observation_tensor_shape)()
    return shape


def _refuse_unsupported(name: str, game: Any) -> None:
    """Raises EnvironmentFailure with all reasons why a game is unsupported."""
    kind = game.get_type()
    has_state, is_perfect = (
        kind.provides_information_state_tensor,
        kind.information == kind.Information.PERFECT_INFORMATION,
    )
    reasons = {
        "its chance follows no seed": kind.chance_mode == kind.ChanceMode.SAMPLED_STOCHASTIC,
        "it has hidden information, but no information state tensor": not has_state and not is_perfect,
        "it has no observation tensor": not has_state and is_perfect and not kind.provides_observation_tensor,
    }
    spiel.refuse(name, reasons, lambda: _observation_shape(game))
