"""Handles settings that affect each other: implied values, and impossible combinations."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterator, Mapping, Set

from seedzero.config import (
    cluster_config,
    configs,
    environment_notes,
    families,
    league_rules,
    options,
    seat_rules,
    seats_config,
)
from seedzero.core import env_ids, errors, opponents, types

_OF_OWN_NETWORKS: Mapping[str, options.Value] = {
    "muzero.consistency_weight": 0.0,
    "muzero.value_prefix": False,
    "muzero.predict_ends": False,
    "muzero.memory": "none",
    "muzero.chance_codes": 0,
}
"""What a preset may ask of a network that a user's own network does not have."""
_OF_ENVIRONMENTS: tuple[tuple[str, str, options.Value], ...] = (
    ("stop_at_return", "run.stop_at_return", math.inf),
    ("max_updates", "run.max_updates", 0),
    ("evaluation.pauses_training", "evaluation.pauses_training", False),
)
"""What belongs only to a preset's environment: flag, SECTION.KEY and the value for others."""


def imply(
    config: configs.Config, *, preset_env: str, explicit: Set[str], elsewhere: Mapping[str, options.Value] = {}
) -> tuple[configs.Config, list[str]]:
    """Returns the configuration with what the user's settings imply, and notes about that.

    Args:
      config: a preset's values, replaced by the user's.
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
    changed = environment_notes.changing_returns(config, explicit)
    for flag, name, off in _OF_ENVIRONMENTS:
        is_other = config.env.id != preset_env
        if given[name] != off and name not in explicit and (is_other or (changed and name == "run.stop_at_return")):
            changes[name] = off
            without = "" if is_other else f" without {changed}"
            notes.append(f"--{flag} is off: the preset's {str(given[name]).lower()} is for {preset_env}{without}")
    for name, value in elsewhere.items():
        if given[name] != value and name not in explicit and config.env.id != preset_env:
            changes[name] = value
            notes.append(
                f"--{name}={options.shown(value)}: the preset's {options.shown(given[name])} is for {preset_env}"
            )
    if config.run.agent == "muzero" and config.network.module:
        for name, nothing in _OF_OWN_NETWORKS.items():
            if given[name] != nothing and name not in explicit:
                changes[name] = nothing
                notes.append(f"--{name} is off: --network.module={config.network.module} has no such part")
    found, told = environment_notes.remembered(config, explicit)
    changes |= found
    notes += told
    decays = {"ppo.decay_clip", "optimizer.decay_updates"} & explicit  # a preset may have the one, the user the other
    if decays and config.run.agent == "ppo" and config.ppo.decay_clip and not config.optimizer.decay_updates:
        notes.append(
            "--ppo.decay_clip=true changes nothing: the learning rate does not fall; give --optimizer.decay_updates=N"
        )
    if config.run.agent == "alphazero" and families.of(config.env.id).prefix == "pgx":
        changes["env.game_state"] = True
    unused = explicit & {f"network.{name}" for name in ("num_bins", "support_limit", "value_transform")}
    if config.run.agent == "alphazero" and config.alphazero.win_draw_loss and unused:
        notes.append(f"--{min(unused)} changes nothing: --alphazero.win_draw_loss=true has three values, -1, 0 and 1")
    if config.run.agent == "ppo" and config.ppo.central_value and families.of(config.env.id).prefix == "pettingzoo":
        changes["env.joint_observation"] = True
    if "league" in config.agent.SECTIONS:
        found, told = league_rules.implied(config, explicit)
        changes |= found
        notes += told
    prefix = families.of(config.env.id).prefix
    for name, readers in families.READERS.items():
        if name in explicit and prefix not in (*readers, env_ids.REMOTE):  # workers' own may read any setting
            notes.append(f"--{name} changes nothing: it is for {', '.join(readers)}, not for --env={config.env.id}")
    if config.replay.final_updates and not config.run.max_env_steps and "replay.final_updates" not in explicit:
        changes["replay.final_updates"] = 0
        notes.append("--replay.final_updates is off: they follow the last of --max_env_steps, which has no limit")
    notes += cluster_config.notes(config, explicit)
    if config.env.id == env_ids.DMLAB30:
        notes += environment_notes.levels_left_out(config)
    implied = configs.override(config, changes)
    return implied, [*notes, *implied.agent.notes(implied)]


def check(*variants: configs.Config) -> None:
    """Rejects impossible combinations of settings.

    Args:
      *variants: the configuration; before the device is known, one for each kind of device, and only what is
        impossible for all of them is rejected.

    Raises:
      ConfigError: with both names, both values and what to do.
    """
    problems = [next(_problems(config), None) for config in variants]
    if problems[0] and all(problems):
        raise errors.ConfigError(problems[0])


def _problems(config: configs.Config) -> Iterator[str]:
    """Yields the impossible combinations, each with what to do."""
    yield from _environment_problems(config)
    yield from cluster_config.problems(config)
    yield from _connection_problems(config)
    yield from _deterministic_problems(config)
    yield from _replay_problems(config)
    yield from _search_problems(config)
    yield from league_rules.problems(config)
    yield from seats_config.problems(config)
    yield from config.agent.problems()
    yield from _actor_critic_problems(config)
    yield from _video_problems(config)


def _environment_problems(config: configs.Config) -> Iterator[str]:
    try:
        opponents.parse(config.env.opponents)
    except ValueError as error:
        yield f"--env.opponents={config.env.opponents}: {error}; give --env.opponents={opponents.RANDOM},mcts-100"
        return
    if config.run.agent == "alphazero" and (problem := config.alphazero.misfit(config.env.id)):
        yield problem
    names, evaluation = opponents.parse(config.env.opponents), config.evaluation
    bots, tasks = list(filter(opponents.roshambo_bot, names)), opponents.tasks(names)
    if bots and not config.env.id.startswith(f"spiel:{opponents.REPEATED}("):
        way = f"give --env.opponents={opponents.RANDOM}"
        yield f"--env.opponents={bots[0]} plays repeated rock-paper-scissors, as --preset=roshambo; {way}"
    for name in ("num_envs", "episodes"):
        if evaluation.every_updates and (number := getattr(evaluation, name)) < len(tasks):
            yield (
                f"--evaluation.{name}={number}: an evaluation plays both sides against each of "
                f"--env.opponents={config.env.opponents}; give --evaluation.{name}={len(tasks)} or more"
            )
    taken = families.of(config.env.id).takes
    for name in ("level_cache", "level_seeds"):
        if (value := getattr(config.env, name)) and name not in taken:
            form = families.taking(name)[0].form
            yield f"--dmlab.{name}={value} is for environments {form}, not --env={config.env.id}; leave it out"
    for name in ("kwargs", "wrappers", "max_episode_steps", "game_state", "joint_observation"):
        if (value := getattr(config.env, name)) and name not in taken:
            yield (
                f"--env.{name}={value} is for environments {families.taking_text(name)}, but this is "
                f"--env={config.env.id}; leave it out"
            )
    if config.env.info_keys and "info_keys" not in taken:
        yield (
            f"--metrics.info_keys={config.env.info_keys} is for environments {families.taking_text('info_keys')}, but "
            f"this is --env={config.env.id}; omit it, or have your worker send Step.info"
        )
    if config.env.game_state and config.run.agent != "alphazero":
        yield f"--env.game_state is for --agent=alphazero, but this is --agent={config.run.agent}; leave it out"
    if config.env.joint_observation and not (config.run.agent == "ppo" and config.ppo.central_value):
        yield "--env.joint_observation is for --ppo.central_value=true, which gives it by itself; leave it out"
    if config.env.checkpoint_rewards and "checkpoint_rewards" not in taken:
        form = families.taking("checkpoint_rewards")[0].form
        yield f"--env.checkpoint_rewards is for {form}, but this is --env={config.env.id}; leave it out"


def _connection_problems(config: configs.Config) -> Iterator[str]:
    worker, transport, tls, max_batch = config.worker, config.transport, config.tls, config.batcher.max_batch
    if config.env.id == env_ids.REMOTE and worker.num > 0:
        yield f"--env=remote has its environments in the workers that join, but --workers={worker.num}; leave it out"
    if not re.fullmatch(r"(unix:.*|(.*:)?\d+)?", transport.listen, re.DOTALL):
        yield f"--listen={transport.listen}: expected HOST:PORT (port 0: any free one) or unix:PATH"
    evaluates = config.evaluation.every_updates > 0 and config.env.id != env_ids.REMOTE
    fewest_workers = max(1, worker.num + worker.num_remote) + evaluates
    if transport.max_workers < fewest_workers:
        yield (
            f"--transport.max_workers={transport.max_workers} has no room for worker.num={worker.num} and "
            f"worker.num_remote={worker.num_remote} workers{', and the process that evaluates' if evaluates else ''}; "
            f"give --transport.max_workers={fewest_workers} or more"
        )
    if 0 < max_batch < worker.envs_per_group:
        yield (
            f"--batcher.max_batch={max_batch} is less than one message of "
            f"worker.envs_per_group={worker.envs_per_group}; give --batcher.max_batch={worker.envs_per_group} or more"
        )
    is_open = transport.listen and not is_of_this_machine(transport.listen)
    if is_open and not (transport.token_file or transport.insecure):
        yield (
            f"--listen={transport.listen} can be reached from other machines, and without a token anyone who reaches "
            "it may join; give --token_file=FILE (`openssl rand -hex 32 > FILE` makes a token), or --insecure"
        )
    meets = config.cluster.coordinator if config.cluster.num_hosts > 1 else ""
    if meets and not is_of_this_machine(meets) and not (transport.token_file or transport.insecure):
        yield (
            f"--cluster.coordinator={meets} can be reached from other machines, and without a token whoever "
            "reaches it "
            "may join; give --token_file=FILE, with the same content on all hosts, or say --insecure"
        )
    if config.serve.token_file and (not transport.listen or config.cluster.num_hosts > 1):
        yield (
            f"--serve.token_file={config.serve.token_file} is for a learner on one host that listens on an address; "
            "give --listen=HOST:PORT, without --cluster.num_hosts, or leave it out"
        )
    if config.metrics.port >= 0 and not config.metrics.host:
        yield "--metrics_host is empty; give 127.0.0.1 (this machine), or 0.0.0.0 for all addresses of this machine"
    if bool(tls.cert_file) != bool(tls.key_file):
        given, partner = ("cert", "key") if tls.cert_file else ("key", "cert")
        yield f"--tls.{given}_file needs its partner; give --tls.{partner}_file=FILE too"
    if tls.cert_file and not meets and (not transport.listen or transport.listen.startswith("unix:")):
        yield (
            f"--tls.cert_file={tls.cert_file} is for HOST:PORT, but the learner listens on "
            f"{transport.listen or 'a unix socket'}; give --listen=HOST:PORT"
        )


def _deterministic_problems(config: configs.Config) -> Iterator[str]:
    worker, max_batch = config.worker, config.batcher.max_batch
    if not config.run.deterministic:
        return
    if worker.num == 0:
        yield (
            "--deterministic needs local workers: workers that join from elsewhere (--workers=0, --env=remote) "
            f"come when they like; {'' if config.env.id == env_ids.REMOTE else 'give --workers=1, or '}leave "
            "--deterministic out"
        )
    if worker.num_remote:
        yield (
            f"--deterministic needs local workers alone, but --worker.num_remote={worker.num_remote} announces "
            "others, which come when they like; give --worker.num_remote=0, or leave --deterministic out"
        )
    if 0 < max_batch < worker.num_envs:
        yield (
            f"--deterministic acts for all {worker.num_envs} environments together, but "
            f"--batcher.max_batch={max_batch}; give --batcher.max_batch={worker.num_envs}"
        )
    if config.checkpoint.replay == "off" and config.agent.SAMPLES:
        yield "--deterministic always saves the replay, but --checkpoint.replay=off; leave one of them out"


def _replay_problems(config: configs.Config) -> Iterator[str]:
    worker, replay, max_env_steps = config.worker, config.replay, config.run.max_env_steps
    if 0 < replay.num_slots < worker.num_envs:
        yield (
            f"--replay.num_slots={replay.num_slots} is less than the {worker.num_envs} environments of "
            f"worker.num={worker.num} x worker.num_groups={worker.num_groups} x "
            f"worker.envs_per_group={worker.envs_per_group}; give --replay.num_slots={worker.num_envs}"
        )
    if config.agent.SAMPLES:
        if (acting := config.training.acting_devices) and replay.placement == "host":
            yield (
                f"--training.acting_devices={acting} keeps the replay on these devices, but --replay.placement=host; "
                "leave one of them out"
            )
        if replay.final_updates and not max_env_steps:
            yield (
                f"--replay.final_updates={replay.final_updates} follow the last of --max_env_steps, which has no "
                "limit; give --max_env_steps=N, or --replay.final_updates=0"
            )
        if replay.min_steps > replay.capacity:
            yield (
                f"--replay.min_steps={replay.min_steps} is never reached: replay.capacity={replay.capacity} steps are "
                "kept; lower it"
            )
        if 0 < replay.num_slots < replay.num_envs:
            yield (
                f"--replay.num_envs={replay.num_envs} is more than there are rings: "
                f"replay.num_slots={replay.num_slots}; lower it, or give more"
            )
        num_sharing, window = replay.num_sharing or worker.num_envs, config.agent.window_steps(config)
        if replay.capacity < window * num_sharing:
            burn_in = config.muzero.burn_in if config.run.agent == "muzero" and config.muzero.num_before else 0
            yield (
                f"--replay.capacity={replay.capacity} leaves {replay.capacity // num_sharing} steps to each of "
                f"{num_sharing} environments; a window of the agent takes {window}"
                f"{f', muzero.burn_in={burn_in} among them' if burn_in else ''}; give at least {window * num_sharing}"
            )
    if math.isfinite(config.run.stop_at_return) and config.evaluation.every_updates == 0:
        yield (
            f"--stop_at_return={config.run.stop_at_return:g} needs evaluations, but evaluation.every_updates=0 turns "
            "them off; give --evaluation.every_updates=N"
        )


def _search_problems(config: configs.Config) -> Iterator[str]:
    search, muzero = config.search, config.muzero
    comparing = [
        f"muzero.{name}={options.shown(value)}"
        for name in ("off_policy_correction", "policy_gradient_weight")
        if (value := getattr(muzero, name))
    ]
    is_unknown = search.policy == "puct" and search.temperature == 0.0
    if config.run.agent == "muzero" and comparing and is_unknown:
        yield (
            f"{comparing[0]} needs the probability of each action, but --search.temperature=0 takes the most visited "
            "one after random noise: the search does not know how often; give --search.temperature=1"
        )
    if config.run.agent == "alphazero" and config.alphazero.win_draw_loss and config.reward.discount < 1:
        yield (
            f"--reward.discount={config.reward.discount:g} makes results of distant ends smaller than a win, and "
            "--alphazero.win_draw_loss=true has no such value; give --reward.discount=1, or leave one of them out"
        )


def _actor_critic_problems(config: configs.Config) -> Iterator[str]:
    ppo, agent = config.ppo, config.run.agent
    if config.evaluation.policy == "sample" and agent in ("apex", "r2d2"):
        yield (
            f"--evaluation.policy=sample: agent {agent} learns only values and has no policy to draw actions from; "
            "leave it out"
        )
    if agent == "r2d2" and not config.network.lstm_width:
        yield "--network.lstm_width=0: R2D2 has an LSTM; give --network.lstm_width=64 or more, or --agent=apex"
    if agent == "ppo" and config.network.lstm_width and ppo.num_minibatches > ppo.batch_size:
        yield (
            f"--ppo.num_minibatches is {ppo.num_minibatches}; with an LSTM minibatches are of whole unrolls, and an "
            f"update has {ppo.batch_size} (ppo.batch_size), give --ppo.num_minibatches={ppo.batch_size} or fewer"
        )
    if agent == "ppo" and ppo.bonus and ppo.bonus_place == "before" and config.reward.normalize:
        yield (
            "--ppo.bonus_place=before: --reward.normalize=true divides the bonus by the deviation of the "
            "environment's rewards alone, and where these are rare that makes every bonus the largest reward; give "
            "--reward.normalize=false, or --ppo.bonus_place=after"
        )


def _video_problems(config: configs.Config) -> Iterator[str]:
    if not config.evaluation.video_every:
        return
    asked = f"--evaluation.video_every={config.evaluation.video_every}"
    if config.evaluation.every_updates == 0:
        yield f"{asked} needs evaluations, but evaluation.every_updates=0 turns them off; leave one of them out"
    if not config.metrics.tensorboard:
        yield f"{asked} writes into TensorBoard's files, which --metrics.tensorboard=false turns off; leave one out"
    if config.env.id == env_ids.REMOTE:
        yield f"{asked}: workers of --env=remote send no pictures; leave it out"


def is_of_this_machine(listen: str) -> bool:
    """Returns whether only processes of this machine can reach an address: a unix socket, or a loopback address."""
    if listen.startswith("unix:"):
        return True
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_environment(config: configs.Config, spec: types.EnvSpec, seated_by: str = "") -> None:
    """Rejects environments that the agent, or a league, cannot play.

    seated_by: what makes rows seats; "" if they are none, or that is unknown here.

    Raises:
      ConfigError: with the agents that can play it.
    """
    league_rules.check_environment(config, spec)
    seat_rules.check(config, spec)

    def has_players(agent: options.AgentSection) -> bool:
        return spec.num_players <= agent.MAX_PLAYERS

    def has_seats(agent: options.AgentSection) -> bool:
        return agent.PLAYS_SEATS or not spec.seats

    def has_actions(agent: options.AgentSection) -> bool:
        return agent.PLAYS_CONTINUOUS if spec.is_continuous else agent.PLAYS_DISCRETE

    actions, kind = (
        "continuous actions" if spec.is_continuous else "discrete actions",
        families.of(config.env.id).prefix,
    )
    seats = seated_by or "chance, hidden information, simultaneous moves or several players"
    for what, can_play in ((f"{spec.num_players} players", has_players), (seats, has_seats), (actions, has_actions)):
        if not can_play(config.agent):
            sections = {name: getattr(config, name) for name in configs.agent_names()}
            needed = has_players, has_seats, has_actions
            able = [name for name, agent in sections.items() if all(each(agent) for each in needed)]
            able = [name for name in able if not (only := sections[name].FAMILIES) or kind in only]
            raise errors.ConfigError(
                f"agent {config.run.agent} plays no environments with {what}, as --env={config.env.id} has; "
                + (f"give --agent={'|'.join(able)}" if able else "no agent does")
            )
