"""Compares learning at different speeds of environments, workers, links and the learner.

    python experiments/any_speed.py [--tasks=NAME,...] [--grounds=NAME,...] [--seeds=1,2,3,4,5] [--out=runs/any_speed]
    python experiments/any_speed.py --table [--out=runs/any_speed]

All runs of a task have 32 environments, which take 0.2 ms a step, and end after the same number of steps. Grounds:

- one: one worker of 32 environments
- eight: eight workers of four
- unequal: eight workers of four, of which one takes 2 ms a step
- far: eight workers of four behind 50 ms each way
- killed: eight workers of four, of which one is killed and started again every --kill_seconds
- busy: eight workers of four, and an endless loop on each core that the learner has

A run's score is the area under its training return over environment steps: the mean of episodes' returns in twenty
equal parts of the steps, as a share of the way from the lowest return to the highest (MinAtar: as it is). The table
compares each ground with `eight` by a permutation test of the difference of mean areas: areas are standardized within
a task, and permuted within a task. OUT/rows.jsonl has a row for each run, and runs that have one are not repeated.
Policy age: its mean, and the largest of a row of metrics.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import fault_probes
import links
import numpy as np
import runs

GROUNDS = ("eight", "one", "unequal", "far", "killed", "busy")
BASE = GROUNDS[0]
STEP_SECONDS, SLOW_SECONDS, DELAY_SECONDS = 2e-4, 2e-3, 0.05
NUM_ENVS, NUM_PARTS = 32, 20
_PERMUTATIONS = 10_000


class Task(NamedTuple):
    """What is learned, and for how many steps."""

    settings: Sequence[str]
    steps: int
    lowest: float = 0.0  # return
    highest: float = 1.0


TASKS: Mapping[str, Task] = {
    "catch-muzero": Task(("--preset=catch",), 8_000, -1.0),
    "cartpole-muzero": Task(("--preset=cartpole",), 20_000, 0.0, 500.0),
    "cartpole-ppo": Task(("--preset=cartpole", "--agent=ppo"), 60_000, 0.0, 500.0),
    "cartpole-vtrace": Task(("--preset=cartpole", "--agent=vtrace"), 60_000, 0.0, 500.0),
    "breakout-ppo": Task(("--env=gym:MinAtar/Breakout-v1", "--agent=ppo"), 500_000),
}
_MAIN_TASKS = tuple(TASKS)[:4]


def work() -> None:
    """Is a worker whose environments take SEEDZERO_STEP_SECONDS for each step."""
    from gymnasium.envs.classic_control import cartpole

    from seedzero.envs import catch

    seconds = float(os.environ["SEEDZERO_STEP_SECONDS"])

    def slowed(step: Any, num_envs: Any) -> Any:
        def slow(self: Any, actions: Any) -> Any:
            time.sleep(seconds * num_envs(self))
            return step(self, actions)

        return slow

    catch.Catch.step = slowed(catch.Catch.step, lambda self: self.num_envs)  # type: ignore[method-assign]
    cartpole.CartPoleEnv.step = slowed(cartpole.CartPoleEnv.step, lambda self: 1)  # type: ignore[method-assign]
    runpy.run_module("seedzero.worker", run_name="__main__", alter_sys=True)


class Ground:
    """The workers of a run, and what happens to them."""

    def __init__(self, name: str, address: str, log: pathlib.Path) -> None:
        self.name, self._address, self._log = name, address, log
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._others: list[subprocess.Popen[bytes]] = []

    async def start(self) -> None:
        """Starts the workers, and the loops beside the learner."""
        if self.name == "far":
            proxy = fault_probes.Proxy(self._address)
            proxy.delay = DELAY_SECONDS
            self._address = await proxy.serve()
        for index in range(1 if self.name == "one" else 8):
            self._start_worker(index)
        for core in os.sched_getaffinity(0) if self.name == "busy" else ():
            loop = f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"
            self._others.append(subprocess.Popen([sys.executable, "-c", loop]))

    def _start_worker(self, index: int) -> None:
        seconds = SLOW_SECONDS if self.name == "unequal" and index == 0 else STEP_SECONDS
        command = [sys.executable, __file__, "work", f"--server={self._address}", "--role=train"]
        command += [f"--num_envs={NUM_ENVS if self.name == 'one' else NUM_ENVS // 8}", f"--worker_id=worker-{index}"]
        environment = {**os.environ, "SEEDZERO_STEP_SECONDS": str(seconds)}
        with self._log.open("ab") as log:
            self._workers[index] = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def kill_one(self, number: int) -> None:
        """Kills a worker and starts it again, where the ground asks for it."""
        if self.name == "killed":
            index = number % len(self._workers)
            self._workers[index].kill()
            self._workers[index].wait()
            self._start_worker(index)

    def stop(self) -> None:
        """Ends all processes."""
        for process in (*self._workers.values(), *self._others):
            process.kill()
            process.wait()


async def run(task: Task, ground: str, seed: int, path: pathlib.Path, kill_seconds: float) -> dict[str, Any]:
    """Trains once, and returns what its row has beside the names.

    Raises SystemExit if the learner fails or does not start.
    """
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = (f"--max_env_steps={task.steps}", "--worker.num_groups=1", f"--worker.envs_per_group={NUM_ENVS}")
    settings = (*task.settings, *sizes, f"--seed={seed}", "--metrics.every_seconds=1")
    learner, address = await links.learner(path, settings)
    workers = Ground(ground, address, path.with_suffix(".workers.log"))
    kills = 0
    try:
        await workers.start()
        ended = asyncio.ensure_future(learner.wait())
        while not (await asyncio.wait([ended], timeout=kill_seconds))[0]:
            workers.kill_one(kills)
            kills += 1
    finally:
        workers.stop()
        with contextlib.suppress(ProcessLookupError):
            learner.terminate()
    if ended.result():
        raise SystemExit(f"the learner ended with {ended.result()}; see {path.with_suffix('.log')}")
    rows = runs.rows(path)
    # PPO and V-trace report the steps that they learned from, the others the calls that acted.
    ages = [row.get("policy_lag", row["policy_age"]) for row in rows if "policy_age" in row]
    most = [row.get("policy_lag_max", row["policy_age"]) for row in rows if "policy_age" in row]
    inserts = [row["samples_per_insert"] for row in rows if "samples_per_insert" in row]
    return {
        "area": (area(rows, task.steps) - task.lowest) / (task.highest - task.lowest),
        "seconds": round(rows[-1]["seconds"], 1),
        "samples_per_insert": inserts[-1] if inserts else None,
        "age_mean": float(np.mean(ages)) if ages else None,
        "age_max": float(np.max(most)) if most else None,
        "kills": kills if ground == "killed" else 0,
    }


def area(rows: Sequence[Mapping[str, Any]], steps: int) -> float:
    """Returns the mean over equal parts of the steps of the mean return of episodes that ended there.

    A part without an ended episode counts as the one before it, and the first as the first that has some.
    """
    sums = np.zeros((NUM_PARTS, 2))  # of returns, and episodes
    for row in rows:
        if "episode_return" in row and row.get("kind") != "evaluation":
            part = min(NUM_PARTS - 1, NUM_PARTS * row["env_steps"] // steps)
            sums[part] += row["episodes"] * row["episode_return"], row["episodes"]
    known = [total / number if number else None for total, number in sums.tolist()]
    filled, last = [], next(value for value in known if value is not None)
    for value in known:
        last = last if value is None else value
        filled.append(last)
    return float(np.mean(filled))


def p_value(pairs: Sequence[tuple[Sequence[float], Sequence[float]]], seed: int = 0) -> float:
    """Returns the two-sided p of a permutation test stratified by task.

    pairs: for each task the areas on one ground and on the other. The statistic is the mean over tasks of the
    difference of means in standard deviations of the task's areas. The smallest p is 1 / (permutations + 1).
    """
    tasks = []
    for first, second in pairs:
        both = np.array([*first, *second], float)
        deviation = both.std() or 1.0
        tasks.append(((both - both.mean()) / deviation, len(first)))

    def statistic(values: Sequence[tuple[np.ndarray, int]]) -> float:
        return float(np.mean([part[:size].mean() - part[size:].mean() for part, size in values]))

    generator, seen = np.random.default_rng(seed), abs(statistic(tasks))
    as_far = sum(
        abs(statistic([(generator.permutation(part), size) for part, size in tasks])) >= seen - 1e-12
        for _ in range(_PERMUTATIONS)
    )
    return (as_far + 1) / (_PERMUTATIONS + 1)


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Returns the lines of the table: a line for each task and ground, and one for all tasks of a ground."""
    yield "| task | ground | seeds | mean area | of eight's | p | policy age | samples an insert | seconds |"
    yield "|---|---|---|---|---|---|---|---|---|"
    grouped: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        grouped.setdefault((row["task"], row["ground"]), []).append(row)
    for ground in GROUNDS:
        pairs = []
        for name in TASKS:
            found, base = grouped.get((name, ground), []), grouped.get((name, BASE), [])
            if not found or not base:
                continue
            areas, others = [row["area"] for row in found], [row["area"] for row in base]
            if name in _MAIN_TASKS:
                pairs.append((areas, others))
            cells = [name, ground, len(found), f"{np.mean(areas):.4g}", f"{np.mean(areas) / np.mean(others):.2f}"]
            cells.append("" if ground == BASE or len(areas) < 2 else f"{p_value([(areas, others)]):.3f}")
            ages = [row for row in found if row["age_mean"] is not None]
            means, most = [row["age_mean"] for row in ages], [row["age_max"] for row in ages]
            cells.append(f"{np.mean(means):.1f}, {max(most):.0f}" if ages else "")
            inserts = [row["samples_per_insert"] for row in found if row["samples_per_insert"] is not None]
            cells.append(f"{min(inserts):.4g} to {max(inserts):.4g}" if inserts else "")
            cells.append(f"{np.median([row['seconds'] for row in found]):.0f}")
            yield f"| {' | '.join(map(str, cells))} |"
        if ground != BASE and len(pairs) > 1:
            yield f"| all | {ground} | | | | {p_value(pairs):.4f} | | | |"


def main() -> None:
    """Reads the command line, makes the runs without a row, and prints the table."""
    if sys.argv[1:2] == ["work"]:
        del sys.argv[1]
        return work()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(_MAIN_TASKS), help=f"of {', '.join(TASKS)}")
    parser.add_argument("--grounds", default=",".join(GROUNDS))
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--kill_seconds", type=float, default=20.0)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/any_speed"))
    parser.add_argument("--table", action="store_true", help="print the table of the runs that are there")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the learner and its workers, too
    file = given.out / "rows.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(row["task"], row["ground"], row["seed"]) for row in rows}
    for seed in map(int, given.seeds.split(",")) if not given.table else ():
        for name in given.tasks.split(","):
            for ground in given.grounds.split(","):
                if (name, ground, seed) in done:
                    continue
                path = given.out / f"{name}_{ground}_{seed}"
                found = asyncio.run(run(TASKS[name], ground, seed, path, given.kill_seconds))
                rows.append({"task": name, "ground": ground, "seed": seed, **found})
                with file.open("a") as output:
                    output.write(json.dumps(rows[-1]) + "\n")
                print(json.dumps(rows[-1]), flush=True)
                shutil.rmtree(path)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
