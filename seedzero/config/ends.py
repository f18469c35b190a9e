"""Decides when a run ends: by default as the environment does, if neither the user nor the preset says when."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set

from seedzero.config import configs, options, presets

NONE: Mapping[str, options.Value] = {
    "run.stop_at_return": math.inf,
    "run.max_env_steps": 0,
    "run.max_updates": 0,
    "run.max_seconds": 0.0,
}
"""Setting that ends a run -> its value for no end."""
_STEPS = {"gym:MinAtar/": 5_000_000, "atari:": 50_000_000, "gym:ALE/": 50_000_000}
"""Prefix of an id -> training steps of the published runs: MinAtar's 5 million frames (Young & Tian 2019), and Atari's
200 million of 4 a step (Machado et al. 2018)."""


def by_default(
    config: configs.Config, *, explicit: Set[str], reward_threshold: float | None
) -> dict[str, options.Value]:
    """Returns the values of the default end; none if an end is set, or the user chose to have none.

    Args:
      config: a preset's values with the user's over them.
      explicit: names SECTION.KEY of what the user set.
      reward_threshold: mean return at which the environment counts as solved; None: unknown.
    """
    values = configs.flatten(config)
    if NONE.keys() & explicit or any(values[name] != off for name, off in NONE.items()):
        return {}
    # The returns of episodes that are cut off mean less than the threshold does.
    is_scored = config.evaluation.every_updates > 0 and "evaluation.max_episode_steps" not in explicit
    if reward_threshold is not None and is_scored:
        return {"run.stop_at_return": reward_threshold}
    steps = next((steps for prefix, steps in _STEPS.items() if config.env.id.startswith(prefix)), 0)
    return {"run.max_env_steps": steps} if steps else {}


def sentence(config: configs.Config, *, preset: str, explicit: Set[str]) -> str:
    """Describes the ends that the user did not set, or an endless run; "" if the user set all."""
    values = configs.flatten(config)
    found = [name for name, off in NONE.items() if values[name] != off]
    if not found:
        return "" if NONE.keys() & explicit else _ENDLESS
    named = [f"{_shown(config, name)} ({_source(config, name, preset)})" for name in found if name not in explicit]
    off = [f"{configs.flag(name)}={options.shown(NONE[name])}" for name in found if name not in explicit]
    verb = "ends" if len(named) == len(found) else "also ends"
    return f"{verb} {' or '.join(named)}; to train without that, give {' '.join(off)}" if named else ""


_ENDLESS = (
    "no end is set: Ctrl-C saves and leaves; --max_seconds=N, --max_env_steps=N or --stop_at_return=R ends the run"
)


def _shown(config: configs.Config, name: str) -> str:
    run = config.run
    return {
        "run.stop_at_return": f"at a mean return of {run.stop_at_return:g}",
        "run.max_env_steps": f"after {run.max_env_steps:,} steps",
        "run.max_updates": f"after {run.max_updates:,} updates",
        "run.max_seconds": f"after {run.max_seconds:g} s",
    }[name]


def _source(config: configs.Config, name: str, preset: str) -> str:
    """Returns the source of an end, for brackets: the preset, or else the environment."""
    of_preset, agent = configs.flatten(presets.get(preset, config.run.agent)), config.run.agent
    own = {of_preset[name], presets.cpu_values(preset, agent, explicit=frozenset()).get(name)}
    if configs.flatten(config)[name] in own:
        return f"preset {preset}'s own"
    kind = "threshold" if name == "run.stop_at_return" else "budget"
    return f"{config.env.id.rpartition(':')[2]}'s own {kind}"
