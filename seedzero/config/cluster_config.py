"""Settings of a run with several learner hosts."""

from __future__ import annotations

import dataclasses

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
