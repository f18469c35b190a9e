"""The exact judge of a run's players in a game of two seats: mixtures of the league, and the NashConv of each."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seedzero.api import leagues
from seedzero.bucket import run_copy
from seedzero.checkpoints import files as saved_files
from seedzero.checkpoints import run_dir as run_dirs
from seedzero.core import errors
from seedzero.device import patience
from seedzero.envs import spiel
from seedzero.evaluation import agent_choice, game_tree, greedy, nash, tabular
from seedzero.league import players as members
from seedzero.metrics import counts

EQUILIBRIUM, LEAGUE, UNIFORM, LAST = "equilibrium", "league", "uniform", "last"
"""Mixtures: by the linear programme; by main's shares of its next opponents, itself included; frozen players alike;
main alone, the last iterate."""


class Mixture(NamedTuple):
    """Players by weight, drawn once a game and seat; NashConv is twice the exploitability."""

    weights: tuple[np.ndarray, np.ndarray]  # [N] by seat, sum 1
    nash_conv: float


class Judgement(NamedTuple):
    """Players of a checkpoint and their mixtures; a run without a league has LAST alone."""

    update: int
    env_steps: int
    names: tuple[str, ...]
    tree: game_tree.GameTree
    policies: tuple[np.ndarray, np.ndarray]  # [N, S] by seat, as in `nash`
    returns: np.ndarray  # [N, N] exact, of player i in the first seat against player j in the second
    mixtures: Mapping[str, Mixture]
    labels: Mapping[str, str] = {}  # names of players for users

    @property
    def best(self) -> Mixture:
        """The mixture by the linear programme; of a run without a league the last iterate."""
        return self.mixtures.get(EQUILIBRIUM, self.mixtures[LAST])

    @property
    def weights(self) -> list[dict[str, float]]:
        """The weights of the best mixture above 0, by seat and name."""
        seats = [zip(self.names, weights.tolist(), strict=True) for weights in self.best.weights]
        return [{name: weight for name, weight in seat if weight > 0} for seat in seats]

    @property
    def cycles(self) -> int:
        """Number of three players of whom each beats the next one."""
        return nash.cyclic_triples(self.returns)

    def to_json(self) -> dict[str, Any]:
        """Returns the results by their names."""
        mixtures: dict[str, float | None] = dict.fromkeys((EQUILIBRIUM, LEAGUE, UNIFORM, LAST))
        mixtures |= {name: found.nash_conv for name, found in self.mixtures.items()}
        return {
            "update": self.update,
            "env_steps": self.env_steps,
            "players": list(self.names),
            "nash_conv": self.best.nash_conv,
            "mixtures": mixtures,
            "weights": self.weights,
            "support": [len(seat) for seat in self.weights],
            "cycles": self.cycles,
        }

    def to_export(self) -> dict[str, Any]:
        """Returns game, players' policies and the best mixture, for programs with OpenSpiel alone.

        Raises UsageError for a game whose information state strings do not tell all information states apart.
        """
        if not self.tree.has_own_strings:
            raise errors.UsageError(
                f"game {self.tree.text}: OpenSpiel's information state strings do not tell all information states "
                "apart, as by a seat's earlier actions, so policies by string are not exported; `seedzero league "
                "nash` judges the run"
            )
        one, other = self.tree.seats
        pairs = zip(self.names, *self.policies, strict=True)
        return {
            "game": self.tree.text,
            "players": {
                name: {**game_tree.to_table(one, first), **game_tree.to_table(other, second)}
                for name, first, second in pairs
            },
            "mixture": self.weights,
        }


def judge(path: pathlib.Path, place: str, step: saved_files.Step = "last", *, trusted: bool = False) -> Judgement:
    """Judges the players of a run directory; writes nothing.

    Args:
      place: name of the run for messages.
      step: of the checkpoint, "last" or a number: its league, and the parameters of learning players.
      trusted: as of `consent.check`.

    Raises UsageError for an unsuitable game or agent, CheckpointError.
    """
    choice = agent_choice.AgentChoice(path, step, trusted=trusted)
    config, _ = greedy.read(choice)
    game = game_tree.game_of(config.env.id, place)
    league = leagues.read(path, place, step) if leagues.has_league(config) else None
    names = [one.name for one in league.pool.members if not one.retired] if league else [members.MAIN]
    asked = [None if name == members.MAIN else name for name in names]
    saved = greedy.load_players(choice, config, game.spec, asked)
    agent = saved[0].agent
    if agent.policy is None:
        raise errors.UsageError(
            f"{place} was trained by agent {config.run.agent}, which has no policy of probabilities, and the judge "
            "needs one; train with --agent=ppo or --agent=vtrace"
        )
    given = {LAST: {members.MAIN: 1.0}}
    if league is None:
        _, found, _ = saved_files.find(path / "checkpoints", step, "params")
        reached = saved[0].update, counts.Counts(**found.host["ledger"]).env_steps
    else:
        reached, past = (league.update, league.env_steps), league.pool.past()
        shares = {row["opponent"]: row["share"] for row in league.opponents()}
        given = {LEAGUE: shares, UNIFORM: {name: 1 / len(past) for name in past}, **given}
    with patience.telling(lambda: "judging the players"):
        tree = game_tree.build(spiel.load(game.name))
        ask = tabular.asking(agent, game, tree)
        one, other = zip(*(ask(player.params) for player in saved), strict=True)
        judged = of_players(tree, names, (np.stack(one), np.stack(other)), given, reached)
        return judged._replace(labels=members.labels(league.pool) if league else {})


def of_players(
    tree: game_tree.GameTree,
    names: Sequence[str],
    policies: tuple[np.ndarray, np.ndarray],
    given: Mapping[str, Mapping[str, float]],
    counts: tuple[int, int] = (0, 0),
) -> Judgement:
    """Judges players by their policies [N, S] by seat.

    given: weights of mixtures by player, the same in both seats; with LEAGUE the mixture by the linear programme is
    added. counts: update, env_steps.
    """
    players = nash.players(tree, policies)

    def mixture(weights: tuple[np.ndarray, np.ndarray]) -> Mixture:
        one, other = (weight @ plans for weight, plans in zip(weights, players.plans, strict=True))
        return Mixture(weights, nash.nash_conv(tree, (one, other)))

    def alike(weights: Mapping[str, float]) -> Mixture:
        weight = np.array([weights.get(name, 0.0) for name in names])
        return mixture((weight, weight))

    mixtures = {EQUILIBRIUM: mixture(nash.equilibrium(players.returns))} if LEAGUE in given else {}
    mixtures |= {name: alike(weights) for name, weights in given.items() if weights}
    return Judgement(*counts, tuple(names), tree, policies, players.returns, mixtures)


def fetching(place: str, step: saved_files.Step) -> Callable[[run_copy.Copy], None]:
    """Returns a function for fetching all that `judge` reads from a bucket."""

    def fetch(copy: run_copy.Copy) -> None:
        copy.fetch_params(step)
        if leagues.has_league(run_dirs.read_saved(copy.path).config):
            copy.fetch_player(*leagues.read(copy.path, place, step).pool.frozen)

    return fetch
