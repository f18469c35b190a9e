"""OpenSpiel's games of several players whose rows are seats: hidden information, chance, simultaneous moves.

States are OpenSpiel's own and immutable here: a move returns a new one. Shape letters: N numbers of an observation,
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
"""The number that OpenSpiel gives for a player where all move; those of seats are not negative."""


class SpielSeats:
    """The rules of a game of seats, as functions of single states; a `seats.SeatGame`."""

    def __init__(self, name: str) -> None:
        """Loads a game and plays a few random games: OpenSpiel does not declare the range of observations.

        name: as of `spiel.load`: "kuhn_poker", "goofspiel(num_cards=4)".

        EnvironmentFailure: OpenSpiel is missing, or the game is unknown, unsupported or over at its start.
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
        """Returns the state before the first move, behind chance."""
        return spiel.draw_chance(self._game.new_initial_state(), generator)

    def movers(self, state: State) -> tuple[int, ...]:
        """Returns the seats that move; all of them in simultaneous moves, none if the game is over."""
        player = state.current_player()
        if player >= 0:
            return (player,)
        return tuple(range(self.num_seats)) if player == _SIMULTANEOUS else ()

    def is_out(self, state: State, seat: int) -> bool:
        """Returns whether a seat's part of the game has ended early: OpenSpiel tells of none."""
        return False

    def observe(self, state: State, seat: int) -> np.ndarray:
        """Returns [N] float32, all that a seat knows: its information state, or the state if nothing is hidden."""
        tensor = state.information_state_tensor if self._shows_information_state else state.observation_tensor
        shown: np.ndarray = np.array(tensor(seat), np.float32).reshape(self._shape)[self._order[seat]]
        return shown

    def legal_mask(self, state: State, seat: int) -> np.ndarray:
        """Returns [A] bool, true: legal; all true if the game is over, action 0 alone if a seat has no choice."""
        is_over = state.is_terminal()
        mask = np.full(self.num_actions, is_over)
        if not is_over:
            mask[state.legal_actions(seat) or [0]] = True
        return mask

    def apply(self, state: State, actions: Mapping[int, int], generator: np.random.Generator) -> State:
        """Returns the state after a legal action of each mover, and after chance; EnvironmentFailure if refused."""
        with env_base.failures_of(self._refusal):
            after = state.clone()
            if state.current_player() == _SIMULTANEOUS:
                after.apply_actions([actions[seat] for seat in range(self.num_seats)])
            else:
                after.apply_action(actions[state.current_player()])
            return spiel.draw_chance(after, generator)

    def returns(self, state: State) -> tuple[float, ...]:
        """Returns [S], each seat's sum of rewards since the first move."""
        if self._pays_at_the_end and not state.is_terminal():
            return self._nothing
        return tuple(state.returns())

    def _own_first(self, seat: int) -> slice | np.ndarray:
        """Returns the order of a seat's numbers.

        OpenSpiel shows the last moves of a repeated game, [moves, seats, actions], to all seats alike, which would not
        know which moves are their own: these come first.
        """
        if self._shows_information_state or self._game.get_type().short_name != opponents.REPEATED:
            return slice(None)
        places = np.arange(self._shape[0]).reshape(-1, self.num_seats, self.num_actions)
        return np.roll(places, -seat, axis=1).reshape(-1)

    def _try_out(self) -> bool:
        """Returns whether the observations of a few random games (always the same) are only 0 and 1."""
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
"""Rules are shared by all groups: in some games, as bridge, the random games take seconds."""


def make(
    name: str,
    settings: sections.EnvConfig,
    num_envs: int,
    *,
    role: types.Role = types.Role.TRAIN,
    render: bool = False,
) -> spiel.Games | seats.SeatGames:
    """Returns E rows of a game by its name: `spiel.make`, or seats; render: they are to be drawn.

    EnvironmentFailure: as of the game, or settings or pictures that games of seats do not have.
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
    """Raises EnvironmentFailure for a name of no game, or of an unsupported one; a user's module stays unread."""
    if not spiel.check_form(name):
        (_made if has_seats(spiel.load(name)) else spiel.Game)(name)


def has_seats(game: Any, *, by_turns: bool = False) -> bool:
    """Returns whether rows are seats in OpenSpiel's game; else `spiel.Game` plays it, or tells why it cannot.

    by_turns: as of the settings; chance alone makes no seats then.
    """
    return bool(set(_seated_by(game)) - ({opponents.CHANCE} if by_turns else set()))


def seated_by(name: str, *, by_turns: bool = False) -> str:
    """Returns what makes the rows of a game by its name seats: "chance and hidden information"; "": they are none."""
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
    """Raises EnvironmentFailure with all reasons against an unsupported game."""
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
