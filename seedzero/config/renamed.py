"""Settings that had other names in earlier versions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from seedzero.core import errors

Value = TypeVar("Value")

_OF_ALL = {
    "discount": "reward.discount",
    "learning_rate": "optimizer.learning_rate",
    "clip_norm": "optimizer.clip_norm",
    "module": "network.module",
    "width": "network.width",
    "frame_stack": "network.frame_stack",
    "compute_dtype": "network.compute_dtype",
    "reward_scale": "reward.scale",
}
_OF_TORSO = {
    **_OF_ALL,
    "clip_reward": "reward.clip",
    "torso": "network.kind",
    "normalize_pixels": "network.normalize_pixels",
}
_OF_Q = {
    **_OF_TORSO,
    "optimizer": "optimizer.kind",
    "rmsprop_decay": "optimizer.rmsprop_decay",
    "optimizer_epsilon": "optimizer.epsilon",
}
_AGENTS: Mapping[str, Mapping[str, str]] = {
    "muzero": {"discount": "reward.discount", "reward_clip": "reward.clip", "scale_rewards": "reward.normalize"},
    "vtrace": {
        **_OF_TORSO,
        "optimizer": "optimizer.kind",
        "decay_updates": "optimizer.decay_updates",
        "rmsprop_decay": "optimizer.rmsprop_decay",
        "rmsprop_epsilon": "optimizer.epsilon",
        "lstm_width": "network.lstm_width",
    },
    "apex": _OF_Q,
    "r2d2": {**_OF_Q, "lstm_width": "network.lstm_width"},
    "ppo": {
        **_OF_TORSO,
        "decay_updates": "optimizer.decay_updates",
        "adam_epsilon": "optimizer.epsilon",
        "lstm_width": "network.lstm_width",
        "normalize_observations": "network.normalize_observations",
        "normalize_rewards": "reward.normalize",
    },
    "sac": _OF_ALL,
}
_HOSTS = ("coordinator", "ca_file", "worker_address", "interface", "join_seconds", "silence_seconds")
NOW: Mapping[str, str] = {
    **{f"{agent}.{key}": name for agent, keys in _AGENTS.items() for key, name in keys.items()},
    "hosts.num": "cluster.num_hosts",
    "hosts.index": "cluster.index",
    **{f"hosts.{key}": f"cluster.{key}" for key in _HOSTS},
}
"""Earlier name SECTION.KEY of a setting -> its name now; one for all agents if each had its own."""


def of_saved(values: Mapping[str, Value], agent: str) -> dict[str, Value]:
    """Returns the values of an agent's run directory by their current names.

    Earlier versions saved all agents' values, each agent's by its own names, and MuZero's in the shared sections.
    """
    if NOW.keys().isdisjoint(values):
        return dict(values)
    others = ("optimizer.", "network.") if agent in _AGENTS and agent != "muzero" else ()
    kept = {name: value for name, value in values.items() if name not in NOW and not name.startswith(others)}
    return {**kept, **{NOW[name]: value for name, value in values.items() if name in NOW and _is_for(name, agent)}}


def of_user(given: Mapping[str, Value], agents: Collection[str]) -> tuple[dict[str, Value], list[str]]:
    """Returns the user's settings by their current names, and a warning for each earlier name.

    agents: those that train. Raises ConfigError if an earlier name belongs to another agent.
    """
    found: dict[str, Value] = {}
    notes = []
    for name, value in given.items():
        now = NOW.get(name, name)
        if name in NOW:
            if others := [agent for agent in agents if not _is_for(name, agent)]:
                raise errors.ConfigError(
                    f"--{name} is the old name of --{now} for {name.partition('.')[0]}, but this is "
                    f"--agent={others[0]}; give --{now}, or leave it out"
                )
            notes.append(f"--{name} is called --{now} now; the old name works in this version only")
        found.pop(now, None)
        found[now] = value
    return found, notes


def _is_for(name: str, agent: str) -> bool:
    """Returns whether an earlier name is a setting of an agent: its own, or one that all agents share."""
    section = name.partition(".")[0]
    return section not in _AGENTS or section == agent
