"""Tests robustness: a dozen environments that nobody tuned for, with the preset that the program picks, in minutes.

    python experiments/robustness.py [NAME ...] [--quick] [--seeds=1,2,3] [--minutes=5] [-- SETTING ...]
    python experiments/robustness.py --games=atari26|atari57 [NAME ...] [--agent=muzero] [--minutes=M] [-- SETTING ...]
    python experiments/robustness.py --random [NAME ...]

--quick runs six of the environments with one seed for 2.25 minutes each: less than 20 minutes in total. --games runs
Atari games instead: 26 with preset atari-100k or 57 with preset atari, to the end of the preset unless --minutes is
given. Settings after `--` go to `seedzero train`, --preset=NAME among them. --random prints the returns of random play
and trains nothing.

The score is that of a separate `seedzero evaluate` of the checkpoint that users get, in environments with unseen
seeds. It is normalised: 0 is random play, 1 the best known return, or a human's in Atari. A run that fails becomes a
line of the table, and the script continues; if it left no checkpoint, it counts like random play. OUT/robustness.json
stores each result at once, so that the same command resumes. OUT/robustness.md has the table.

The budget is wall-clock time, compilation included: other work on the machine makes scores worse. The table shows the
machine's load at the end of a run; where it exceeds the number of cores, the run had to wait for them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import aggregates
import numpy as np
import runs

from seedzero.config import sections
from seedzero.core import errors
from seedzero.envs import registry
from seedzero.monitoring.metrics import episodes
from seedzero.storage.checkpoints import durable, run_dirs

_GRACE = 300.0
"""Seconds after its budget in which a run may compile, evaluate a last time and save."""

_EVALUATION_LIMIT = 600.0
"""Time limit of the separate evaluation, because a greedy agent may never reach the end of an environment."""

RANDOM_EPISODES = 1_000


class Task(NamedTuple):
    """An environment.

    Attributes:
      env: its id.
      random: mean return of random play.
      best: mean return of the best known agent, of an optimal policy or of a human.
      episodes: of the evaluation.
    """

    env: str
    random: float
    best: float
    episodes: int = 200


# Random play: the mean of 1,000 episodes with uniform actions, measured with --random.
# Zoo: rl-baselines3-zoo, benchmark.md, the highest mean of its trained agents.
# MinAtar: Young and Tian 2019, the highest curve after 5 million frames, read off the figure in MinAtar's repository.
# Entries are never removed, whatever they show; new ones come at the end.
TASKS: Mapping[str, Task] = {
    task.env.rpartition("/")[2].rpartition(":")[2]: task
    for task in (
        # Exact: the best within the time limit of 100 steps.
        Task("gym:FrozenLake-v1", 0.013, 0.744, 1_000),
        # Exact: mean over all starts. An agent that does not move is at -200, 0.73 of the best.
        Task("gym:Taxi-v4", -772.2, 7.93, 1_000),
        # Exact: the shortest path; random play is exact, too. Without a time limit, a bad agent's episode may never
        # end.
        Task("gym:CliffWalking-v1", -65_375.0, -13.0),
        # A greedy policy after value iteration on a grid of 601 by 401; "solved" is -110, Zoo's DQN has -100.8.
        Task("gym:MountainCar-v0", -200.0, -97.7),
        # Zoo: QR-DQN.
        Task("gym:Acrobot-v1", -499.1, -69.1),
        # Zoo: ARS. An agent that does not move is at 0, 0.26 of the best.
        Task("gym:MountainCarContinuous-v0", -33.2, 96.7),
        # Zoo: TQC; "solved" is 300. Episodes are long.
        Task("gym:BipedalWalker-v3", -99.6, 329.8, 100),
        # MinAtar: actor-critic with traces.
        Task("gym:MinAtar/SpaceInvaders-v1", 4.26, 185.0),
        # MinAtar: actor-critic.
        Task("gym:MinAtar/Asterix-v1", 0.463, 20.0),
        # MinAtar: DQN.
        Task("gym:MinAtar/Freeway-v1", 0.4, 50.0),
        # MinAtar: DQN, before a correction of the oxygen bar.
        Task("gym:MinAtar/Seaquest-v1", 0.09, 20.0),
        # Exact: CartPole-v1's 500 in other units.
        Task("gym:scaled_cartpole:ScaledCartPole-v0", 22_446.0, 500_000.0),
    )
}
QUICK = (
    "FrozenLake-v1",
    "Taxi-v4",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Asterix-v1",
    "ScaledCartPole-v0",
)
_MINUTES, _QUICK_MINUTES = 5.0, 2.25

# The 26 games of Atari 100k: Kaiser et al. 2020, "Model-based reinforcement learning for Atari".
_ATARI_26 = """
alien amidar assault asterix bank_heist battle_zone boxing breakout chopper_command crazy_climber demon_attack freeway
frostbite gopher hero jamesbond kangaroo krull kung_fu_master ms_pacman pong private_eye qbert road_runner seaquest
up_n_down
"""


def _games(names: Iterable[str], num_episodes: int) -> dict[str, Task]:
    camel = {name: "".join(part.capitalize() for part in name.split("_")) for name in names}
    return {camel[name]: Task(f"atari:{camel[name]}", *episodes.SCORES[name], num_episodes) for name in camel}


class Suite(NamedTuple):
    """Environments, and the settings that all their runs share. best: what the score 1 means."""

    tasks: Mapping[str, Task]
    settings: Sequence[str]
    best: str


SUITES: Mapping[str, Suite] = {
    "": Suite(TASKS, (), "best known"),
    "atari26": Suite(_games(_ATARI_26.split(), 100), ("--preset=atari-100k",), "human"),
    "atari57": Suite(_games(episodes.SCORES, 32), ("--preset=atari",), "human"),
}

Result = dict[str, Any]


def main() -> None:
    """Reads the command line, runs what is missing, and prints the table."""
    # Here and in the processes of a run: scaled_cartpole is a module of this folder.
    path = [str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    own, settings = _split(sys.argv[1:])
    arguments = _parse(own)
    suite = SUITES[arguments.games]
    chosen = {name: suite.tasks[name] for name in arguments.names}
    if arguments.random:
        for name, task in chosen.items():
            print(f"{name} {random_return(task.env):.6g}", flush=True)
        return
    shared = [*_shared_settings(suite, arguments, settings), *settings]
    results = _read(arguments.out, shared, arguments.episodes)
    for seed in map(int, arguments.seeds.split(",")):
        for name, task in chosen.items():
            if any(result["name"] == name and result["seed"] == seed for result in results):
                continue
            run = {"name": name, "seed": seed, "settings": shared, "episodes": arguments.episodes}
            results.append(
                run | measure(task, arguments.out / f"{name}-{seed}", [*shared, f"--seed={seed}"], arguments)
            )
            print(json.dumps({key: value for key, value in results[-1].items() if key != "curve"}), flush=True)
            _write(arguments.out, results, suite)
    _write(arguments.out, results, suite)
    print(summary(results, suite))


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the arguments before and after `--`."""
    where = arguments.index("--") if "--" in arguments else len(arguments)
    return list(arguments[:where]), list(arguments[where + 1 :])


