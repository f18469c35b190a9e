"""Settings that bear on each other: implied values, and impossible combinations."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any, NamedTuple

from seedzero.config import config as configs
from seedzero.config import families, options
from seedzero.core import env_ids, errors

_MEMORY = re.compile(r"memory:[a-z]+-([1-9][0-9]*)")
"""Tasks whose number is that of the steps to remember."""
_OF_OWN_NETWORKS: Mapping[str, options.Value] = {
    "muzero.consistency_weight": 0.0,
    "muzero.value_prefix": False,
    "muzero.predict_ends": False,
}
"""What a preset may ask of a network, and one of the user's own does not have."""
_OF_ENVIRONMENTS: tuple[tuple[str, str, options.Value], ...] = (
    ("stop_at_return", "run.stop_at_return", math.inf),
    ("max_updates", "run.max_updates", 0),
    ("evaluation.pauses_training", "evaluation.pauses_training", False),
)
"""What belongs to a preset's environment, and to no other: flag, SECTION.KEY and the value for others."""


def imply(
    config: configs.Config,
    *,
    preset_env: str,
    explicit: Set[str],
    elsewhere: Mapping[str, options.Value] = {},
) -> tuple[configs.Config, list[str]]:
    """Returns the configuration with the consequences of the user's settings, and notes about them.

    Args:
      config: a preset's values with the user's over them.
      preset_env: the environment that the preset was made for.
      explicit: names SECTION.KEY of what the user set; those are never changed.
      elsewhere: the preset's values for other environments.
    """
    changes: dict[str, options.Value] = {}
    notes = []
    if config.env.id == env_ids.REMOTE and "worker.num" not in explicit:
        changes["worker.num"] = 0
        notes.append("--env=remote: no local workers, the environments come with the workers that join")
    given = configs.flatten(config)
    for flag, name, off in _OF_ENVIRONMENTS:
        if given[name] != off and name not in explicit and config.env.id != preset_env:
            changes[name] = off
            notes.append(f"--{flag} is off: the preset's {str(given[name]).lower()} is for {preset_env}")
    for name, value in elsewhere.items():
        if given[name] != value and name not in explicit and config.env.id != preset_env:
            changes[name] = value
            notes.append(
                f"--{name}={options.shown(value)}: the preset's {options.shown(given[name])} is for {preset_env}"
            )
    if "network" in config.agent.SECTIONS and config.network.module:
        for name, nothing in _OF_OWN_NETWORKS.items():
            if given[name] != nothing and name not in explicit:
                changes[name] = nothing
                notes.append(f"--{name} is off: --network.module={config.network.module} has no such part")
    memory, setting = _MEMORY.fullmatch(config.env.id), config.agent.LEARNS_THROUGH
    if memory and setting:
        name, needed = f"{config.run.agent}.{setting}", min(2 * int(memory[1]), 1000)  # not every step goes forward
        if getattr(config.agent, setting) < needed and name not in explicit:
            changes[name] = needed
            notes.append(f"--{name}={needed}: {config.env.id} needs a memory of {memory[1]} steps")
    decays = {"ppo.decay_clip", "ppo.decay_updates"} & explicit  # a preset may have the one, the user the other
    if decays and config.ppo.decay_clip and not config.ppo.decay_updates:
        notes.append(
            "--ppo.decay_clip=true changes nothing: the learning rate does not fall; give --ppo.decay_updates=N"
        )
    prefix = families.of(config.env.id).prefix
    for name, readers in families.READERS.items():
        if name in explicit and prefix not in (*readers, env_ids.REMOTE):  # workers' own may read any setting
            notes.append(f"--{name} changes nothing: it is for {', '.join(readers)}, not for --env={config.env.id}")
    if config.replay.final_updates and not config.run.max_env_steps and "replay.final_updates" not in explicit:
        changes["replay.final_updates"] = 0
        notes.append("--replay.final_updates is off: they follow the last of --max_env_steps, which has no limit")
    if config.env.id == env_ids.DMLAB30:
        notes += _levels_left_out(config)
    implied = configs.override(config, changes)
    return implied, [*notes, *implied.agent.notes(implied)]


def _levels_left_out(config: configs.Config) -> Iterator[str]:
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


def check(*variants: configs.Config) -> None:
    """Refuses impossible combinations of settings.

    Args:
      *variants: the configuration; before the device is known, one for each kind of it: then only what
        none of them can do is refused.

    Raises:
      ConfigError: with both names, both values and a way out.
    """
    problems = [next(_problems(config), None) for config in variants]
    if problems[0] and all(problems):
        raise errors.ConfigError(problems[0])


