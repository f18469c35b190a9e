"""Defines the actors on Ray's nodes, one for each learner and worker, each of which keeps a program running.

Every call of `report` carries the desired state, and returns the actual state once that changes. So an actor that Ray
has restarted, on the same node or another, needs nothing but the next call. Ray carries only these calls; observations
and actions go from program to program over gRPC.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import socket
import sys
import tempfile
import threading
import uuid

import ray.util
from ray.util import metrics

import seedzero
from seedzero.core import errors
from seedzero.interfaces.launch import launch_plan
from seedzero.learner.processes import keepers, programs
from seedzero.storage.bucket import run_copy
from seedzero.storage.checkpoints import run_dirs, run_lock

ANNOUNCEMENT = r"seedzero learner listening on (\S+)"
_JOINED = r"seedzero worker \S+: joined (\S+):"
_ERROR = "seedzero: error: "


@dataclasses.dataclass(frozen=True)
class Order:
    """The desired state of an actor.

    address: the address that the program calls: for a worker the learner's, or several ("A,B"); for a further learner
    the coordinator's; "" if it is not known yet, and for the first learner.
    """

    version: str
    plan: launch_plan.Plan
    address: str = ""


@dataclasses.dataclass(frozen=True)
class Report:
    """The actual state of an actor.

    incarnation: identifies this life of the actor, which is the process `pid`. coordinator: address where the first of
    several learners waits for the others, or "" for another program.
    """

    incarnation: str
    host: str
    pid: int
    program: keepers.ProgramSnapshot
    coordinator: str = ""


class _Actor:
    """Keeps a program running on a node, in a private directory, and reports its state in Ray's metrics."""

    coordinator = ""

    def __init__(self, name: str, keeper: keepers.Keeper) -> None:
        self._name, self._keeper = name, keeper
        self._lock = threading.Lock()
        self._order: Order | None = None
        self._host: str = ray.util.get_node_ip_address()
        self._incarnation = uuid.uuid4().hex
        self._directory = tempfile.TemporaryDirectory(prefix="seedzero-", ignore_cleanup_errors=True)
        self._running = metrics.Gauge("seedzero_running", "1 while the program runs", tag_keys=("name",))
        self._starts = metrics.Gauge("seedzero_starts", "starts of the program by this actor", tag_keys=("name",))

    def __repr__(self) -> str:
        return self._name

    def report(self, order: Order, seen: int, seconds: float) -> Report:
        """Returns the actual state once its number differs from `seen` (-1 for none), or after `seconds`.

        Raises UsageError for another version of seedzero.
        """
        if order.version != seedzero.__version__:
            raise errors.UsageError(
                f"node {self._host} has seedzero {seedzero.__version__}, the launcher {order.version}; install the "
                "same version on every node"
            )
        with self._lock:
            self._follow(order)
        return self._report(self._keeper.snapshot(after=seen, seconds=seconds))

    def stop(self, seconds: float) -> Report:
        """Asks the program to save and leave, and kills it after `seconds`."""
        return self._report(self._keeper.stop(seconds))

    def _follow(self, order: Order) -> None:
        """Starts the program with the first order, and restarts it when the address changes."""
        last, self._order = self._order, order
        if last is None:
            self._keeper.start(self._command)
        elif last.address != order.address:
            self._keeper.renew()

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _token_file(self, token: str) -> pathlib.Path:
        """Returns a file with the token, which only this user can read."""
        path = pathlib.Path(self._directory.name) / "token"
        if not path.exists():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(token + "\n")
        return path

    def _report(self, program: keepers.ProgramSnapshot) -> Report:
        tags = {"name": self._name}
        self._running.set(float(program.state is keepers.ProgramState.RUNNING), tags)
        self._starts.set(float(program.starts), tags)
        if program.state in keepers.OVER:
            self._directory.cleanup()
        return Report(self._incarnation, self._host, os.getpid(), program, self.coordinator)


class Learner(_Actor):
    """Keeps `seedzero train` running on a node.

    Its ports do not change while this actor lives, so that workers and other learners can reconnect without help.
    """

    def __init__(self, num_accelerators: int, index: int = 0, name: str = "learner") -> None:
        self._index, self._port = index, 0
        # JAX_PLATFORMS on the node may name an accelerator that this learner was not given.
        environment = {} if num_accelerators else {"JAX_PLATFORMS": "cpu"}
        system = programs.System(functools.partial(programs.launch, environment=environment))
        keeper = keepers.Keeper(announcement=ANNOUNCEMENT, judge=self._judge, write=_write, system=system)
        super().__init__(name, keeper)
        if index == 0:
            self.coordinator = launch_plan.address_of(self._host, _free_port(self._host))

    def _follow(self, order: Order) -> None:
        if self._order is not None and self._keeper.snapshot().heard:
            self._order = order  # it has met the first learner, together with which it saves and ends
        elif order.address or self._index == 0:
            super()._follow(order)

    def _command(self) -> list[str]:
        assert self._order is not None
        plan = self._order.plan
        # A learner that has lost its actor saves before it leaves, so this one waits; a bucket's lease does that
        # itself.
        if "://" not in plan.run_dir:
            place = run_dirs.of_host(pathlib.Path(plan.run_dir), self._index)
            run_lock.wait_until_free(place, self._keeper.tell)
        last = self._keeper.snapshot()
        if last.heard:
            self._port = int(last.heard.rpartition(":")[2])
        elif last.starts:
            self._port = 0  # it never listened, so another program may have that port now
        return plan.learner_command(
            self._host,
            plan.learner_port(self._index) or self._port,
            self._token_file(plan.token),
            index=self._index,
            coordinator=self.coordinator or self._order.address,
        )

    def _judge(self, death: programs.Death) -> keepers.Verdict | None:
        assert self._order is not None
        if death.status == errors.BAD_USAGE:
            return keepers.Verdict(keepers.ProgramState.FAILED, death.last_line.removeprefix(_ERROR))
        if self._index or death.status != errors.DONE:
            return None  # the first learner decides when training is over
        # Exit code 0 may also mean that SIGTERM ended it, for example because its machine is taken away.
        finished = _finished(self._order.plan.run_dir)
        return keepers.Verdict(keepers.ProgramState.FINISHED, finished) if finished else None


class Worker(_Actor):
    """Keeps a worker running on this node with the learner's newest address; without an address nothing changes."""

    def __init__(self, index: int) -> None:
        # Workers are always restarted, because the launcher decides when training is over.
        keeper = keepers.Keeper(announcement=_JOINED, judge=lambda death: None, write=_write)
        super().__init__(f"worker-{index}", keeper)
        self._index = index

    def _follow(self, order: Order) -> None:
        if order.address:
            super()._follow(order)

    def _command(self) -> list[str]:
        assert self._order is not None
        plan = self._order.plan
        return plan.worker_command(self._index, self._order.address, self._token_file(plan.token))


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _finished(place: str) -> str | None:
    """Returns why the run at a path or URL is finished, or None if it is not, or its bucket cannot be reached."""
    try:
        with run_copy.local(place) as path:
            return (run_dirs.read_status(path) or {}).get("finished")
    except (errors.BucketError, errors.ResumeError):
        return None  # the restarted learner will report the error


def _write(line: bytes) -> None:
    """Passes a program's output to Ray, for the dashboard and the launcher."""
    sys.stdout.write(line.decode(errors="replace"))
    sys.stdout.flush()
