"""Plans programs and their resources for any kind of cluster, without side effects."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from seedzero.config import configs, worker_options
from seedzero.core import env_ids, errors

ACCELERATORS = ("GPU", "TPU")
"""Names of a cluster's resources; if a node has several, the first in this order is used."""
Nodes: TypeAlias = Sequence[Mapping[str, float]]
"""The resources of each node in a cluster, by these names."""

_WORKERS, _LEARNERS = "--num_workers=N, and --port=N for a fixed port", "--num_learners=N"
_SET_HERE = {
    "worker.num": ("--workers", _WORKERS),
    "transport.listen": ("--listen", _WORKERS),
    "worker.num_remote": ("--worker.num_remote", _WORKERS),
    **{
        f"cluster.{name}": (f"--cluster.{name}", _LEARNERS)
        for name in ("num_hosts", "index", "coordinator", "worker_address")
    },
}
"""Settings of `train` that the launcher decides: the flag, and the launcher's flag for it."""


@dataclasses.dataclass(frozen=True)
class NodeResources:
    """What a program needs on a node: cores, and GPUs or TPU chips ("" for none)."""

    cpus: float
    accelerator: str = ""
    num_accelerators: int = 0

    def as_resources(self) -> dict[str, float]:
        """Returns the resources under the cluster's names."""
        return {"CPU": self.cpus} | ({self.accelerator: self.num_accelerators} if self.accelerator else {})

    def __str__(self) -> str:
        return ", ".join(f"{name} {number:g}" for name, number in self.as_resources().items())


@dataclasses.dataclass(frozen=True)
class Plan:
    """A run's learners, usually one, and their workers."""

    run_dir: str  # path on the learners' nodes
    num_workers: int  # number for all learners together
    train_words: tuple[str, ...]  # the user's arguments for `seedzero train`, including the run directory
    worker_options: worker_options.WorkerOptions
    learner: NodeResources
    worker: NodeResources  # one core for each of its threads
    port: int  # port of the first learner; each further learner has the next one; 0: any free ones
    token: str = dataclasses.field(repr=False)  # token of the workers, which is never shown
    num_learners: int = 1

    def learner_command(
        self, host: str, port: int, token_file: pathlib.Path, *, index: int = 0, coordinator: str = ""
    ) -> list[str]:
        """Returns the command of a learner on the node `host`. coordinator: address where several learners meet."""
        words = [
            sys.executable, "-m", "seedzero.cli", "train", *self.train_words, "--workers=0",
            f"--worker.num_remote={self.num_workers // self.num_learners}",
            f"--worker.threads={self.worker_options.threads}", f"--listen={address_of(host, port)}",
            f"--token_file={token_file}", "--supervised",
        ]  # fmt: skip
        if self.num_learners > 1:
            words += [f"--cluster.index={index}", f"--cluster.coordinator={coordinator}"]
        return words

    def learner_port(self, index: int) -> int:
        """Returns a learner's port, or 0 for any free one."""
        return self.port and self.port + index

    def worker_command(self, index: int, address: str, token_file: pathlib.Path) -> list[str]:
        """Returns the command of a worker for the learner at `address`, or for the learners at "A,B"."""
        return worker_options.command(
            self.worker_options, server=address, worker_id=f"ray-{index}", role="train", token_file=str(token_file)
        )


def address_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_settings(settings: Mapping[str, str]) -> None:
    """Raises UsageError for settings of `train` that the launcher decides or does not support."""
    for name, (flag, own) in _SET_HERE.items():
        if name in settings:
            raise errors.UsageError(f"{flag}={settings[name]}: the launcher decides this one; give {own}")
    if settings.get("env.id") == env_ids.REMOTE:
        raise errors.UsageError(
            "--env=remote has its environments in your own programs, which the launcher can't start; start "
            "`seedzero train` and those programs yourself"
        )
    if settings.get("run.deterministic", "false").lower() in ("true", "1"):
        raise errors.UsageError("--deterministic needs the learner's own workers; run `seedzero train` instead")


