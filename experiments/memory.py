"""Compares MuZero with a memory on the memory tasks with MuZero and a frame stack, V-trace and R2D2.

    python experiments/memory.py [RUNG ...] [--players="NAME; ..."] [--seeds=1,2,3] [--seconds=600] [--out=runs/memory]

Without names it runs all three tasks with all players. Runs follow one another, ten minutes each, and nothing else
should use the machine. Scores are from 200 episodes of a separate `seedzero evaluate`. OUT/memory.json stores each
result at once, so that the same command resumes an interrupted experiment; OUT/memory.md is the table.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from collections.abc import Mapping, Sequence

import agents
import ladder

RUNGS = ("memory_tmaze", "memory_repeat", "memory_cartpole")
PLAYERS: Mapping[str, tuple[str, ...]] = {
    "muzero, LSTM": ("--agent=muzero",),
    "muzero, GRU": ("--agent=muzero", "--muzero.memory=gru"),
    # The control. Four frames show a cart's velocity, but almost nothing that the other tasks need.
    "muzero, 4 frames": ("--agent=muzero", "--muzero.memory=none", "--network.frame_stack=4"),
    "vtrace, LSTM": ("--agent=vtrace",),
    "r2d2": ("--agent=r2d2",),
}


def main(words: Sequence[str] | None = None) -> None:
    """Reads the command line, or the words given, runs the players, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rungs", nargs="*", metavar="RUNG", help=f"of {', '.join(RUNGS)}; none: all")
    parser.add_argument("--players", default="; ".join(PLAYERS), help="names with semicolons; default: all")
    parser.add_argument("--seeds", default="1,2,3", help="numbers with commas")
    parser.add_argument("--seconds", type=float, default=600.0, help="of each run")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/memory"))
    asked = parser.parse_args(words)
    names, players = asked.rungs or RUNGS, [name.strip() for name in asked.players.split(";")]
    for what, given, known in (("rung", names, RUNGS), ("player", players, PLAYERS)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown {what} {'; '.join(sorted(unknown))}; there are {'; '.join(known)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    file = asked.out / "memory.json"
    results: list[ladder.Result] = json.loads(file.read_text()) if file.exists() else []
    for name in names:
        for player in players:
            for seed in map(int, asked.seeds.split(",")):
                if any((x["rung"], x["agent"], x["seed"]) == (name, player, seed) for x in results):
                    continue
                rung = agents.RUNGS[name]._replace(seconds=asked.seconds)
                place = asked.out / player.replace(", ", "-").replace(" ", "-")
                results.append({"agent": player, **ladder.climb(name, rung, seed, place, PLAYERS[player])})
                print(json.dumps({key: value for key, value in results[-1].items() if key != "curve"}), flush=True)
                file.write_text(json.dumps(results, indent=1))
    table = agents.summary(results)
    (asked.out / "memory.md").write_text(table + "\n")
    print(table)


if __name__ == "__main__":
    main()
