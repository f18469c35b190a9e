"""Runs all agents on the ladder, and shows what each reaches over environment steps and over seconds.

    python experiments/agents.py [RUNG ...] [--agents=ppo,sac] [--seeds=1,2,3] [--out=runs/agents] [--quick]

Without names it runs all rungs: those of `ladder.py` that several agents can play, and the memory tasks, each agent
with its part of the preset. Runs follow one another, and nothing else should use the machine. --quick gives each run
60 seconds, one seed and 20 episodes, which shows that everything runs, but measures nothing.

Time counts from the start of the training process to its end. The score is that of a separate `seedzero evaluate` of
the best checkpoint, in environments with unseen seeds. OUT/agents.json stores each result at once, so that the same
command resumes an interrupted run. It writes OUT/agents.md and a figure of each rung.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence

import ladder
import runs

from seedzero.api import environment
from seedzero.config import combinations, configs, presets, sections
from seedzero.core import errors

_EPISODES, _QUICK_EPISODES = 200, 20
_QUICK_SECONDS = 60.0
_GAP: runs.Point = dict.fromkeys(("seconds", "env_steps", "mean_return"), math.nan)
"""Distance between two seeds of a curve."""


def _rung(settings: Sequence[str], seconds: float, bar: float) -> ladder.Rung:
    return ladder.Rung(settings, seconds, bar, ladder.mean_return(_EPISODES), f"return, {_EPISODES} episodes")


RUNGS: Mapping[str, ladder.Rung] = {
    **{
        name: _rung(ladder.RUNGS[name].settings, ladder.RUNGS[name].seconds, ladder.RUNGS[name].bar)
        for name in ("catch", "cartpole", "lunar_lander_240", "breakout", "frozen_lake", "taxi", "pendulum")
    },
    "memory_cartpole": _rung(("--preset=memory-cartpole",), 300, 450),
    "memory_tmaze": _rung(("--preset=memory-tmaze",), 600, 0.9),
    "memory_repeat": _rung(("--preset=memory-repeat",), 600, 28.8),
}


def main(words: Sequence[str] | None = None) -> None:
    """Reads the command line, or the words given, runs the agents, and writes the results."""
    arguments = _parse(words)
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "agents.json"
    results: list[ladder.Result] = json.loads(file.read_text()) if file.exists() else []
    for name in arguments.rungs:
        for agent in players(name):
            if agent not in arguments.agents:
                continue
            for seed in arguments.seeds:
                if any((x["rung"], x["agent"], x["seed"]) == (name, agent, seed) for x in results):
                    continue
                rung = _quick(RUNGS[name]) if arguments.quick else RUNGS[name]
                found = ladder.climb(name, rung, seed, arguments.out / agent, [f"--agent={agent}"])
                results.append({"agent": agent, **found})
                print(json.dumps({key: value for key, value in results[-1].items() if key != "curve"}), flush=True)
                file.write_text(json.dumps(results, indent=1))
    write(results, arguments.out)
    print(summary(results))


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rungs", nargs="*", metavar="RUNG", help=f"of {', '.join(RUNGS)}; none: all")
    parser.add_argument("--agents", help=f"names with commas; default: all, {','.join(configs.agent_names())}")
    parser.add_argument("--seeds", help="numbers with commas; default: 1,2,3 (--quick: 1)")
    parser.add_argument("--out", type=pathlib.Path, help="default: runs/agents (--quick: runs/agents-quick)")
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK_SECONDS:g} seconds a run, one seed")
    found = parser.parse_args(words)
    found.rungs = found.rungs or list(RUNGS)
    found.agents = found.agents.split(",") if found.agents else list(configs.agent_names())
    for what, names, known in (("rung", found.rungs, RUNGS), ("agent", found.agents, configs.agent_names())):
        if unknown := set(names) - set(known):
            parser.error(f"unknown {what} {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    found.seeds = [int(x) for x in (found.seeds or ("1" if found.quick else "1,2,3")).split(",")]
    found.out = found.out or pathlib.Path("runs/agents-quick" if found.quick else "runs/agents")
    return found


def _quick(rung: ladder.Rung) -> ladder.Rung:
    score = ladder.mean_return(_QUICK_EPISODES)
    return rung._replace(seconds=_QUICK_SECONDS, score=score, unit=f"return, {_QUICK_EPISODES} episodes")


def players(name: str) -> list[str]:
    """Returns the agents that can play a rung's environment.

    Raises:
      ConfigError: the environment cannot be made, for example because a package is missing.
    """
    words = dict(word.removeprefix("--").split("=", 1) for word in RUNGS[name].settings)
    env_id = words.get("env") or presets.find(words["preset"]).values["env.id"]
    shown = environment.show(sections.EnvConfig(id=str(env_id)))
    assert shown is not None, "no rung is of workers alone"
    spec = shown.spec
    able = []
    for agent in configs.agent_names():
        config = configs.override(configs.Config(), {"run.agent": agent, "env.id": env_id})
        try:
            combinations.check_environment(config, spec=spec)
        except errors.ConfigError:
            continue
        able.append(agent)
    return able


def _of(results: Sequence[ladder.Result], name: str) -> dict[str, list[ladder.Result]]:
    """Returns a rung's results by agent."""
    found: dict[str, list[ladder.Result]] = {}
    for result in results:
        if result["rung"] == name:
            found.setdefault(result["agent"], []).append(result)
    return found


def summary(results: Sequence[ladder.Result]) -> str:
    """Returns a table in Markdown, one line for each rung and agent."""
    lines = []
    for name, rung in RUNGS.items():
        for agent, found in _of(results, name).items():
            seconds = [result["seconds"] for result in found]
            lines.append(
                (
                    f"`{name}`: {rung.bar:g}",
                    agent,
                    ", ".join(map(ladder.shown, found)),
                    ", ".join(f"{x:.0f}" for x in seconds) + f" (median {statistics.median(seconds):.0f})",
                    ", ".join(f"{result['env_steps']:,}" for result in found),
                    f"{sum(result['reached'] for result in found)} of {len(found)}",
                )
            )
    header = ("rung: bar", "agent", "scores by seed", "seconds from process start", "environment steps", "reached")
    return runs.table(header, lines)


def write(results: Sequence[ladder.Result], out: pathlib.Path) -> None:
    """Writes the table, and for each rung a figure of all agents' evaluations over steps and seconds."""
    (out / "agents.md").write_text(summary(results) + "\n")
    with runs.figures():
        _draw(results, out)


def _draw(results: Sequence[ladder.Result], out: pathlib.Path) -> None:
    for name, rung in RUNGS.items():
        found = _of(results, name)
        curves = {
            agent: [point for result in found.get(agent, ()) for point in (*result["curve"], _GAP)]
            for agent in configs.agent_names()
        }
        if found:
            panels = [runs.Panel("", curves, x, rung.bar) for x in ("env_steps", "seconds")]
            runs.plot(out / f"{name}.png", panels, title=name)


if __name__ == "__main__":
    main()
