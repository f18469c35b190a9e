"""Runs one learner host among several: it meets the others before JAX starts, and ends with them.

start of `seedzero train`, host I: cluster.hub or .member --> all have met --> jax.distributed --> learner.entry
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import math
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import seedzero
from seedzero.config import configs, machines, sections
from seedzero.core import errors, forks, json_object, types
from seedzero.device import collectives, compilation_cache
from seedzero.learner.cluster import hub, link, member, messages
from seedzero.learner.loop import device_loop, facts, rosters
from seedzero.monitoring.metrics import counts
from seedzero.storage.bucket import bucket, lease, remote
from seedzero.storage.checkpoints import manifest, run_dirs, saved_files
from seedzero.transport import security

_OF_A_HOST = {
    *("cluster.index", "cluster.worker_address", "cluster.interface", "transport.listen"),
    *("worker.threads", "env.level_cache", "metrics.port", "metrics.host"),
}
_FILES = {"transport.token_file", "tls.cert_file", "tls.key_file", "cluster.ca_file"}
"""Settings that may differ between hosts."""
NUM_HOSTS = "num_hosts"
"""In a checkpoint's counters: the hosts of the run that made it; 1 if missing."""
_SHUTDOWN_SECONDS = 10
"""How long a process waits at its end for the other hosts, if it has heard that they end, too."""
_HOST = 11
"""Second number of the seeds of hosts."""
_SHOWN = 32
"""The longest value of a spec that hosts tell each other; of a longer one they tell the beginning and a digest."""


@dataclasses.dataclass(frozen=True)
class Together:
    """This host's place among the others."""

    link: link.Link
    step: int  # update of the checkpoint that all resume from; -1 in a new run
    has_part: bool = True  # false: that checkpoint was made without this host
    parts: tuple[int, ...] = ()  # the hosts that resume from their own parts of it
    resolved: str = ""  # digest of the settings, with the machine's values
    processors: tuple[str, ...] = ()  # names of the hosts' CPUs
    num_steps: tuple[int, ...] = ()  # training steps of each host at that checkpoint
    num_gone: int = 0  # training steps of hosts that have left the run
    max_env_steps: int = 0  # of all hosts

    @property
    def index(self) -> int:
        """The host's number."""
        return self.link.hello.index


@dataclasses.dataclass(frozen=True)
class LinkedPeers:
    """The other hosts, for a host's checkpoints, which count once every host has its part."""

    link: link.Link

    def settle(self, step: int, problem: str) -> str:
        """Reports that this host has its part, or what went wrong; returns which hosts lack theirs, or ""."""
        try:
            found = self.link.gather(f"checkpoint {step}", problem)
        except errors.TrainingFailure as error:
            return f"not every host is known to have its part of checkpoint {step} ({error})"
        lacking = [f"host {index} ({text})" for index, text in sorted(found.items()) if text]
        self.link.missing = f"checkpoint {step} lacks the part of {', '.join(lacking)}" if lacking else ""
        return self.link.missing


def own_seed(config: configs.Config) -> int:
    """Returns the seed of a host's acting, reanalysing and environments, below 2^31; host 0's is the run's."""
    seed, index = config.run.seed, config.cluster.index
    if index <= 0:
        return seed
    return int(np.random.SeedSequence([seed, _HOST, index]).generate_state(1)[0]) >> 1


def of_host(config: configs.Config) -> configs.Config:
    """Returns the settings of a host's own work; only host 0 evaluates."""
    if config.cluster.index <= 0:
        return config
    return configs.override(
        config,
        {
            "evaluation.every_updates": 0,
            "evaluation.video_every": 0,
            "run.stop_at_return": math.inf,
            "metrics.wandb": "",
            "metrics.port": -1,
        },
    )


