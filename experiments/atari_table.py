"""Trains and scores the agents of the Atari tables, one run after the other.

    python experiments/atari_table.py [--runs=runs/atari_table] [--into=.] [--only=NAME ...] [--list]

Run it again after an interruption: it resumes the run that was cut, and skips runs that have a row. A run trains for
at most two and a half hours. Then the script plays 100 games with unseen seeds by the last checkpoint, and writes into
the repository at `--into`

- a row of docs/curves/table.jsonl: commit, command, steps, updates, processor seconds, score and standard error;
- the run's curve, docs/curves/GAME_AGENT_SEED.csv;
- its agent, examples/trained/GAME, GAME_100k or GAME_400k, and a row of the README there, if no other run of it has a
  higher score.
"""

from __future__ import annotations

import argparse
import csv
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import runs
import trained

from seedzero.storage.checkpoints import saved_files

LIMIT_SECONDS = 9_000.0
"""Most seconds that a run trains, resumes included."""
_BENCHMARK_GAMES = ("Boxing", "Breakout", "Freeway", "Krull", "MsPacman", "Pong", "Qbert", "RoadRunner")
_REPEATED = ("Boxing", "Breakout", "Pong")  # with seeds 2 and 3
_POLICY = {"Breakout": "sample"}  # after 100 thousand steps the best action may be to never launch the ball
_WHOLE_GAMES = "--max_episode_steps=27000"  # Atari's limit of 108 thousand frames
_EQUAL_STEPS = ("--max_env_steps=400000", "--evaluation.every_updates=0")
# An update for every 4 steps instead of 64, shifted images for windows that are drawn that often, and PPO's episodes.
_MANY_UPDATES = (
    "--replay.samples_per_insert=32",
    "--optimizer.decay_updates=50000",
    "--muzero.shift_pixels=2",
    "--env.life_loss=true",
)
_COLUMNS = ("env_steps", "update", "seconds", "episode_return", "evaluation_mean_return")


class Entry(NamedTuple):
    """A run of a table."""

    game: str
    agent: str  # the name in tables; muzero-100k is MuZero with preset atari-100k, ppo-400k PPO for 400 thousand steps
    seed: int
    settings: tuple[str, ...] = ()
    policy: str = "greedy"  # how its games are scored

    @property
    def name(self) -> str:
        return f"{self.game.lower()}_{self.agent}_{self.seed}"

    @property
    def kept_as(self) -> str:
        """Name of its agent among examples/trained: the game, and its benchmark."""
        return "_".join([self.game.lower(), *self.agent.split("-")[1:]])

    @property
    def arguments(self) -> list[str]:
        """The arguments of `seedzero train`, without the run directory and the limit of time."""
        agent, _, benchmark = self.agent.partition("-")
        preset = "atari-100k" if benchmark == "100k" else "atari"
        chosen = [] if agent == "muzero" else [f"--agent={agent}"]
        return [f"--preset={preset}", *chosen, f"--env=atari:{self.game}", f"--seed={self.seed}", *self.settings]


ENTRIES: tuple[Entry, ...] = (
    *(Entry("Pong", "muzero", seed) for seed in (1, 2, 3)),
    *(Entry(game, "muzero-100k", 1, policy=_POLICY.get(game, "greedy")) for game in _BENCHMARK_GAMES),
    *(Entry(game, "muzero-100k", seed, policy=_POLICY.get(game, "greedy")) for seed in (2, 3) for game in _REPEATED),
    *(Entry("Breakout", "muzero-400k", seed, (*_EQUAL_STEPS, *_MANY_UPDATES), policy="sample") for seed in (1, 2)),
    *(Entry("Breakout", "ppo-400k", seed, _EQUAL_STEPS, policy="sample") for seed in (1, 2)),
    Entry("Breakout", "ppo", 1, ("--max_env_steps=3000000", "--evaluation.every_updates=0"), policy="sample"),
    Entry("Pong", "ppo", 1, policy="sample"),
)


