"""What runs on a cluster and what each of it needs: pure, and without knowing whose cluster it is."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence

from seedzero.config import config as config_lib
from seedzero.core import errors

ACCELERATORS = ("GPU", "TPU")
"""Names of a cluster's resources; those before are preferred where a node has several."""

_SET_HERE = {"worker.num": "--workers", "transport.listen": "--listen", "worker.num_remote": "--worker.num_remote"}
"""Settings of `train` that the launcher decides."""
_OWN_ENVIRONMENTS = "remote"


@dataclasses.dataclass(frozen=True)
class Needs:
    """Resources that one program takes on its node.

    Attributes:
      cpus: cores.
      accelerator: GPU or TPU; "" for none.
      num_accelerators: GPUs, or chips of a TPU.
    """

    cpus: float
    accelerator: str = ""
    num_accelerators: int = 0

    def as_resources(self) -> dict[str, float]:
        """Returns what is taken, by the cluster's names."""
        wanted = {"CPU": self.cpus}
        if self.accelerator:
            wanted[self.accelerator] = self.num_accelerators
        return wanted

    def __str__(self) -> str:
        return ", ".join(f"{name} {number:g}" for name, number in self.as_resources().items())


@dataclasses.dataclass(frozen=True)
class Plan:
    """One learner and its workers.

    Attributes:
      run_dir: as the learner's node sees it.
      num_workers: that step environments.
      train_words: the user's words for `seedzero train`, the run directory included.
      worker_words: more words for each worker.
      worker_threads: of each worker; a core for each.
      learner: what it needs.
      worker: what each of them needs.
      port: that the learner listens on; 0: any free one.
      token: that workers present; never shown.
    """

    run_dir: str
    num_workers: int
    train_words: tuple[str, ...]
    worker_words: tuple[str, ...]
    worker_threads: int
    learner: Needs
    worker: Needs
    port: int
    token: str = dataclasses.field(repr=False)

    def learner_command(self, host: str, port: int, token_file: pathlib.Path) -> list[str]:
        """Returns the command line of the learner on the node `host`."""
        listen = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return [
            sys.executable, "-m", "seedzero.cli", "train", *self.train_words, "--workers=0",
            f"--worker.num_remote={self.num_workers}", f"--worker.threads={self.worker_threads}",
            f"--listen={listen}", f"--token_file={token_file}", "--supervised",
        ]  # fmt: skip

    def worker_command(self, index: int, address: str, token_file: pathlib.Path) -> list[str]:
        """Returns the command line of a worker for the learner at `address`."""
        return [
            sys.executable, "-m", "seedzero.worker", f"--server={address}", f"--worker_id=ray-{index}",
            "--role=train", f"--threads={self.worker_threads}", f"--token_file={token_file}", *self.worker_words,
            "--supervised",
        ]  # fmt: skip


def check_settings(settings: Mapping[str, str]) -> None:
    """Refuses settings of `train` that the launcher decides, or can't serve.

    Raises:
      UsageError: with the setting and what to say instead.
    """
    for name, flag in _SET_HERE.items():
        if name in settings:
            raise errors.UsageError(
                f"{flag}={settings[name]}: the launcher decides this one; give --num_workers=N, and --port=N for a "
                "fixed port"
            )
    if settings.get("env.id") == _OWN_ENVIRONMENTS:
        raise errors.UsageError(
            "--env=remote has its environments in programs of yours, which the launcher can't start; start "
            "`seedzero train` and those programs yourself"
        )
    if settings.get("run.deterministic", "false").lower() in ("true", "1"):
        raise errors.UsageError("--deterministic needs the learner's own workers; run `seedzero train` instead")


def worker_threads(config: config_lib.Config) -> int:
    """Returns the emulator threads of a worker: as many as were asked for, else one."""
    return max(1, config.worker.threads)


def learner_cpus(config: config_lib.Config) -> float:
    """Returns the cores that a learner takes: its device loop's, one for what serves workers and files beside it, and
    those of the worker that evaluates there.
    """
    evaluates = config.evaluation.every_updates > 0
    return 2.0 + (worker_threads(config) if evaluates else 0)


def find_accelerator(text: str, nodes: Iterable[Mapping[str, float]]) -> tuple[str, int]:
    """Returns kind and number of the learner's accelerators; kind "" for none.

    Args:
      text: auto (all of that node which has most), none, GPU, TPU, or one of these with a number, as GPU:2.
      nodes: resources of each node of the cluster.

    Raises:
      UsageError: `text` is none of these.
    """
    if text == "none":
        return "", 0
    nodes = list(nodes)
    if text == "auto":
        most = {kind: _most(kind, nodes) for kind in ACCELERATORS}
        kind = next((kind for kind in ACCELERATORS if most[kind]), "")
        return kind, most.get(kind, 0)
    found = re.fullmatch(rf"({'|'.join(ACCELERATORS)})(?::([1-9]\d*))?", text)
    if found is None:
        raise errors.UsageError(f"--accelerator={text}: expected auto, none, GPU, GPU:N, TPU or TPU:N")
    return found[1], int(found[2] or _most(found[1], nodes) or 1)


def _most(kind: str, nodes: Sequence[Mapping[str, float]]) -> int:
    return max((int(node.get(kind, 0)) for node in nodes), default=0)


def missing(wanted: Sequence[Needs], nodes: Sequence[Mapping[str, float]]) -> list[Needs]:
    """Returns what finds no place on these nodes, the largest placed first, each where most is left."""
    left = [dict(node) for node in nodes]
    unplaced = []
    for needs in sorted(wanted, key=lambda needs: (needs.num_accelerators, needs.cpus), reverse=True):
        taken = needs.as_resources()
        fitting = [node for node in left if all(node.get(name, 0.0) >= number for name, number in taken.items())]
        if not fitting:
            unplaced.append(needs)
            continue
        best = max(fitting, key=lambda node: node.get("CPU", 0.0))
        for name, number in taken.items():
            best[name] -= number
    return unplaced