def _parse(own: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(TASKS)}, or of the games; none: all")
    parser.add_argument("--quick", action="store_true", help=f"{', '.join(QUICK)}; one seed")
    parser.add_argument("--games", choices=[name for name in SUITES if name], default="")
    parser.add_argument("--seeds", help="numbers with commas; default: 1,2,3 (--quick: 1)")
    parser.add_argument("--agent", help="default: muzero")
    parser.add_argument("--minutes", type=float, help=f"of a run; default: {_MINUTES:g} (--quick: {_QUICK_MINUTES:g})")
    parser.add_argument("--episodes", type=int, help="of the evaluation; default: 100 to 1,000, in atari57 32")
    parser.add_argument("--random", action="store_true", help="print the returns of random play")
    parser.add_argument("--out", type=pathlib.Path, help="default: runs/robustness, or runs/ and the games' name")
    arguments = parser.parse_args(own)
    tasks = SUITES[arguments.games].tasks
    if arguments.quick and (arguments.games or arguments.names):
        parser.error("--quick has its own list; leave out --games and names")
    unknown = set(arguments.names) - set(tasks)
    if unknown:
        parser.error(f"unknown {', '.join(sorted(unknown))}; there are {', '.join(tasks)}")
    arguments.names = arguments.names or (QUICK if arguments.quick else list(tasks))
    arguments.out = arguments.out or pathlib.Path("runs") / (arguments.games or "robustness")
    arguments.seeds = arguments.seeds or ("1" if arguments.quick else "1,2,3")
    if arguments.minutes is None and not arguments.games:
        arguments.minutes = _QUICK_MINUTES if arguments.quick else _MINUTES
    return arguments


def _shared_settings(suite: Suite, arguments: argparse.Namespace, settings: Sequence[str]) -> list[str]:
    """Returns the settings of all runs that the user did not give after `--`."""
    given = {setting.partition("=")[0] for setting in settings}
    if given & {"--max_seconds", "--run.max_seconds"}:
        raise SystemExit("--max_seconds after `--` is not possible: give --minutes=M before it")
    shared = [setting for setting in suite.settings if setting.partition("=")[0] not in given]
    if arguments.agent:
        shared.append(f"--agent={arguments.agent}")
    if arguments.minutes:
        shared.append(f"--max_seconds={60 * arguments.minutes:g}")
    return shared