def main() -> None:
    """Reads the command line, and makes the runs without a row in the order of `ENTRIES`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/atari_table"))
    parser.add_argument("--into", type=pathlib.Path, default=trained.ROOT, help="repository that gets rows and curves")
    parser.add_argument("--only", nargs="*", default=[], help="names, such as pong_muzero_1")
    parser.add_argument("--list", action="store_true", help="print the runs, and which have a row")
    arguments = parser.parse_args()
    done = {row["name"]: row for row in rows_of(arguments.into)}
    if unknown := set(arguments.only) - {entry.name for entry in ENTRIES}:
        parser.error(f"no run is called {', '.join(sorted(unknown))}; --list prints the names")
    for entry in ENTRIES:
        if arguments.list:
            row = done.get(entry.name)
            print(
                f"{entry.name:24} {'' if row is None else scored(row):16} seedzero train {' '.join(entry.arguments)}"
            )
        elif entry.name not in done and (not arguments.only or entry.name in arguments.only):
            row = make(entry, arguments.runs, arguments.into)
            print(f"{entry.name}: {scored(row)} after {row['env_steps']:,} steps", flush=True)


def scored(row: Mapping[str, Any]) -> str:
    """Returns a row's score as text."""
    return f"{row['score']:.1f} ± {row['standard_error']:.1f}"


def rows_of(repository: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Returns the rows of finished runs."""
    file = repository / "docs" / "curves" / "table.jsonl"
    yield from map(json.loads, file.read_text().splitlines() if file.exists() else ())


def make(entry: Entry, directory: pathlib.Path, repository: pathlib.Path) -> dict[str, Any]:
    """Trains, or resumes, scores the last checkpoint, and writes what stays; returns the row."""
    path = directory / entry.name
    before = runs.rows(path)
    left = LIMIT_SECONDS - (before[-1]["seconds"] if before else 0.0)
    if left > 0:
        runs.train(path, [*entry.arguments, f"--max_seconds={left:.0f}"], resumes=True)
    found = runs.evaluate(
        path, ["--step=last", f"--episodes={trained.EPISODES}", f"--policy={entry.policy}", _WHOLE_GAMES]
    )
    rows = runs.rows(path)
    _, last, _ = saved_files.find(path / "checkpoints", "last", "params")
    row = {
        "name": entry.name,
        "game": entry.game,
        "commit": trained.commit(),
        "command": " ".join(["seedzero train", *entry.arguments]),
        "env_steps": max(row["env_steps"] for row in rows),
        "updates": last.step,
        "seconds": round(rows[-1]["seconds"]),
        "processor_seconds": round(processor_seconds(rows)),
        "policy": entry.policy,
        "score": round(found["mean_return"], 2),
        "standard_error": round(found["stderr_return"], 2),
    }
    curves = repository / "docs" / "curves"
    curves.mkdir(parents=True, exist_ok=True)
    write_curve(curves / f"{entry.name}.csv", rows)
    kept_as = {each.name: each.kept_as for each in ENTRIES}
    others = [other["score"] for other in rows_of(repository) if kept_as.get(other["name"]) == entry.kept_as]
    if all(row["score"] > score for score in others):
        trained.keep(path, repository, entry.kept_as, found, [f"--policy={entry.policy}"])
    with (curves / "table.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    return row


def processor_seconds(rows: Sequence[Mapping[str, Any]]) -> float:
    """Returns the processor seconds of learner and workers, from the share that each row has of the time before it."""
    total = last = 0.0
    for row in rows:
        if "learner_cpu_percent" in row:
            percent = row["learner_cpu_percent"] + row.get("workers_cpu_percent", 0.0)
            total += percent / 100 * max(row["seconds"] - last, 0.0)
            last = row["seconds"]
    return total


def write_curve(file: pathlib.Path, rows: Sequence[Mapping[str, Any]], num_points: int = 300) -> None:
    """Writes evaluations, and training returns as means of equal numbers of rows; other cells are empty."""
    trained = [row for row in rows if "episode_return" in row]
    size = max(1, -(-len(trained) // num_points))
    points = [
        {**part[-1], "episode_return": sum(row["episode_return"] for row in part) / len(part)}
        for part in (trained[start : start + size] for start in range(0, len(trained), size))
    ]
    points += [{**row} for row in rows if row.get("kind") == "evaluation" and "evaluation_unfinished" not in row]
    with file.open("w", newline="") as target:
        writer = csv.writer(target, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for point in sorted(points, key=lambda point: point["seconds"]):
            cells = [point.get(name, "") for name in _COLUMNS]
            writer.writerow([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in cells])


if __name__ == "__main__":
    main()
