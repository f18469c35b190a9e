"""Estimates exploitability in a game of two seats with a learned response, where it cannot be computed exactly."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seedzero.actors import agent_choice, saved_agents
from seedzero.api import exploitability, leagues
from seedzero.checkpoints import saved_files
from seedzero.core import errors, opponents, types
from seedzero.device import patience
from seedzero.equilibria import exploiter, game_tree
from seedzero.league import members

MIXTURES = (exploitability.LAST, exploitability.LEAGUE, exploitability.UNIFORM)
"""The mixtures that a response can be learned against."""
MOVES, GAMES = 200_000, 4_000
"""Default number of moves in training and of games for the error."""


class Approximation(NamedTuple):
    """The returns of an exploiter against a mixture of a checkpoint's players, in each seat.

    own: returns of the mixture against itself, which are subtracted; None if the game is zero-sum.
    """

    update: int
    mixture: str
    num_moves: int  # moves that the exploiter made in training
    gains: tuple[exploiter.Gain, exploiter.Gain]  # by its seat
    own: tuple[exploiter.Gain, exploiter.Gain] | None

    @property
    def nash_conv(self) -> float:
        """Returns the estimate of a lower bound of NashConv; exploitability is half of it."""
        return sum(gain.mean for gain in self.gains) - sum(gain.mean for gain in self.own or ())

    @property
    def stderr(self) -> float:
        """Returns the standard error of `nash_conv` over games."""
        return math.hypot(*(gain.stderr for gain in (*self.gains, *(self.own or ()))))

    def to_json(self) -> dict[str, Any]:
        """Returns the results by name, with seats by name as well."""

        def by_seat(gains: Sequence[exploiter.Gain]) -> dict[str, Any]:
            return {seat: gain._asdict() for seat, gain in zip(opponents.SIDES, gains, strict=True)}

        return {
            "update": self.update,
            "mixture": self.mixture,
            "nash_conv_at_least": self.nash_conv,
            "stderr": self.stderr,
            "moves": self.num_moves,
            "exploiter": by_seat(self.gains),
            "own": None if self.own is None else by_seat(self.own),
        }


def judge(
    path: pathlib.Path,
    place: str,
    step: saved_files.Step = "last",
    *,
    mixture: str = exploitability.LAST,
    num_moves: int = MOVES,
    num_games: int = GAMES,
    seed: int = 0,
    trusted: bool = False,
) -> Approximation:
    """Learns a response to a mixture of a run's players and plays new games with it, without writing a file.

    Args:
      place, step, trusted: as of `exploitability.judge`.
      mixture: one of MIXTURES; without a league only LAST.
      num_moves: fewest moves of the exploiter in training. num_games: games for the error, half of them in each seat.
      seed: of everything random; equal arguments give equal results.

    Raises UsageError for an unsuitable game, or a mixture that the run does not have, and CheckpointError.
    """
    choice = agent_choice.AgentChoice(path, step, trusted=trusted)
    config, _ = saved_agents.read(choice)
    game = game_tree.game_of(config.env.id, place, needs_strings=False)
    weights = _weights(path, place, step, mixture) if leagues.has_league(config) else {members.MAIN: 1.0}
    if not any(weights.values()) or (mixture != exploitability.LAST and not leagues.has_league(config)):
        raise errors.UsageError(f"{place} has no mixture {mixture}; give --mixture={exploitability.LAST}")
    names = [name for name, weight in weights.items() if weight > 0]
    saved = saved_agents.load_players(
        choice, config, game.spec, [None if name == members.MAIN else name for name in names]
    )
    mode = types.SAMPLE if saved[0].agent.has_policy else types.GREEDY
    shares = np.array([weights[name] for name in names])
    shares /= shares.sum()
    fixed = exploiter.Opponents([one._replace(mode=mode) for one in saved], (shares, shares))
    reached = 0
    with patience.telling(lambda: f"the exploiter has learned from {reached:,} of {num_moves:,} moves"):
        trial, training, test, other = saved_agents.seeds(seed, 4)
        spread = max(
            gain.stderr * math.sqrt(gain.num_games) for gain in exploiter.gains(game, None, fixed, 400, trial)
        )
        for learned in exploiter.learn(game, fixed, training, spread=spread or 1.0):
            reached = learned.num_moves
            if reached >= num_moves:
                break
        gains = exploiter.gains(game, learned.agent, fixed, num_games, test)
        own = None if game.sums_to_zero else exploiter.gains(game, None, fixed, num_games, other)
    update = saved_files.find(path / "checkpoints", step, "params")[1].step
    return Approximation(update, mixture, reached, gains, own)


def _weights(path: pathlib.Path, place: str, step: saved_files.Step, mixture: str) -> dict[str, float]:
    """Returns the weights of a league's mixture by player; {} if it has none."""
    league = leagues.read(path, place, step)
    if mixture == exploitability.LEAGUE:
        scripted = members.scripted(league.pool)  # they have no parameters to play with here
        return {row["opponent"]: row["share"] for row in league.opponents() if row["opponent"] not in scripted}
    return {members.MAIN: 1.0} if mixture == exploitability.LAST else dict.fromkeys(league.pool.past(), 1.0)
