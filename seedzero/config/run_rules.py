"""Rules about a run: its addresses, workers, hosts, devices, replay and films."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable

from seedzero.config import configs, rules, sections
from seedzero.core import env_ids


def is_of_this_machine(listen: str) -> bool:
    """Returns whether only processes of this machine can reach an address: a unix socket, or a loopback address."""
    if listen.startswith("unix:"):
        return True
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _lets_in_anyone(c: rules.Situation) -> bool:
    """Returns whether anyone on another machine who reaches the address may join."""
    return bool(c.this and not is_of_this_machine(c.this) and not (c.transport.token_file or c.transport.insecure))


def _lonely(c: rules.Situation) -> str:
    """Returns the first setting of several hosts that the user gave without their number, which may be 1."""
    given = (name for name in sections.OF_A_PROCESS if name in c.given)
    return "" if c.cluster.num_hosts > 1 or "cluster.num_hosts" in c.given else next(given, "")


def _several(about: str, applies: Callable[[rules.Situation], object], text: str) -> rules.SettingsRule:
    return rules.error(
        f"cluster.num_hosts {about}", lambda c: c.cluster.num_hosts > 1 and applies(c), f"{{it}}: {text}"
    )


def _fewest_workers(c: rules.Situation) -> object:
    evaluates = c.evaluation.every_updates > 0 and c.env.id != env_ids.REMOTE
    fewest = max(1, c.worker.num + c.worker.num_remote) + evaluates
    return c.this < fewest and {
        "fewest": fewest,
        "others": ", and the process that evaluates" if evaluates else "",
    }


def _has_no_port(c: rules.Situation) -> object:
    is_local = not c.transport.listen or c.transport.listen.startswith("unix:")
    meets = c.cluster.num_hosts > 1 and c.cluster.coordinator
    return c.this and is_local and not meets and {"place": c.transport.listen or "a unix socket"}


def _waits_for_others(c: rules.Situation) -> object:
    way = "" if c.env.id == env_ids.REMOTE else "give --workers=1, or "
    return c.this and c.worker.num == 0 and {"way": way}


def _lacks_slots(c: rules.Situation) -> object:
    remedy = f"give --replay.num_slots={c.worker.num_envs}"
    if c.is_begun:
        remedy = "this run keeps its slots: give it fewer environments, or another --run_dir to start a new run"
    return 0 < c.this < c.worker.num_envs and {"remedy": remedy}


def _has_no_window(c: rules.Situation) -> object:
    num_sharing, window = c.replay.num_sharing or c.worker.num_envs, c.agent.window_steps(c.config)
    burn_in = c.muzero.burn_in if c.run.agent == "muzero" and c.muzero.num_before else 0
    return c.this < window * num_sharing and {
        "steps": c.this // num_sharing,
        "number": num_sharing,
        "window": f"{window}{f', muzero.burn_in={burn_in} among them' if burn_in else ''}",
        "needed": window * num_sharing,
    }


def may_join(config: configs.Config) -> bool:
    """Returns whether workers of other machines may bring environments."""
    listen = config.transport.listen
    is_open = bool(listen) and not listen.startswith("unix:")
    return is_open or config.worker.num == 0 or config.worker.num_remote > 0


def _has_one_place(c: rules.Situation) -> bool:
    """Returns whether all devices learn together; each place of several players has as many as divide its batches."""
    return bool(c.league.most_players == 1)


def _leaves_none(c: rules.Situation) -> object:
    fewer = c.training.num_devices - 1
    is_wrong = _has_one_place(c) and c.this > fewer
    return is_wrong and {"fitting": f"{fewer} or less, or 0" if fewer else "0"}


def _is_unshared(c: rules.Situation) -> object:
    """Returns the first number that the devices of a group cannot share evenly, and what would fit."""
    for name, number, multiple, groups in _unshared(c.config, c.training.acting_devices) if _has_one_place(c) else ():
        remedy = f"try --{name}={-(-number // multiple) * multiple}"
        if c.is_begun:  # it keeps its slots, so only its devices can change
            remedy = f"this run can continue with {_fitting(c.config)}"
        return {"share": f"--{name}={number}", "groups": groups, "remedy": remedy}
    return None


def _fitting(config: configs.Config) -> str:
    """Returns the settings of devices that share the slots and batches of a run: one device always does."""
    num_devices = config.training.num_devices
    if numbers := [str(other) for other in range(num_devices) if not _unshared(config, other)]:
        return f"--training.acting_devices={' or '.join(numbers)}"
    fewer = (configs.override(config, {"training.num_devices": number}) for number in range(num_devices - 1, 0, -1))
    found = next(other for other in fewer if not _unshared(other, 0))
    return f"--training.num_devices={found.training.num_devices} --training.acting_devices=0"


def _unshared(config: configs.Config, num_acting: int) -> list[tuple[str, int, int, str]]:
    """Returns the numbers that groups of devices cannot divide: name, number, the required divisor, the groups."""
    num_devices = config.training.num_devices
    acting, all_groups, num_shares = f"training.num_devices={num_devices}", "", num_devices
    if num_acting:
        acting, all_groups = f"training.acting_devices={num_acting}", f" and the other {num_devices - num_acting}"
        num_shares = math.lcm(num_acting, num_devices - num_acting)
    shares = [(name, number, num_shares, acting + all_groups) for name, number in config.agent.shared(config).items()]
    shares.append(("replay.num_slots", config.replay.num_slots, num_acting or num_devices, acting))
    return [share for share in shares if share[1] % share[2]]


def _unfilled(c: rules.Situation) -> object:
    """Returns the devices that hold rings, and those of them that rings in order fill, if these are fewer."""
    num_shards = c.training.acting_devices or c.training.num_devices
    num_filled = -(-c.worker.num_envs // (c.replay.num_slots // num_shards))
    return c.this and _has_one_place(c) and num_filled < num_shards and {"shards": num_shards, "filled": num_filled}


def _idle_devices(c: rules.Situation) -> object:
    num_shards = c.training.acting_devices or c.training.num_devices
    return c.worker.num_envs < num_shards and not may_join(c.config) and _has_one_place(c) and {"shards": num_shards}


_DEVICES = rules.Needs.DEVICES

RULES = (
    rules.note("replay.final_updates", "0", lambda c: not c.run.max_env_steps,
        "--replay.final_updates is off: they follow the last of --max_env_steps, which has no limit"),
    rules.warning(" ".join(sections.OF_A_PROCESS), _lonely,
        "--{why} changes nothing: this host trains alone; give --cluster.num_hosts=N, too"),
    rules.error("cluster.index", lambda c: c.cluster.num_hosts == 1 and c.this > 0,
        "{it}: --cluster.num_hosts=1 has only host 0; give the number of all hosts"),
    rules.error("cluster.index", lambda c: c.this >= c.cluster.num_hosts and {"last": c.cluster.num_hosts - 1},
        "{it}: --cluster.num_hosts={cluster.num_hosts} has hosts 0 to {last}"),
    rules.error("cluster.index cluster.coordinator",
        lambda c: c.cluster.num_hosts > 1 and c.this >= 0 and not c.cluster.coordinator,
        "{it}: give --cluster.coordinator=HOST:PORT, an address of host 0, on all hosts"),
    rules.error("cluster.coordinator",
        lambda c: c.cluster.num_hosts > 1 and c.this and not re.fullmatch(r".+:\d+", c.this),
        "{it}: expected HOST:PORT, an address of host 0"),
    _several("league.freeze_every league.builder", lambda c: "league" in c.agent.SECTIONS and c.league.on,
        "a league ({league.asked}) has one host; give {league.off}, or --cluster.num_hosts=1"),
    _several("training.acting_devices", lambda c: c.training.acting_devices,
        "all devices of a host act and learn; give --training.acting_devices=0, or --cluster.num_hosts=1"),
    _several("replay.placement", lambda c: c.replay.placement == "host" and c.agent.SAMPLES,
        "each host's replay is on its devices; give --replay.placement=device, or --cluster.num_hosts=1"),
    _several("checkpoint.keep", lambda c: c.checkpoint.keep == 1,
        "--checkpoint.keep=1 deletes a host's last checkpoint before the other hosts have the next one; give "
        "--checkpoint.keep=2 or more"),
    rules.error("worker.num", lambda c: c.env.id == env_ids.REMOTE and c.this > 0,
        "--env=remote has its environments in the workers that join, but {it}; leave it out"),
    rules.error("transport.listen", lambda c: not re.fullmatch(r"(unix:.*|(.*:)?\d+)?", c.this, re.DOTALL),
        "{it}: expected HOST:PORT (port 0: any free one) or unix:PATH"),
    rules.error("transport.max_workers", _fewest_workers,
        "{it} has no room for worker.num={worker.num} and worker.num_remote={worker.num_remote} workers{others}; give "
        "--transport.max_workers={fewest} or more"),
    rules.error("batcher.max_batch", lambda c: 0 < c.this < c.worker.envs_per_group,
        "{it} is less than one message of worker.envs_per_group={worker.envs_per_group}; give "
        "--batcher.max_batch={worker.envs_per_group} or more"),
    rules.error("transport.listen transport.token_file", _lets_in_anyone,
        "{it} can be reached from other machines, and without a token anyone who reaches it may join; give "
        "--token_file=FILE (`openssl rand -hex 32 > FILE` makes a token), or --insecure"),
    rules.error("cluster.coordinator transport.token_file", lambda c: c.cluster.num_hosts > 1 and _lets_in_anyone(c),
        "{it} can be reached from other machines, and without a token whoever reaches it may join; give "
        "--token_file=FILE, with the same content on all hosts, or say --insecure"),
    rules.error("serve.token_file", lambda c: c.this and (not c.transport.listen or c.cluster.num_hosts > 1),
        "{it} is for a learner on one host that listens on an address; give --listen=HOST:PORT, without "
        "--cluster.num_hosts, or leave it out"),
    rules.error("metrics.host", lambda c: c.metrics.port >= 0 and not c.this,
        "--metrics_host is empty; give 127.0.0.1 (this machine), or 0.0.0.0 for all addresses of this machine"),
    rules.error("tls.cert_file", lambda c: c.this and not c.tls.key_file,
        "--tls.cert_file needs its partner; give --tls.key_file=FILE too"),
    rules.error("tls.key_file", lambda c: c.this and not c.tls.cert_file,
        "--tls.key_file needs its partner; give --tls.cert_file=FILE too"),
    rules.error("tls.cert_file", _has_no_port,
        "{it} is for HOST:PORT, but the learner listens on {place}; give --listen=HOST:PORT"),
    rules.error("run.deterministic worker.num", _waits_for_others,
        "--deterministic needs local workers: workers that join from elsewhere (--workers=0, --env=remote) come when "
        "they like; {way}leave --deterministic out"),
    rules.error("run.deterministic worker.num_remote", lambda c: c.this and c.worker.num_remote,
        "--deterministic needs local workers only, but --worker.num_remote={worker.num_remote} announces others, "
        "which come when they like; give --worker.num_remote=0, or leave --deterministic out"),
    rules.error("run.deterministic batcher.max_batch",
        lambda c: c.this and 0 < c.batcher.max_batch < c.worker.num_envs,
        "--deterministic acts for all {worker.num_envs} environments together, but "
        "--batcher.max_batch={batcher.max_batch}; give --batcher.max_batch={worker.num_envs}"),
    rules.error("run.deterministic checkpoint.replay",
        lambda c: c.this and c.checkpoint.replay == "off" and c.agent.SAMPLES,
        "--deterministic always saves the replay, but --checkpoint.replay=off; leave one of them out"),
    rules.warning("checkpoint.every_updates", lambda c: c.name in c.given and not c.run.deterministic,
        "{it} has an effect only with --deterministic; give --checkpoint.every_seconds=N"),
    rules.warning("checkpoint.every_seconds", lambda c: c.name in c.given and c.run.deterministic,
        "{it} has no effect with --deterministic; give --checkpoint.every_updates=N"),
    rules.error("replay.num_slots", _lacks_slots,
        "{it} is less than the {worker.num_envs} environments of worker.num={worker.num} x "
        "worker.num_groups={worker.num_groups} x worker.envs_per_group={worker.envs_per_group}; {remedy}"),
    rules.error("replay.placement training.acting_devices", lambda c: c.training.acting_devices and c.this == "host",
        "--training.acting_devices={training.acting_devices} keeps the replay on these devices, but {it}; leave one "
        "of them out"),
    rules.error("replay.final_updates", lambda c: c.this and not c.run.max_env_steps,
        "{it} follow the last of --max_env_steps, which has no limit; give --max_env_steps=N, or "
        "--replay.final_updates=0"),
    rules.error("replay.min_steps", lambda c: c.this > c.replay.capacity,
        "{it} is never reached: replay.capacity={replay.capacity} steps are kept; lower it"),
    rules.error("replay.num_envs", lambda c: 0 < c.replay.num_slots < c.this,
        "{it} is more than there are rings: replay.num_slots={replay.num_slots}; lower it, or give more"),
    rules.error("replay.capacity", _has_no_window,
        "{it} leaves {steps} steps to each of {number} environments; a window of the agent takes {window}; give at "
        "least {needed}"),
    rules.error("run.stop_at_return", lambda c: math.isfinite(c.this) and c.evaluation.every_updates == 0,
        "{it} needs evaluations, but evaluation.every_updates=0 turns them off; give --evaluation.every_updates=N"),
    rules.error("evaluation.video_every", lambda c: c.this and c.evaluation.every_updates == 0,
        "{it} needs evaluations, but evaluation.every_updates=0 turns them off; leave one of them out"),
    rules.error("evaluation.video_every metrics.tensorboard", lambda c: c.this and not c.metrics.tensorboard,
        "{it} writes into TensorBoard's files, which --metrics.tensorboard=false turns off; leave one out"),
    rules.error("evaluation.video_every", lambda c: c.this and c.env.id == env_ids.REMOTE,
        "{it}: workers of --env=remote send no pictures; leave it out"),
    rules.error("training.acting_devices", _leaves_none,
        "{it} leaves none of training.num_devices={training.num_devices} to learn; give {fitting}: all act and learn",
        _DEVICES),
    rules.error("training.num_devices training.acting_devices", _is_unshared,
        "{share} can't be shared evenly by {groups}; {remedy}", _DEVICES),
    rules.error("run.deterministic training.num_devices", _unfilled,
        "--deterministic fills rings in order, so {worker.num_envs} environments leave devices without any; give "
        "--worker.envs_per_group for a multiple of {shards} environments, or --training.num_devices={filled}",
        _DEVICES),
    rules.warning("worker.envs_per_group worker.num training.num_devices", _idle_devices,
        "{worker.num_envs} environments leave some of {shards} devices without any, and a new run learns nothing "
        "until each had one; give more --worker.envs_per_group or --workers, or fewer --training.num_devices",
        _DEVICES),
)  # fmt: skip
