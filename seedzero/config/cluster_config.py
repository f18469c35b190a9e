"""Settings of a run with several learner hosts, and their impossible combinations."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Set
from typing import Any

from seedzero.config import options

OF_A_PROCESS = ("cluster.index", "cluster.coordinator", "cluster.worker_address", "cluster.interface")
"""Settings of a process, which its run directory does not save."""
TOKEN = "SEEDZERO_HOSTS_TOKEN"
"""Variable with the token of hosts that one process started, so that no command line shows it to other users."""
ALL = -1
"""`cluster.index` of a process that starts all hosts on this machine."""


@dataclasses.dataclass(frozen=True)
class ClusterConfig(options.Section):
    num_hosts: int = options.on_resume(
        1,
        "learner hosts of the run, each a process of `seedzero train`; every other setting is for each host",
        low=1,
        high=64,
    )
    index: int = options.any_time(
        ALL,
        "number of this host, 0 to cluster.num_hosts - 1; -1: start all of them on this machine",
        low=ALL,
        high=63,
    )
    coordinator: str = options.any_time("", "HOST:PORT where all hosts meet; host 0 listens there, the others connect")
    ca_file: str = options.any_time(
        "", "PEM certificates of the authority that signed host 0's tls.cert_file, or `system`"
    )
    worker_address: str = options.any_time(
        "",
        "HOST:PORT by which workers reach this host (`seedzero worker --server=A,B`); empty: --listen",
    )
    interface: str = options.any_time(
        "",
        "network interface of this machine, such as eth1, by which the other hosts reach it to sum "
        "gradients on CPUs; empty: that of its connection to the coordinator",
    )
    join_seconds: float = options.any_time(
        60.0, "time within which all hosts must have met", "s", low=1, high=options.LONGEST_WAIT
    )
    silence_seconds: float = options.any_time(
        20.0,
        "a host that sends nothing for this long counts as dead; then all end and start again together",
        "s",
        low=3,
    )


def notes(config: Any, explicit: Set[str]) -> Iterator[str]:
    """Yields a note on settings of several hosts, unless the user also gave their number, which may be 1."""
    given = [name for name in OF_A_PROCESS if name in explicit]
    if config.cluster.num_hosts == 1 and given and "cluster.num_hosts" not in explicit:
        yield f"--{given[0]} changes nothing: this host trains alone; give --cluster.num_hosts=N, too"


def problems(config: Any) -> Iterator[str]:
    """Yields the impossible combinations, each with what to do."""
    cluster = config.cluster
    several = f"--cluster.num_hosts={cluster.num_hosts}"
    if cluster.index >= cluster.num_hosts:
        hosts = (
            f"0 to {cluster.num_hosts - 1}" if cluster.num_hosts > 1 else "only host 0; give the number of all hosts"
        )
        yield f"--cluster.index={cluster.index}: {several} has {hosts}"
    if cluster.num_hosts == 1:
        return
    if cluster.index >= 0 and not cluster.coordinator:
        yield (
            f"--cluster.index={cluster.index}: give --cluster.coordinator=HOST:PORT, an address of host 0, on all "
            "hosts"
        )
    if cluster.coordinator and not re.fullmatch(r".+:\d+", cluster.coordinator):
        yield f"--cluster.coordinator={cluster.coordinator}: expected HOST:PORT, an address of host 0"
    if "league" in config.agent.SECTIONS and config.league.on:
        yield (
            f"{several}: a league ({config.league.asked}) has one host; give {config.league.off}, or "
            "--cluster.num_hosts=1"
        )
    if config.training.acting_devices:
        yield (
            f"{several}: all devices of a host act and learn; give --training.acting_devices=0, or "
            "--cluster.num_hosts=1"
        )
    if config.replay.placement == "host" and config.agent.SAMPLES:
        yield (
            f"{several}: each host's replay is on its devices; give --replay.placement=device, or "
            "--cluster.num_hosts=1"
        )
    if config.checkpoint.keep == 1:
        yield (
            f"{several}: --checkpoint.keep=1 deletes a host's last checkpoint before the other hosts have the next "
            "one; give --checkpoint.keep=2 or more"
        )
