"""Runs all hosts of a run as processes on this machine, for `--cluster.num_hosts=N` without `--cluster.index`."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import pathlib
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from seedzero.config import sections
from seedzero.core import errors
from seedzero.learner import callbacks, endings
from seedzero.learner.processes import pool, signals, supervisor
from seedzero.storage.bucket import bucket
from seedzero.storage.checkpoints import run_dirs

LOG = "host.log"
"""The file in its directory's logs that takes the output of a host, except host 0."""


def run(
    flags: Mapping[str, str],
    settings: Mapping[str, str],
    place: pathlib.Path | bucket.Url,
    num_hosts: int,
    caller: callbacks.Caller,
) -> endings.Result:
    """Trains with all hosts until the run is over, restarts them all if one fails, and returns the result.

    flags, settings: those of the run, without those of the hosts. place: the run directory, or its place in a bucket.
    Raises TrainingFailure, or UsageError if a host refuses to start (host 0 has printed why) or there are fewer GPUs
    than hosts.
    """
    gpus = visible_gpus()
    if 0 < len(gpus) < num_hosts:
        raise errors.UsageError(
            f"--cluster.num_hosts={num_hosts}: each host needs its own GPU, and this machine has {len(gpus)} "
            "for them; "
            f"give --cluster.num_hosts={len(gpus)}, or set JAX_PLATFORMS=cpu"
        )
    own = [
        bucket.scratch(bucket.of_host(place, index))
        if isinstance(place, bucket.Url)
        else run_dirs.of_host(place, index)
        for index in range(num_hosts)
    ]
    logs = [path / "logs" / LOG for path in own]
    for log in logs[1:]:
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise errors.UsageError(f"--run_dir={place} cannot be made: {error.strerror}") from None
    shared = "cores and GPUs" if gpus else "cores"
    caller.say(f"{num_hosts} hosts on this machine, with a share of its {shared} each; the others' output: {logs[1]}")

    def write(index: int, line: bytes) -> None:
        if index:
            supervisor.write_log(logs[index], line)
        else:
            sys.stderr.write(line.decode(errors="backslashreplace"))  # a notebook's stream has no buffer of bytes
            sys.stderr.flush()

    together_run = pool.Ensemble(
        functools.partial(commands, {**flags, "run_dir": str(place)}, settings, num_hosts, gpus),
        write=write,
        say=caller.say,
        name="host {}".format,
        environment={sections.TOKEN: secrets.token_hex(32)},
    )
    if caller.handles_signals:
        with signals.StopSignals(together_run.stop, say=caller.say, cleanup=together_run.kill):
            code = together_run.run()
    else:
        code = together_run.run()
    if code == errors.BAD_USAGE:
        raise errors.UsageError(f"a host refused its start, see above, or {', '.join(map(str, logs[1:]))}")
    if code != errors.DONE:
        raise errors.TrainingFailure(f"the hosts ended with a failure; see above, and {', '.join(map(str, logs[1:]))}")
    status = run_dirs.read_status(own[0]) or {}
    ended = endings.read_result(own[0] / "checkpoints", str(place), finished=status.get("finished") or "")
    return dataclasses.replace(ended, num_env_steps=status.get("env_steps", ended.num_env_steps))


def commands(
    flags: Mapping[str, str], settings: Mapping[str, str], num_hosts: int, gpus: Sequence[str] = ()
) -> list[Sequence[str]]:
    """Returns the command of each host, with a free port where they meet and an equal share of the GPUs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{probe.getsockname()[1]}"
    shared = [f"--{name}={value}" for name, value in {**flags, **settings, "cluster.coordinator": coordinator}.items()]
    words = [sys.executable, "-m", "seedzero.cli", "train", "--supervised", *shared]
    share = len(gpus) // num_hosts
    return [
        [
            *(["env", f"CUDA_VISIBLE_DEVICES={','.join(gpus[index * share : (index + 1) * share])}"] if gpus else []),
            *words,
            f"--cluster.index={index}",
        ]
        for index in range(num_hosts)
    ]


def visible_gpus() -> list[str]:
    """Returns the GPUs that JAX will use here, as CUDA_VISIBLE_DEVICES names them, without loading JAX."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if platforms and not {"cuda", "gpu"} & set(platforms.split(",")):
        return []
    if not any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        return []
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name for name in given.split(",") if name.strip() not in ("", "-1")]
    try:
        listing = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(index) for index in range(sum(line.startswith("GPU ") for line in listing.stdout.splitlines()))]
