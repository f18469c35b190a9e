"""Ablations: presets unchanged, and with one setting changed.

    python experiments/ablation.py [TASK ...] [--variants=base,puct,...] [--seeds=1,2,3] [--out=runs/ablation]

A variant is left out if a task's preset already has its setting. A run ends at the task's return or time. For each
variant the table shows the seconds from process start and the training steps until the end (medians over seeds), the
number of runs that reached the return, and the mean of the last evaluations. OUT/ablation.json stores each result at
once; the same command resumes.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import runs

from seedzero.api import request
from seedzero.cli import parse, train
from seedzero.config import configs

VARIANTS: Mapping[str, Sequence[str]] = {
    "base": (),
    "puct": ("--search.policy=puct",),
    "priorities": ("--replay.priority_alpha=0.6",),
    "reanalyse": ("--reanalyse.per_insert=1",),
    "consistency": ("--muzero.consistency_weight=2",),
    "no_consistency": ("--muzero.consistency_weight=0",),
    "no_ends": ("--muzero.predict_ends=false",),
    "no_gates": ("--network.gated=false",),
    "value_prefix": ("--muzero.value_prefix=true",),
    "entropy": ("--muzero.entropy_weight=0.1",),
    "no_entropy": ("--muzero.entropy_weight=0",),
    "no_value_range": ("--search.min_value_range=1e-8",),
    "n_step_3": ("--muzero.n_step=3",),
    "n_step_10": ("--muzero.n_step=10",),
}


class Task(NamedTuple):
    """A task. target: the return that ends a run, or None; seconds: the time limit."""

    settings: Sequence[str]
    target: float | None
    seconds: float


TASKS: Mapping[str, Task] = {
    "catch": Task(("--preset=catch",), 1.0, 120),
    "cartpole": Task(("--preset=cartpole",), 475, 240),
    "breakout": Task(("--preset=minatar", "--max_env_steps=400000"), None, 1200),
}

Result = dict[str, Any]


def main() -> None:
    """Reads the command line, measures missing results, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"of {', '.join(TASKS)}; none: all")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/ablation"))
    arguments = parser.parse_args()
    tasks, variants = arguments.tasks or list(TASKS), arguments.variants.split(",")
    unknown = {*tasks} - {*TASKS} | {*variants} - {*VARIANTS}
    if unknown:
        known = f"tasks: {', '.join(TASKS)}; variants: {', '.join(VARIANTS)}"
        parser.error(f"unknown {', '.join(sorted(unknown))}; {known}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "ablation.json"
    results: list[Result] = json.loads(file.read_text()) if file.exists() else []
    for task in tasks:
        changed = changing(task, variants)
        if same := [variant for variant in variants if variant not in changed]:
            print(f"{task}: left out, as the preset has these settings: {', '.join(same)}", flush=True)
        # Seed by seed, so that other load on the machine affects all variants equally.
        for seed in map(int, arguments.seeds.split(",")):
            for variant in changed:
                key = {"task": task, "variant": variant, "seed": seed}
                if not any(key.items() <= result.items() for result in results):
                    results.append(key | measure(task, variant, seed, arguments.out))
                    print(json.dumps(results[-1]), flush=True)
                    file.write_text(json.dumps(results, indent=1))
    for task in tasks:
        print(f"\n{task}\n\n{summary(task, results)}")


def changing(task: str, variants: Iterable[str]) -> list[str]:
    """Returns the preset itself, and the variants whose settings differ from those of the task's preset."""
    unchanged = _config(task, "base")
    return [variant for variant in variants if variant == "base" or _config(task, variant) != unchanged]


def _config(task: str, variant: str) -> configs.Config:
    given = parse.read("train", train.COMMAND, [*TASKS[task].settings, *VARIANTS[variant]])
    return request.make(given.flags, given.settings).config


def measure(task: str, variant: str, seed: int, out: pathlib.Path) -> Result:
    """Trains one variant with one seed."""
    settings = [*TASKS[task].settings, *VARIANTS[variant], f"--seed={seed}", f"--max_seconds={TASKS[task].seconds:g}"]
    target = TASKS[task].target
    if target is not None:
        settings.append(f"--stop_at_return={target:g}")
    run = runs.train(out / f"{task}-{variant}-{seed}", settings)
    evaluated = runs.evaluations(run.path)
    last = evaluated[-1]["mean_return"] if evaluated else None
    return {
        "seconds": round(run.seconds, 1),
        "env_steps": runs.rows(run.path)[-1]["env_steps"],
        "last_evaluation": last,
        "reached": target is not None and last is not None and last >= target,
    }


def summary(task: str, results: Sequence[Result]) -> str:
    """Returns a task's table in Markdown."""
    lines = []
    for variant in changing(task, VARIANTS):
        found = [result for result in results if result["task"] == task and result["variant"] == variant]
        if found:
            lasts = [result["last_evaluation"] for result in found if result["last_evaluation"] is not None]
            lines.append(
                (
                    f"`{' '.join(VARIANTS[variant]) or 'the preset'}`",
                    f"{statistics.median(result['seconds'] for result in found):.0f}",
                    f"{statistics.median(result['env_steps'] for result in found):,.0f}",
                    f"{sum(result['reached'] for result in found)} of {len(found)}",
                    f"{statistics.mean(lasts):.3g}" if lasts else "-",
                )
            )
    header = ("changed", "seconds, median", "training steps, median", "reached the return", "last evaluation, mean")
    return runs.table(header, lines)


if __name__ == "__main__":
    main()