def check_learners(num_learners: int, num_workers: int) -> None:
    """Raises UsageError if the workers cannot be divided equally between the learners."""
    several = f"--num_learners={num_learners}"
    if left := num_workers % num_learners:
        fewer, more = num_workers - left, num_workers - left + num_learners
        raise errors.UsageError(
            f"--num_workers={num_workers}: each of {num_learners} learners has as many workers as the others; give "
            f"--num_workers={f'{fewer} or {more}' if fewer else more}, or another {several.partition('=')[0]}"
        )


def worker_threads(config: configs.Config) -> int:
    """Returns a worker's number of emulator threads, at least 1."""
    return max(1, config.worker.threads)


def learner_cpus(config: configs.Config) -> float:
    """Returns a learner's cores: 1 for the device loop, 1 for serving and files, and the evaluating worker's."""
    return 2.0 + (worker_threads(config) if config.evaluation.every_updates > 0 else 0)


def find_accelerator(text: str, nodes: Iterable[Mapping[str, float]], num_learners: int = 1) -> tuple[str, int]:
    """Returns kind and number of accelerators for each learner, from the nodes' resources; kind "" means none.

    text: auto, none, GPU, TPU, GPU:N or TPU:N; anything else raises UsageError. auto takes all accelerators of the
    node that has most; several learners get the same number each, the largest that is possible.
    """
    if text == "none":
        return "", 0
    nodes = list(nodes)
    if text == "auto":
        return next(((kind, most) for kind in ACCELERATORS if (most := _most(kind, nodes, num_learners))), ("", 0))
    found = re.fullmatch(rf"({'|'.join(ACCELERATORS)})(?::([1-9]\d*))?", text)
    if found is None:
        raise errors.UsageError(f"--accelerator={text}: expected auto, none, GPU, GPU:N, TPU or TPU:N")
    return found[1], int(found[2] or _most(found[1], nodes, num_learners) or 1)


def fit_learner(
    learner: NodeResources, worker: NodeResources, num_workers: int, nodes: Nodes, num_learners: int = 1
) -> NodeResources:
    """Returns the learner, with fewer cores (at least one) if only then there is room for all programs."""
    for cpus in (learner.cpus, *range(math.ceil(learner.cpus) - 1, 0, -1)):
        fitting = dataclasses.replace(learner, cpus=float(cpus))
        if have_room([*[fitting] * num_learners, *[worker] * num_workers], nodes):
            return fitting
    return learner


def shortage(
    learner: NodeResources, worker: NodeResources, num_workers: int, nodes: Nodes, num_learners: int = 1
) -> str:
    """Describes needs, resources and remedies if there is no room for some program; otherwise returns ""."""
    if have_room([*[learner] * num_learners, *[worker] * num_workers], nodes):
        return ""
    learners = "the learner needs" if num_learners == 1 else f"each of {num_learners} learners needs"
    return (
        f"no room: {learners} {learner}, each of {num_workers} worker(s) {worker}, and a program runs on one "
        f"node; there are {listing(nodes)}; lower --num_workers, --learner_cpus (a fraction will do), "
        "--worker.threads or --accelerator"
    )


def listing(nodes: Nodes) -> str:
    """Lists the nodes' resources for programs in a text."""
    shown = ("CPU", *ACCELERATORS)
    rows = [", ".join(f"{name} {node[name]:g}" for name in shown if name in node) or "nothing" for node in nodes]
    return f"{len(rows)} node(s) with {'; '.join(rows)}"


def _most(kind: str, nodes: Nodes, num_learners: int) -> int:
    """Returns the largest number of accelerators that every learner can get on these nodes, or 0."""
    there = [int(node.get(kind, 0)) for node in nodes]
    return next(
        (each for each in range(max(there, default=0), 0, -1) if sum(n // each for n in there) >= num_learners), 0
    )


def have_room(wanted: Sequence[NodeResources], nodes: Nodes) -> bool:
    """Returns whether the nodes have room for all needs, placing the largest first, each on the emptiest node."""
    left = [dict(node) for node in nodes]
    for needs in sorted(wanted, key=lambda needs: (needs.num_accelerators, needs.cpus), reverse=True):
        taken = needs.as_resources()
        fitting = [node for node in left if all(node.get(name, 0.0) >= number for name, number in taken.items())]
        if not fitting:
            return False
        best = max(fitting, key=lambda node: node.get("CPU", 0.0))
        for name, number in taken.items():
            best[name] -= number
    return True
