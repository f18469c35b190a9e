"""Finds settings that change returns, keep parts of an environment unplayed, or out of an agent's reach."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from seedzero.config import configs, families, options
from seedzero.core import env_ids

_MEMORY = re.compile(r"memory:[a-z]+-([1-9][0-9]*)")
"""Tasks whose number says how many steps to remember."""


def changing_returns(config: configs.Config, explicit: Set[str]) -> str:
    """Returns the user's setting that may change an environment's returns, --SECTION.KEY=VALUE, or ""."""
    unlike = {
        "env.kwargs": config.env.kwargs.strip() not in ("", "{}"),
        "env.wrappers": "ClipReward" in config.env.wrappers,  # the only wrapper of rewards, see envs/gym_wrappers.py
        "env.max_episode_steps": config.env.max_episode_steps > 0,
        "evaluation.max_episode_steps": True,
    }
    values = configs.flatten(config)
    return next(
        (f"--{name}={values[name]}" for name, is_unlike in unlike.items() if is_unlike and name in explicit), ""
    )


def remembered(config: configs.Config, explicit: Set[str]) -> tuple[dict[str, options.Value], list[str]]:
    """Returns changes for a task that needs a number of steps remembered, and notes on a short or missing memory.

    explicit: names SECTION.KEY of what the user set.
    """
    changes: dict[str, options.Value] = {}
    task, setting, notes = _MEMORY.fullmatch(config.env.id), config.agent.LEARNS_THROUGH, []
    remembers = config.run.agent != "muzero" or config.muzero.memory != "none"
    if task and setting and remembers:
        name, needed = f"{config.section}.{setting}", min(2 * int(task[1]), 1000)  # not every step goes forward
        if getattr(config.agent, setting) < needed and name not in explicit:
            changes[name] = needed
            notes.append(f"--{name}={needed}: {config.env.id} needs a memory of {task[1]} steps")
    unused = () if remembers else ("muzero.burn_in", "muzero.memory_width")
    notes += [
        f"--{name} changes nothing: there is no memory; give --muzero.memory=lstm or gru too"
        for name in unused
        if name in explicit
    ]
    if families.of(config.env.id).prefix in ("memory", "popgym"):
        notes += _without_memory(config)
    return changes, notes


def _without_memory(config: configs.Config) -> Iterator[str]:
    """Yields a note if one of the package's agents acts on its newest observation alone."""
    has_lstm, network = configs.is_read("network.lstm_width", config), config.network
    if (
        not (has_lstm and network.lstm_width)
        and not (config.run.agent == "muzero" and config.muzero.memory != "none")
        and network.frame_stack == 1
        and config.run.agent in configs.agent_names()
    ):
        others = "--muzero.memory=lstm" if config.run.agent == "muzero" else "--agent=r2d2, vtrace or ppo"
        way = "--network.lstm_width=64" if has_lstm else others
        yield (
            f"--agent={config.run.agent} has no memory here: it sees the newest observation alone, which does not "
            f"show what --env={config.env.id} asks for; give {way}"
        )


def levels_left_out(config: configs.Config) -> Iterator[str]:
    """Yields notes on levels of DMLab-30 that no environment plays."""
    worker, evaluation, levels = config.worker, config.evaluation, env_ids.DMLAB30_LEVELS
    if 0 < worker.num_envs < levels and not worker.num_remote:
        yield (
            f"--env={env_ids.DMLAB30} has {levels} levels, and {worker.num_envs} environments play as many of them; "
            "give more --workers or --worker.envs_per_group"
        )
    limits = {
        "evaluation.num_envs": evaluation.num_envs,
        "evaluation.episodes": evaluation.episodes,
        "batcher.max_batch": config.batcher.max_batch or levels,
    }
    for name, number in limits.items():
        if evaluation.every_updates and number < levels:
            yield f"--{name}={number}: evaluations play {number} of the {levels} levels; give --{name}={levels}"
