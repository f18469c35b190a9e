"""Measures the share of games that an agent loses to a perfect player, from every opening of two moves on both sides.

    python experiments/openings.py RUN_DIR [--step=best|last|N]

It is for small games such as tic-tac-toe, which has 72 such openings; 48 of them are won for the first mover. Games
that the opening has already lost do not count. The perfect player plays all of its best moves with equal probability,
so `lost` is an exact expected number. The agent moves as in `seedzero evaluate`; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import best_response
import numpy as np
import solver

from seedzero.envs import spiel


class Verdict(NamedTuple):
    """Games of an agent against a perfect player."""

    games: int  # openings on both sides
    counted: int  # not lost by their openings
    lost: float  # expected number of lost ones
    beatable: int  # number of counted games that some perfect line of moves wins
    positions: int  # number of distinct positions in which the agent was asked

    @property
    def share(self) -> float:
        """Share of the counted games that are lost."""
        return self.lost / self.counted if self.counted else 0.0


def openings(game: spiel.Game, num_moves: int = 2) -> list[Any]:
    """Returns the states after every sequence of a number of moves, without finished games."""
    states = [game.initial()]
    for _ in range(num_moves):
        states = [game.apply(state, action) for state in states for action in state.legal_actions()]
        states = [state for state in states if not state.is_terminal()]
    return states


def judge(game: spiel.Game, play: best_response.Play, *, num_moves: int = 2) -> Verdict:
    """Plays all games. An agent is asked once in each position, so its moves must depend only on the position.

    Raises ValueError for an illegal move.
    """
    exact, begun = solver.Solver(game), openings(game, num_moves)
    counted, lost, beatable, positions = 0, 0.0, 0, 0
    for side in (0, 1):
        levels = _levels(game, play, exact, begun, side)
        chances = _chances(levels, side)
        for state in begun:
            if exact.value(state) * (1 if game.mover(state) == side else -1) >= 0:
                counted += 1
                lost += chances[str(state)]
                beatable += chances[str(state)] > 0
        asked = (level for level in levels if game.mover(level[0].state) == side)
        positions += sum(map(len, asked))
    return Verdict(2 * len(begun), counted, lost, beatable, positions)


class _Position(NamedTuple):
    state: Any
    after: list[Any]  # states, each equally likely


def _levels(
    game: spiel.Game, play: best_response.Play, exact: solver.Solver, begun: Sequence[Any], side: int
) -> list[list[_Position]]:
    """Returns the positions of all games by number of moves, each once; the agent is on `side`."""
    levels, states = [], list({str(state): state for state in begun}.values())
    while states:
        if game.mover(states[0]) == side:
            moves = [[action] for action in _actions(game, play, states)]
        else:
            values = [exact.action_values(state) for state in states]
            moves = [[action for action in found if found[action] == max(found.values())] for found in values]
        pairs = zip(states, moves, strict=True)
        level = [_Position(state, [game.apply(state, action) for action in chosen]) for state, chosen in pairs]
        levels.append(level)
        following = {str(state): state for position in level for state in position.after}
        states = [state for state in following.values() if not state.is_terminal()]
    return levels


def _actions(game: spiel.Game, play: best_response.Play, states: Sequence[Any]) -> list[int]:
    masks = np.stack([game.legal_mask(state) for state in states])
    actions = np.asarray(play(np.stack([game.observe(state) for state in states]), masks))
    wrong = np.flatnonzero(~masks[np.arange(len(states)), actions])
    if wrong.size:
        raise ValueError(f"the agent moves {actions[wrong[0]]}, which is not legal in\n{states[wrong[0]]}")
    return [int(action) for action in actions]


def _chances(levels: Sequence[Sequence[_Position]], side: int) -> dict[str, float]:
    """Returns the probability, for each position, that the player on `side` loses."""
    chances: dict[str, float] = {}
    for level in reversed(levels):
        for position in level:
            lost = [
                float(state.returns()[side] < 0) if state.is_terminal() else chances[str(state)]
                for state in position.after
            ]
            chances[str(position.state)] = sum(lost) / len(lost)
    return chances


def main() -> None:
    """Reads the command line and prints the verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=pathlib.Path)
    parser.add_argument("--step", default=None)
    arguments = parser.parse_args()
    step = int(arguments.step) if arguments.step and arguments.step.isdecimal() else arguments.step
    found = best_response.searching(arguments.run_dir, step, 64)
    verdict = judge(found.game, found.greedy)
    print(json.dumps({"game": found.game.name, "share": verdict.share, **verdict._asdict()}))


if __name__ == "__main__":
    main()
