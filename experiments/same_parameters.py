"""Checks that a change left training as it was: compares deterministic runs of two checkouts bit for bit.

    python experiments/same_parameters.py BEFORE AFTER [TASK ...] [--out=runs/same]

BEFORE and AFTER are checkouts, each with its `.venv` (`./run_local.sh catch` makes one). Compared are every array of
the last checkpoint (parameters, target network and optimizer), and every row of metrics except times. Bits differ
between CPUs and versions of JAX, so both run here, and nothing is stored. The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import numpy as np

from seedzero.monitoring import metrics_log
from seedzero.storage.checkpoints import saved_files, trees

COMMON = ("--deterministic", "--seed=3", "--stop_at_return=inf", "--evaluation.episodes=4", "--evaluation.num_envs=4")
_CATCH = ("--preset=catch", "--max_updates=120")
_IMAGES = (
    "--env=atari:Pong",
    "--env.frame_size=48",
    "--worker.envs_per_group=4",
    "--workers=1",
    "--max_updates=12",
    "--network.resnet_size=small",
    "--search.num_simulations=2",
    "--muzero.unroll_steps=2",
    "--replay.batch_size=8",
    "--replay.capacity=4000",
    "--replay.num_slots=8",
    "--replay.min_steps=64",
    "--replay.samples_per_insert=1",
    "--evaluation.every_updates=0",
)
TASKS = {
    "catch": ("--preset=catch", "--max_updates=300"),
    "cartpole": ("--preset=cartpole", "--max_updates=150", "--replay.min_steps=400"),
    "continuous": ("--env=gym:Pendulum-v1", "--max_updates=120", "--replay.min_steps=300"),
    "tictactoe": (
        "--preset=tictactoe",
        "--max_updates=150",
        "--replay.min_steps=300",
        "--reanalyse.per_insert=1",
        "--reanalyse.batch_size=32",
    ),
    "memory": ("--preset=memory-repeat", "--agent=muzero", "--max_updates=100", "--replay.min_steps=1000"),
    "images": _IMAGES,
    "mixed": (
        *_CATCH,
        "--network.frame_stack=2",
        "--replay.priority_alpha=0.6",
        "--reanalyse.per_insert=1",
        "--explore.epsilon=0.05",
        "--optimizer.schedule=cosine",
        "--optimizer.decay_updates=200",
    ),
    "host_frames": (*_IMAGES, "--replay.placement=host"),
    "two_devices": (*_CATCH, "--training.num_devices=2"),
    "apart": (*_CATCH, "--training.num_devices=2", "--training.acting_devices=1"),
    "vtrace": (*_CATCH, "--agent=vtrace"),
    "vtrace_apart": (*_CATCH, "--agent=vtrace", "--training.num_devices=2", "--training.acting_devices=1"),
    "ppo": ("--preset=cartpole", "--agent=ppo", "--max_updates=12"),
    "ppo_lstm": ("--preset=memory-cartpole", "--agent=ppo", "--max_updates=6"),
    "apex": (*_CATCH, "--agent=apex"),
    "alphazero": ("--env=pgx:tic_tac_toe", "--max_updates=60", "--replay.min_steps=300", "--worker.envs_per_group=8"),
    "r2d2": ("--preset=memory-cartpole", "--agent=r2d2", "--max_updates=60", "--replay.min_steps=1000"),
    "league": (
        "--preset=league-tictactoe",
        "--league.builder=alphastar",
        '--league.builder_args={"win_rate": 0.5, "min_games": 5, "min_steps": 300, "max_steps": 900}',
        "--league.build_every=20",
        "--max_updates=120",
        "--replay.min_steps=300",
    ),
    "league_seats": ("--preset=league-kuhn", "--max_updates=40", "--league.freeze_every=1000"),
    "sac": ("--env=gym:Pendulum-v1", "--agent=sac", "--max_updates=200", "--replay.min_steps=300"),
}
_TWO_DEVICES = "--xla_force_host_platform_device_count=2"
"""For XLA_FLAGS of tasks on several devices."""


def arrays(run: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the arrays of the newest checkpoint by name, without the replay."""
    path, found, _ = saved_files.find(run / "checkpoints", "last")
    kept = {name: leaves for name, leaves in found.arrays.items() if (path / name).is_dir() and name != "replay"}
    return {
        leaf.name: array
        for name, leaves in kept.items()
        for leaf, array in zip(leaves, trees.load(path / name, leaves), strict=True)
    }


def metrics_rows(run: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the metrics of a run, including evaluations, without times, rates, processor time and memory."""
    return [
        {
            key: value
            for key, value in row.items()
            if not key.endswith(("seconds", "second", "time", "cpu_percent", "memory_bytes"))
        }
        for row in metrics_log.read(run)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"of {', '.join(TASKS)}; default: all")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/same"))
    options = parser.parse_args()
    num_different = 0
    # Otherwise one checkout's packages could precede the other's own.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # otherwise workers, run by `python -m`, import what is in the current directory
    environment["PYTHONSAFEPATH"] = "1"
    for task in options.tasks or TASKS:
        found, rows = [], []
        flags = {"XLA_FLAGS": _TWO_DEVICES} if "--training.num_devices=2" in TASKS[task] else {}
        for side in ("before", "after"):
            run = options.out / side / task
            program = getattr(options, side).absolute() / ".venv" / "bin" / "seedzero"
            shutil.rmtree(run, ignore_errors=True)  # a finished run would be compared unchanged
            command = [program, "train", *COMMON, *TASKS[task], f"--run_dir={run}"]
            subprocess.run(command, check=True, env=environment | flags)
            found.append(arrays(run))
            rows.append(metrics_rows(run))
        before, after = found
        different = [
            name
            for name in before.keys() | after.keys()
            if name not in before or name not in after or before[name].tobytes() != after[name].tobytes()
        ]
        same_rows = rows[0] == rows[1]
        print(
            f"{task}: {len(before)} arrays, {len(different)} differ {sorted(different)[:3]}; "
            f"{len(rows[0])} rows of metrics, {'equal' if same_rows else 'different'}",
            flush=True,
        )
        num_different += len(different) + (not same_rows)
    return int(num_different > 0)


if __name__ == "__main__":
    sys.exit(main())
