"""Notes on settings that leave parts of an environment unplayed, or out of an agent's reach."""

from __future__ import annotations

from collections.abc import Iterator

from seedzero.config import configs
from seedzero.core import env_ids


def without_memory(config: configs.Config) -> Iterator[str]:
    """Yields a note if an agent of the package's acts on its newest observation alone."""
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
    """Yields notes on levels of DMLab-30 without a player."""
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