def _problems(config: configs.Config) -> Iterator[str]:
    yield from _environment_problems(config)
    facts = _facts(config)
    for rule in _RULES:
        if rule.applies(config, facts):
            yield rule.problem.format(**vars(config), **facts)


def _environment_problems(config: configs.Config) -> Iterator[str]:
    taken = families.of(config.env.id).takes
    for name in ("level_cache", "level_seeds"):
        if (value := getattr(config.env, name)) and name not in taken:
            form = families.taking(name)[0].form
            yield f"--dmlab.{name}={value} is for environments {form}, not --env={config.env.id}; leave it out"
    for name in ("kwargs", "wrappers", "max_episode_steps"):
        if (value := getattr(config.env, name)) and name not in taken:
            yield (
                f"--env.{name}={value} is for environments {families.TAKERS}, but this is "
                f"--env={config.env.id}; leave it out"
            )
    if config.env.checkpoint_rewards and "checkpoint_rewards" not in taken:
        form = families.taking("checkpoint_rewards")[0].form
        yield f"--env.checkpoint_rewards is for {form}, but this is --env={config.env.id}; leave it out"


def is_of_this_machine(listen: str) -> bool:
    """Returns whether only processes of this machine reach an address: a unix socket, or a loopback address."""
    if listen.startswith("unix:"):
        return True
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _facts(config: configs.Config) -> dict[str, Any]:
    """Returns the rules' values besides settings, by name."""
    evaluates = config.evaluation.every_updates > 0 and config.env.id != env_ids.REMOTE
    num_sharing, window = config.replay.num_sharing or config.worker.num_envs, config.agent.window_steps(config)
    return {
        "evaluator": ", and the process that evaluates" if evaluates else "",
        "fewest_workers": max(1, config.worker.num + config.worker.num_remote) + evaluates,
        "listens_on": config.transport.listen or "a unix socket",
        "num_sharing": num_sharing,
        "share": config.replay.capacity // max(1, num_sharing),
        "window": window,
        "fewest_steps": window * num_sharing,
    }


class _Rule(NamedTuple):
    """An impossible combination: a test of a configuration, and a message with a way out.

    In the message {SECTION.KEY} is a setting; other names are in `_facts`.
    """

    applies: Callable[[configs.Config, Mapping[str, Any]], object]
    problem: str


