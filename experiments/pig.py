"""Measures MuZero in pig against exact optimal play, with and without codes for chance.

    python experiments/pig.py train [--win=20] [--seeds=1,2,3] [--seconds=900] [--codes=32,0] [--out=runs/pig]
    python experiments/pig.py judge RUN_DIR [--win=20]

The budget was written down before any run: 15 minutes per run on two cores, seeds 1, 2 and 3, with and without codes,
one run after another. The bar is a win rate of 0.48 against optimal play over both sides; optimal play itself wins
0.5. `judge` asks the agent for its action in every state, and solves for its probability to win, so that no game is
sampled.

With 20 points to win, it is best never to hold before holding wins, so a player who always rolls is over the bar, too.
With 50 points such a player wins 0.42, and the best fixed total to hold at, 25, wins 0.49.

A state is (mover's points, other's points, turn's total). OpenSpiel allows no roll that is not needed to win. Shape
letters: W points to win, N totals of a turn, fewer than W + 6.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence

import numpy as np

import seedzero

SIDES = 6
_ENOUGH = 1e-12
"""Probabilities count as solved once they change by less than this."""
_ROWS = 10_000
"""Number of states in a call of the agent."""


def chances_of_actions(own: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mover's probabilities [W, W, N] to win after rolling and after holding.

    own: [W, W, N] the mover's probabilities while its turn lasts. other: [W, W, N] the other player's in its turn.
    """
    win, _, num_totals = own.shape
    # A total beyond the last one can only be held, so a roll is worth nothing there.
    further = np.concatenate([own, np.zeros((win, win, SIDES))], axis=2)
    rolled = 1.0 - other[:, :, 0].T[:, :, None] + sum(further[:, :, n : n + num_totals] for n in range(2, SIDES + 1))
    points = np.arange(win)[:, None, None] + np.arange(num_totals)
    given = 1.0 - other[np.arange(win)[:, None], np.minimum(points, win - 1), 0]
    wins = points >= win
    return np.where(wins, 0.0, rolled / SIDES), np.where(wins, 1.0, given)


def optimal(win: int) -> np.ndarray:
    """Returns the probabilities [W, W, N] with which optimal play wins against a player, by value iteration."""
    own, change = np.zeros((win, win, win + SIDES)), 1.0
    while change > _ENOUGH:
        before, own = own, np.maximum(*chances_of_actions(own, own))
        change = np.abs(own - before).max()
    return own


def chances_against(holds: np.ndarray, other_holds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns both players' probabilities [W, W, N], each in its own turn; holds: [W, W, N] bool, their decisions."""
    own, other, change = np.zeros(holds.shape), np.zeros(holds.shape), 1.0
    while change > _ENOUGH:
        before = own
        own, other = (
            np.where(decides, *chances_of_actions(mine, theirs)[::-1])
            for decides, mine, theirs in ((holds, own, other), (other_holds, other, own))
        )
        change = np.abs(own - before).max()
    return own, other


def win_rate(holds: np.ndarray) -> float:
    """Returns the share of games that decisions win against optimal play.

    Holds: [2, W, W, N], as first and second player.
    """
    win = holds.shape[1]
    rolled, held = chances_of_actions(*[optimal(win)] * 2)
    best = held >= rolled
    first, _ = chances_against(holds[0], best)
    _, others = chances_against(holds[1], best)
    return float(first[0, 0, 0] + 1.0 - others[0, 0, 0]) / 2


def observations(player: int, win: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns what a player sees in all states, [W * W * N, ...], and the legal actions: roll and hold."""
    mine, other, total = (x.reshape(-1) for x in np.indices((win, win, win + SIDES)))
    scores = (mine, other) if player == 0 else (other, mine)
    rows = [np.eye(win + 1, dtype=np.float32)[np.minimum(x, win)] for x in (total, *scores)]
    mover = np.full((len(total), 1), player, np.float32)
    return np.concatenate([*rows, mover], axis=1), np.stack([mine + total < win, np.ones(len(total), bool)], axis=1)


def judge(run_dir: pathlib.Path, win: int) -> float:
    """Returns the win rate of a run's newest agent, without noise, against optimal play."""
    holds = []
    for player in (0, 1):
        policy = seedzero.load(run_dir, step="last")
        seen, legal = observations(player, win)
        # With 50 points, all trees at once take 11 GB.
        actions = []
        for part in np.array_split(np.arange(len(seen)), -(-len(seen) // _ROWS)):
            policy.reset()
            actions.append(np.asarray(policy(seen[part], action_mask=legal[part])))
        holds.append(np.concatenate(actions).reshape(win, win, -1) == 1)
    return win_rate(np.stack(holds))


def train(run_dir: pathlib.Path, win: int, codes: int, seed: int, seconds: float) -> None:
    """Trains MuZero in a separate process."""
    command = [str(pathlib.Path(sys.executable).parent / "seedzero"), "train", "--preset=chance"]
    command += [f"--env=spiel:pig(winscore={win})", "--agent=muzero"]
    settings = [
        f"--muzero.chance_codes={codes}",
        f"--seed={seed}",
        f"--max_seconds={seconds:g}",
        f"--run_dir={run_dir}",
    ]
    subprocess.run([*command, *settings], check=True)


def main(words: Sequence[str] | None = None) -> None:
    """Reads the command line, or the words given; trains and measures, or only measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("--seeds", default="1,2,3")
    training.add_argument("--codes", default="32,0")
    training.add_argument("--seconds", type=float, default=900.0)
    training.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/pig"))
    judging = commands.add_parser("judge")
    judging.add_argument("run_dir", type=pathlib.Path)
    for command in (training, judging):
        command.add_argument("--win", type=int, default=20, help="points")
    asked = parser.parse_args(words)
    if asked.command == "judge":
        print(json.dumps({"run_dir": str(asked.run_dir), "win_rate": round(judge(asked.run_dir, asked.win), 4)}))
        return
    for seed in map(int, asked.seeds.split(",")):
        for codes in map(int, asked.codes.split(",")):
            run_dir = asked.out / f"codes{codes}-seed{seed}"
            train(run_dir, asked.win, codes, seed, asked.seconds)
            print(
                json.dumps({"codes": codes, "seed": seed, "win_rate": round(judge(run_dir, asked.win), 4)}), flush=True
            )


if __name__ == "__main__":
    main()