def budgeted(config: configs.Config, num_steps: Sequence[int] = (), num_gone: int = 0) -> configs.Config:
    """Returns the settings with this host's share of the steps; those of a queue are added up (`DecisionTally`).

    num_steps: the steps of each host before. A host that has more than an equal share leaves less to the others.
    num_gone: the steps of hosts that have left the run.
    """
    num, most = config.cluster.num_hosts, config.run.max_env_steps - num_gone
    if not config.run.max_env_steps or (num == 1 and not num_gone):
        return config
    before = dict(enumerate(num_steps or [0] * num))
    share, sharing = -(-most // num), [*before]
    slack = max(0, config.replay.num_slots)  # a host that stops at its share has up to these steps more
    while over := {host for host in sharing if before[host] > share + slack}:
        most -= sum(before[host] for host in over)
        sharing = [host for host in sharing if host not in over]
        share = -(-max(0, most) // max(1, len(sharing)))
    own = max(1, share, before[max(0, config.cluster.index)])
    return configs.override(config, {"run.max_env_steps": own if config.agent.SAMPLES or num == 1 else 0})


def before_alone(checkpoints: pathlib.Path) -> tuple[int, int]:
    """Returns the training steps of a host that is alone now, and of the hosts that it had in its run before."""
    newest = max(saved_files.manifests(checkpoints), key=lambda found: found.step, default=None)
    if newest is None or not (others := _steps_of_others(newest)):
        return 0, 0
    return counts.Counts(**newest.counters["ledger"]).env_steps, sum(others.values())


def _steps_of_others(found: manifest.Manifest) -> dict[str, int]:
    others = found.counters.get(counts.OTHER_HOSTS, {})
    return {name: counts.Counts(**each).env_steps for name, each in others.items()}


@contextlib.contextmanager
def meeting(
    config: configs.Config, place: pathlib.Path | bucket.Url, say: Callable[[str], None]
) -> Iterator[Together]:
    """Makes this process a host of the run, and a process of JAX's cluster, while entered.

    config: without the machine's values. place: this host's run directory, or its place in a bucket.

    Raises:
      UsageError: the hosts do not fit each other.
      BucketError: the bucket cannot be read.
      TrainingFailure: not all hosts came in time.
    """
    import jax

    cluster = config.cluster
    found = in_bucket(place, config.bucket) if isinstance(place, bucket.Url) else on_disk(place, say)
    if cluster.index == 0:
        for one in found or ():
            saved_files.check_has_state(place, one)
    steps = None if found is None else {one.step: one.state_sha256 for one in found}
    hello = messages.HostHello(
        cluster.index,
        cluster.num_hosts,
        digest(config),
        program=_program(),
        steps=steps,
        reached_at=messages.of_interface(cluster.interface) if cluster.interface else "",
        xla_flags=" ".join(sorted(os.environ.get("XLA_FLAGS", "").split()))[: messages.MAX_TEXT],
    )
    token_file, token = config.transport.token_file, security.take_token(sections.TOKEN)
    linked: link.Link
    if cluster.index == 0:
        most = 0 if config.agent.SAMPLES else config.run.max_env_steps
        secured = security.for_server(token_file, config.tls)
        linked = hub.Hub(
            hello,
            cluster.coordinator,
            config.transport,
            secured=dataclasses.replace(secured, token=token or secured.token),
            silence_seconds=cluster.silence_seconds,
            max_env_steps=most,
            made={
                one.step: hub.Made(int(one.counters.get(NUM_HOSTS, 1)), one.state_sha256, _steps_of_others(one))
                for one in found or ()
            },
        )
        say(f"host 0 of {cluster.num_hosts} waits for the others at {linked.address}")
    else:
        access = security.Access(token_file, cluster.ca_file)
        linked = member.HostMember(
            hello,
            cluster.coordinator,
            config.transport,
            access=access,
            token=token,
            silence_seconds=cluster.silence_seconds,
        )
    linked.lock_step = config.run.deterministic
    try:
        begin = linked.meet(cluster.join_seconds)
        for text in linked.warnings:
            say(text)
        is_local = begin.devices.startswith(("127.", "localhost:", "[::1]:"))
        try:
            jax.distributed.initialize(
                begin.devices,
                cluster.num_hosts,
                cluster.index,
                initialization_timeout=round(cluster.join_seconds),
                shutdown_timeout_seconds=_SHUTDOWN_SECONDS,
                coordinator_bind_address=begin.devices if is_local else None,
            )
        except RuntimeError as error:
            raise errors.TrainingFailure(
                f"host {cluster.index} cannot join JAX's cluster at {begin.devices}: {error}; a process that has used "
                "JAX before cannot, and a firewall may be in the way"
            ) from error
        collectives.use_gloo(linked.hello.reached_at)
        compilation_cache.write_on_every_host()
        with _watched(linked, cluster.silence_seconds):
            names = linked.gather("processor", machines.processor())
            processors = tuple(name for _, name in sorted(names.items()))
            has_part = cluster.index < begin.num_hosts
            own = [counts.Counts(**one.counters["ledger"]).env_steps for one in found or () if one.step == begin.step]
            said = linked.gather("steps", str(own[0] if own and has_part else 0))
            num_steps = tuple(int(number) for _, number in sorted(said.items()))
            most = config.run.max_env_steps
            yield Together(linked, begin.step, has_part, begin.parts, "", processors, num_steps, begin.num_gone, most)
            if linked.leave():
                jax.distributed.shutdown()
    finally:
        linked.stop()


def check_environments(linked: link.Link, spec: types.EnvSpec) -> None:
    """Waits until all hosts know their environments. Raises UsageError on every host if these differ."""
    import jax

    names = [field.name for field in dataclasses.fields(spec)]
    texts = [str(getattr(spec, name)).removesuffix(".0") for name in names]  # a saved spec has 0.0 for a bound of 0
    told = linked.gather("environments", json.dumps([_short(text) for text in texts]))
    first, *others = (json.loads(text) for _, text in sorted(told.items()))
    for index, other in enumerate(others, 1):
        # a worker that told a host its spec need not declare spaces
        pairs = [pair for pair in zip(names, other, first, strict=True) if pair[0] != "spaces" or all(pair)]
        if different := [f"{name} is {there}, and {here} on host 0" for name, there, here in pairs if there != here]:
            if linked.leave():  # else the first process to end would end the others, before they name this
                jax.distributed.shutdown()
            raise errors.UsageError(
                f"host {index} has other environments than host 0 ({'; '.join(different)}); give all hosts the same "
                "environments, with the same versions of their packages"
            )


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 12]}...{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def digest(config: configs.Config) -> str:
    """Returns a digest of the settings that all hosts share."""
    shared = {name: value for name, value in configs.flatten(config).items() if name not in _OF_A_HOST | _FILES}
    return hashlib.sha256(json_object.encode(dict(sorted(shared.items()))).encode()).hexdigest()


@contextlib.contextmanager
def _watched(found: link.Link, seconds: float) -> Iterator[None]:
    """Starts a process, while entered, that ends this one if it hangs for too long."""
    command = [sys.executable, "-m", "seedzero.learner.cluster.watchdog", str(os.getpid()), str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdin is not None
        stdin = process.stdin
        forks.keep(stdin)

        def tick() -> None:
            # that process has gone, so nothing guards this host against a standstill
            with contextlib.suppress(OSError):
                os.write(stdin.fileno(), b".")

        found.tick = tick
        try:
            yield
        finally:
            found.tick = lambda: None
            stdin.close()


def _program() -> str:
    import jax

    parts = [f"{name} {importlib.metadata.version(name)}" for name in ("jax", "jaxlib")]
    parts.append(f"JAX_ENABLE_X64={jax.config.read('jax_enable_x64'):d}")
    return f"seedzero {seedzero.__version__}, {', '.join(parts)}"


def on_disk(run_dir: pathlib.Path, say: Callable[[str], None]) -> list[manifest.Manifest] | None:
    """Returns the checkpoints of a host's directory, or None if it is new. say: reports damaged ones, left out."""
    if not (run_dir / run_dirs.CONFIG_FILE).exists():
        return None
    checkpoints = run_dir / "checkpoints"
    found = list(saved_files.manifests(checkpoints))
    whole, skipped = saved_files.newest_verified(checkpoints, "state")
    if whole is None:  # the resume names the damage; with none left, the run would begin again
        return found
    for reason in skipped.values():
        say(reason)
    return [one for one in found if one.step not in skipped]


def in_bucket(url: bucket.Url, settings: sections.BucketConfig) -> list[manifest.Manifest] | None:
    """Returns the same for a host's place in a bucket, whatever its local copy has. Raises BucketError."""
    store = bucket.open_store(url, settings.lease_seconds / 3)
    if store.read(lease.NAME).content is None:
        return None
    found = remote.read_checkpoints(store, store.list(proof=lease.NAME)).steps()
    return [known.manifest for known in found.values()]


def counters(loop: device_loop.DeviceLoop | None, roster: rosters.Roster, address: str) -> dict[str, Any]:
    """Returns a host's own counters for the others, or {} if it has no loop. address: the one its workers use."""
    if loop is None:
        return {}
    steps, sizes = facts.own_counts(loop.dispatcher), roster.sizes()
    room = {"workers": len(sizes), "environments": sum(sizes), "free": roster.num_free(), "address": address}
    return {"steps": dataclasses.asdict(steps), **room}


def emptiest(details: Mapping[int, Mapping[str, Any]]) -> str:
    """Returns the address of the other host with the most room for environments, or "" if none has any."""
    free = {str(found.get("address", "")): int(found.get("free", 0)) for found in details.values()}
    address = max(free, key=lambda one: free[one], default="")
    return address if free.get(address) else ""


def lines(details: Mapping[int, Mapping[str, Any]], missing: str = "") -> list[str]:
    """Returns a message about each of the other hosts, and one about the missing parts of a checkpoint."""
    return [
        *(
            f"host {index}: {found['steps']['stored']:,} steps, {found['workers']} workers, {found['environments']} "
            "environments"
            for index, found in sorted(details.items())
            if "steps" in found
        ),
        *filter(None, [missing]),
    ]