_RULES = (
    _Rule(
        lambda config, _: config.env.id == env_ids.REMOTE and config.worker.num > 0,
        "--env=remote has its environments in the workers that join, but --workers={worker.num}; leave it out",
    ),
    _Rule(
        lambda config, _: not re.fullmatch(r"(unix:.*|(.*:)?\d+)?", config.transport.listen, re.DOTALL),
        "--listen={transport.listen}: expected HOST:PORT (port 0: any free one) or unix:PATH",
    ),
    _Rule(
        lambda config, facts: config.transport.max_workers < facts["fewest_workers"],
        "--transport.max_workers={transport.max_workers} has no room for worker.num={worker.num} and "
        "worker.num_remote={worker.num_remote} workers{evaluator}; give "
        "--transport.max_workers={fewest_workers} or more",
    ),
    _Rule(
        lambda config, _: 0 < config.batcher.max_batch < config.worker.envs_per_group,
        "--batcher.max_batch={batcher.max_batch} is less than one message of "
        "worker.envs_per_group={worker.envs_per_group}; give --batcher.max_batch={worker.envs_per_group} or more",
    ),
    _Rule(
        lambda config, _: (
            config.transport.listen
            and not is_of_this_machine(config.transport.listen)
            and not (config.transport.token_file or config.transport.insecure)
        ),
        "--listen={transport.listen} can be reached from other machines, and without a token whoever reaches it may "
        "join; give --token_file=FILE (`openssl rand -hex 32 > FILE` makes a token), or say --insecure",
    ),
    _Rule(
        lambda config, _: config.metrics.port >= 0 and not config.metrics.host,
        "--metrics_host is empty; give 127.0.0.1 (this machine), or 0.0.0.0 for all addresses of this machine",
    ),
    _Rule(
        lambda config, _: config.tls.cert_file and not config.tls.key_file,
        "--tls.cert_file needs its partner; give --tls.key_file=FILE too",
    ),
    _Rule(
        lambda config, _: config.tls.key_file and not config.tls.cert_file,
        "--tls.key_file needs its partner; give --tls.cert_file=FILE too",
    ),
    _Rule(
        lambda config, _: (
            config.tls.cert_file and (not config.transport.listen or config.transport.listen.startswith("unix:"))
        ),
        "--tls.cert_file={tls.cert_file} is for HOST:PORT, but the learner listens on {listens_on}; "
        "give --listen=HOST:PORT",
    ),
    _Rule(
        lambda config, _: config.run.deterministic and config.worker.num == 0,
        "--deterministic needs local workers: workers that join from elsewhere (--workers=0, --env=remote) "
        "come when they like; give --workers=1, or leave --deterministic out",
    ),
    _Rule(
        lambda config, _: config.run.deterministic and config.worker.num_remote,
        "--deterministic needs local workers alone, but --worker.num_remote={worker.num_remote} announces "
        "others, which come when they like; give --worker.num_remote=0, or leave --deterministic out",
    ),
    _Rule(
        lambda config, _: config.run.deterministic and 0 < config.batcher.max_batch < config.worker.num_envs,
        "--deterministic acts for all {worker.num_envs} environments together, but "
        "--batcher.max_batch={batcher.max_batch}; give --batcher.max_batch={worker.num_envs}",
    ),
    _Rule(
        lambda config, _: config.run.deterministic and config.checkpoint.replay == "off" and config.agent.SAMPLES,
        "--deterministic always saves the replay, but --checkpoint.replay=off; leave one of them out",
    ),
    _Rule(
        lambda config, _: 0 < config.replay.num_slots < config.worker.num_envs,
        "--replay.num_slots={replay.num_slots} is less than the {worker.num_envs} environments of "
        "worker.num={worker.num} x worker.num_groups={worker.num_groups} x "
        "worker.envs_per_group={worker.envs_per_group}; give --replay.num_slots={worker.num_envs}",
    ),
    _Rule(
        lambda config, _: (
            config.agent.SAMPLES and config.training.acting_devices and config.replay.placement == "host"
        ),
        "--training.acting_devices={training.acting_devices} keeps the replay on these devices, but "
        "--replay.placement=host; leave one of them out",
    ),
    _Rule(
        lambda config, _: config.agent.SAMPLES and config.replay.final_updates and not config.run.max_env_steps,
        "--replay.final_updates={replay.final_updates} follow the last of --max_env_steps, which has no limit; "
        "give --max_env_steps=N, or --replay.final_updates=0",
    ),
    _Rule(
        lambda config, _: config.agent.SAMPLES and config.replay.min_steps > config.replay.capacity,
        "--replay.min_steps={replay.min_steps} is never reached: replay.capacity={replay.capacity} steps are kept; "
        "lower it",
    ),
    _Rule(
        lambda config, _: config.agent.SAMPLES and 0 < config.replay.num_slots < config.replay.num_envs,
        "--replay.num_envs={replay.num_envs} is more than there are rings: replay.num_slots={replay.num_slots}; "
        "lower it, or give more",
    ),
    _Rule(
        lambda config, facts: config.agent.SAMPLES and config.replay.capacity < facts["fewest_steps"],
        "--replay.capacity={replay.capacity} leaves {share} steps to each of {num_sharing} environments; "
        "a window of the agent takes {window}; give at least {fewest_steps}",
    ),
    _Rule(
        lambda config, _: math.isfinite(config.run.stop_at_return) and config.evaluation.every_updates == 0,
        "--stop_at_return={run.stop_at_return:g} needs evaluations, but evaluation.every_updates=0 turns them off; "
        "give --evaluation.every_updates=N",
    ),
)


def check_environment(config: configs.Config, *, num_players: int, is_continuous: bool) -> None:
    """Refuses environments beyond the agent's abilities.

    Raises:
      ConfigError: with the agents that can.
    """

    def has_players(agent: options.AgentSection) -> bool:
        return num_players <= agent.MAX_PLAYERS

    def has_actions(agent: options.AgentSection) -> bool:
        return agent.PLAYS_CONTINUOUS if is_continuous else agent.PLAYS_DISCRETE

    actions = "continuous actions" if is_continuous else "discrete actions"
    for what, can_play in ((f"{num_players} players", has_players), (actions, has_actions)):
        if not can_play(config.agent):
            able = [name for name in configs.agent_names() if can_play(getattr(config, name))]
            raise errors.ConfigError(
                f"agent {config.run.agent} plays no environments with {what}, as --env={config.env.id} has; "
                + (f"give --agent={'|'.join(able)}" if able else "no agent does")
            )