def _read(out: pathlib.Path, settings: Sequence[str], episodes: int | None) -> list[Result]:
    """Returns the stored results; SystemExit if they are those of other settings, or scored by other `--episodes`."""
    file = out / "robustness.json"
    results: list[Result] = json.loads(file.read_text()) if file.exists() else []
    other = next((result["settings"] for result in results if result["settings"] != list(settings)), None)
    if other is not None:
        raise SystemExit(f"{file} has results of {' '.join(other)}, not of {' '.join(settings)}; give another --out")
    if any(result.get("episodes") != episodes for result in results):
        raise SystemExit(f"{file} has results of another --episodes than {episodes}; give another --out")
    return results


def _write(out: pathlib.Path, results: Sequence[Result], suite: Suite) -> None:
    (out / "robustness.json").write_text(json.dumps(results, indent=1))
    (out / "robustness.md").write_text(summary(results, suite) + "\n")


def measure(task: Task, path: pathlib.Path, settings: Sequence[str], arguments: argparse.Namespace) -> Result:
    """Trains and scores one run in `path`; a failure is part of its result."""
    seconds = 60 * arguments.minutes if arguments.minutes else None
    result: Result = {"score": None, "failed": "", "seconds": None, "ended": ""}
    try:
        run = runs.train(path, [f"--env={task.env}", *settings], limit=seconds and seconds + _GRACE)
        result |= {"seconds": round(run.seconds, 1), "ended": run.last_line}
    except runs.Failure as failure:
        result["failed"] = f"train {failure.reason}"
    # A run that failed late has a checkpoint, too.
    if durable.numbered(path / "checkpoints" / "steps"):
        episodes = f"--episodes={arguments.episodes or task.episodes}"
        try:
            played = runs.evaluate(path, [episodes], limit=_EVALUATION_LIMIT if seconds else None)
            result |= {"score": played["mean_return"], "evaluation": played}
        except runs.Failure as failure:
            result["failed"] = result["failed"] or f"evaluate {failure.reason}"
    return result | _trained(path)


def _trained(path: pathlib.Path) -> Result:
    """Returns what a run's directory tells about its training, and the machine's load."""
    load = round(os.getloadavg()[1], 1)
    found: Result = {"load": load, "preset": "-", "env_steps": 0, "updates": 0, "curve": []}
    with contextlib.suppress(OSError, errors.UsageError):  # a run that failed early left less
        found["preset"] = run_dirs.read_saved(path).preset
        rows = runs.rows(path)
        found["env_steps"] = max((row["env_steps"] for row in rows), default=0)
        found["updates"] = max((row["update"] for row in rows), default=0)
        found["curve"] = runs.evaluations(path)
    return found


def summary(results: Sequence[Result], suite: Suite) -> str:
    """Returns a table in Markdown, one line an environment, and the statistics of all."""
    lines, rows = [], []
    for name, task in suite.tasks.items():
        found = [result for result in results if result["name"] == name]
        if not found:
            continue
        scores = [task.random if result["score"] is None else result["score"] for result in found]
        rows.append([aggregates.normalized(score, task.random, task.best) for score in scores])
        lines.append(
            (
                f"`{name}`",
                ", ".join(sorted({result["preset"] for result in found})),
                f"{task.random:.4g}, {task.best:.6g}",
                ", ".join("-" if result["score"] is None else f"{result['score']:.4g}" for result in found),
                f"{statistics.mean(rows[-1]):.3f}",
                ", ".join(f"{statistics.median(x[key] for x in found):,.0f}" for key in ("env_steps", "updates")),
                f"{statistics.median(result['load'] for result in found):.1f}",
                "; ".join(_failure(result) for result in found if result["failed"]) or "-",
            )
        )
    header = (
        "environment",
        "preset",
        f"random, {suite.best}",
        "scores by seed",
        "normalised, mean",
        "steps, updates",
        "load",
        "failed",
    )
    if not rows:
        return runs.table(header, lines)
    return f"{runs.table(header, lines)}\n\nNormalised, {len(rows)} environments: {aggregates.text(rows)}."


def _failure(result: Result) -> str:
    reason = re.sub(r"\s+", " ", result["failed"]).replace("|", "/")
    return f"seed {result['seed']}: {reason}"


def random_return(env: str, num_episodes: int = RANDOM_EPISODES) -> float:
    """Returns the mean return of uniformly random actions."""
    num_envs = min(num_episodes, 50)
    generator = np.random.default_rng(0)
    with contextlib.closing(registry.make(env, sections.EnvConfig(id=env), num_envs)) as group:
        spec, slots = group.spec, np.arange(num_envs)
        low, high = np.array(spec.action_low), np.array(spec.action_high)
        played = episodes.Played(slots, num_episodes, max_steps=sections.EvaluationConfig().max_episode_steps)
        step, first = group.reset(range(num_envs)), np.ones(num_envs, bool)
        while not played.done:
            played.record(slots, step, first)
            if spec.is_continuous:
                actions = generator.uniform(low, high, (num_envs, len(low))).astype(np.float32)
            else:
                actions = generator.integers(spec.num_actions, size=num_envs).astype(np.int32)
            first, step = step.final, group.step(actions)
        return played.result().mean_return


if __name__ == "__main__":
    main()
