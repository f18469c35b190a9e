"""Compares a league with self-play alone in connect four on 4 rows and 5 columns, measured by perfect play.

    python experiments/league.py [--steps=160000] [--own=0.68] [--freezes=32] [--seeds=1,2,3] [--out=runs/league]

A row is own if the learning player itself moved; in a league this is about a share --own of them. `self-play` has as
many training steps as the league, `self-play, own rows` about as many own rows. The table has medians over seeds and
ranges: the share of optimal moves (`keeps_value.py`), the share of games lost to a perfect player (`openings.py`), and
exploitability (`best_response.py`). OUT/league.json stores each result at once; the same command resumes.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

import runs

_STEPS_PER_UPDATE = 32
"""For both presets: a batch of 256 windows, and 8 windows per step."""

_JUDGED = {
    "keeps_value": "keeps the value",
    "lost": "lost to a perfect player",
    "sampled_low": "exploitability, sampled: at least",
    "sampled_high": "at most",
    "greedy": "greedy",
}

Result = dict[str, Any]


def main() -> None:
    """Reads the command line, trains and measures missing runs, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=160_000)
    parser.add_argument("--own", type=float, default=0.68)
    parser.add_argument("--freezes", type=int, default=32)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/league"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "league.json"
    results: list[Result] = json.loads(file.read_text()) if file.exists() else []
    plan = {
        "league": (
            arguments.steps,
            "--preset=league-connect-four",
            f"--league.freeze_every={arguments.steps // arguments.freezes}",
        ),
        "self-play": (arguments.steps, "--preset=connect_four"),
        "self-play, own rows": (round(arguments.own * arguments.steps), "--preset=connect_four"),
    }
    for seed in map(int, arguments.seeds.split(",")):
        for name, (steps, *settings) in plan.items():
            key = {"run": name, "seed": seed}
            if not any(key.items() <= result.items() for result in results):
                path = arguments.out / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}"
                results.append(key | measure(path, [*settings, f"--seed={seed}"], steps))
                print(json.dumps(results[-1]), flush=True)
                file.write_text(json.dumps(results, indent=1))
    print(summary(results))


def measure(path: pathlib.Path, settings: Sequence[str], num_steps: int) -> Result:
    """Trains or resumes a run, with a learning rate that decays until its end, and measures its last checkpoint."""
    decay = num_steps // _STEPS_PER_UPDATE
    budget = [f"--max_env_steps={num_steps}", f"--optimizer.decay_updates={decay}", "--evaluation.every_updates=0"]
    runs.train(path, [*settings, *budget, "--checkpoint.every_seconds=0"], resumes=True)
    row = runs.rows(path)[-1]
    # self-play alone does not count own rows
    past, alone = (row.get(f"matches/{name}", 0) for name in ("past", "self_play"))
    kept, lost, exploited = (
        runs.script(name, [str(path), "--step=last"]) for name in ("keeps_value.py", "openings.py", "best_response.py")
    )
    low, high = exploited["sampled"]["exploitability"]
    return {
        "env_steps": row["env_steps"],
        "own_rows": round(row["env_steps"] * (1 - 0.5 * past / max(past + alone, 1))),
        "keeps_value": kept["share"],
        "lost": lost["share"],
        "sampled_low": low,
        "sampled_high": high,
        "greedy": exploited["greedy"]["exploitability"][1],
    }


def summary(results: Sequence[Result]) -> str:
    """Returns the table in Markdown."""
    lines = []
    for name in dict.fromkeys(result["run"] for result in results):
        found = [result for result in results if result["run"] == name]

        def cell(key: str, found: Sequence[Result] = found) -> str:
            values = [result[key] for result in found]
            return f"{statistics.median(values):.3f} [{min(values):.3f}, {max(values):.3f}]"

        steps, own = (statistics.median(result[key] for result in found) for key in ("env_steps", "own_rows"))
        lines.append((name, f"{steps:,.0f}", f"{own:,.0f}", *(cell(key) for key in _JUDGED)))
    return runs.table(("run", "steps", "own rows", *_JUDGED.values()), lines)


if __name__ == "__main__":
    main()
