"""Trains on one Atari game for a time: return over frames and seconds, and the speed relative to the emulators alone.

    python experiments/atari.py [--game=Pong] [--minutes=5] [--out=runs/atari-Pong] [SETTING ...]

Settings are those of `seedzero train` (`--preset=atari-100k --env.sticky_actions=0 ...`). The run trains for the given
time. Then the script steps its emulators alone, with random actions, in equal groups and on the same total number of
threads, evaluates the last checkpoint in a separate process, and writes OUT/result.json and OUT/returns.png. The same
command resumes an existing run in OUT for as many minutes again.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import runs

from seedzero.config import configs
from seedzero.envs import registry
from seedzero.storage.checkpoints import run_dirs

EVALUATION_EPISODES = 32


def main() -> None:
    """Reads the command line, trains, and prints the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="Pong")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--emulator_seconds", type=float, default=10.0)
    arguments, settings = parser.parse_known_args()
    out = arguments.out or pathlib.Path(f"runs/atari-{arguments.game}")
    if not any(setting.partition("=")[0] == "--preset" for setting in settings):
        settings.append("--preset=atari")
    settings += [f"--env=atari:{arguments.game}", f"--max_seconds={60 * arguments.minutes:g}"]
    before = earlier_seconds(out / "run")
    run = runs.train(out / "run", settings, resumes=True)
    config = run_dirs.read_saved(run.path).config
    alone = emulator_frames_per_second(config, arguments.emulator_seconds)
    evaluation = runs.evaluate(run.path, ["--step=last", f"--episodes={EVALUATION_EPISODES}"])
    result = {
        "game": arguments.game,
        "settings": settings,
        "seconds": round(before + run.seconds, 1),
        "ended": run.last_line,
        "evaluation": evaluation,
        **speed(runs.rows(run.path), alone),
        "evaluations": runs.evaluations(run.path),
        "training_returns": runs.training_returns(run.path),
    }
    (out / "result.json").write_text(json.dumps(result, indent=1))
    print(json.dumps({key: value for key, value in result.items() if key not in ("evaluations", "training_returns")}))
    with runs.figures():
        draw(out / "returns.png", result, config.env.frame_skip)


def earlier_seconds(path: pathlib.Path) -> float:
    """Returns how long a run has trained; 0 if it has not begun."""
    rows = runs.rows(path)
    return float(rows[-1]["seconds"]) if rows else 0.0


def emulator_frames_per_second(config: configs.Config, seconds: float) -> float:
    """Returns the frames per second of the run's training emulators, when groups take turns to step at random.

    Only one group steps at a time, so each has the threads of all workers.
    """
    worker = config.worker
    groups = [
        registry.make(config.env.id, config.env, worker.envs_per_group, threads=worker.threads * worker.num)
        for _ in range(worker.num * worker.num_groups)
    ]
    generator = np.random.default_rng(0)
    for index, group in enumerate(groups):
        group.reset(range(index * worker.envs_per_group, (index + 1) * worker.envs_per_group))
    num_steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for group in groups:
            group.step(generator.integers(group.spec.num_actions, size=group.num_envs).astype(np.int32))
            num_steps += group.num_envs
    elapsed = time.perf_counter() - began
    for group in groups:
        group.close()
    return num_steps * config.env.frame_skip / elapsed


def speed(rows: Sequence[Mapping[str, Any]], emulator: float) -> dict[str, float]:
    """Returns medians over the rows with updates, and the share of the emulators' own speed."""
    steady = [row for row in rows if row.get("updates_per_second", 0) > 0][1:]
    if not steady:
        return {"emulator_frames_per_second": emulator}
    frames = statistics.median(row["frames_per_second"] for row in steady)
    return {
        "frames_per_second": frames,
        "updates_per_second": statistics.median(row["updates_per_second"] for row in steady),
        "emulator_frames_per_second": emulator,
        "ratio_to_emulator": frames / emulator,
    }


def draw(file: pathlib.Path, result: Mapping[str, Any], frame_skip: int) -> None:
    """Plots evaluations, and training episodes (which explore), over seconds and frames."""
    curves = {
        name: [{**point, "frames": point["env_steps"] * frame_skip} for point in result[key]]
        for name, key in (("training episodes, exploring", "training_returns"), ("evaluation", "evaluations"))
    }
    runs.plot(file, [runs.Panel("", curves, x) for x in ("seconds", "frames")], title=result["game"])


if __name__ == "__main__":
    main()
