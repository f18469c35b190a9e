"""The actors on Ray's nodes: one for the learner and one for each worker. Each keeps its program running.

Every call of `report` carries the desired state and is answered with the actual state, once that changes. So an actor
that Ray has restarted, on the same node or another, needs nothing but the next call. Ray carries these calls alone;
observations and actions go from program to program over gRPC.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import sys
import tempfile
import threading
import uuid

import ray.util
from ray.util import metrics

import seedzero
from seedzero.bucket import run_copy
from seedzero.checkpoints import run_dir
from seedzero.core import errors, exit_codes
from seedzero.launch import plan as plan_lib
from seedzero.processes import keeper as keeper_lib
from seedzero.processes import program

ANNOUNCEMENT = r"seedzero learner listening on (\S+)"
_JOINED = r"seedzero worker \S+: joined (\S+):"
_ERROR = "seedzero: error: "


@dataclasses.dataclass(frozen=True)
class Order:
    """The desired state.

    Attributes:
      version: of seedzero, on both sides.
      plan: of everything.
      address: of the learner; "" while that is not known, and for the learner itself.
    """

    version: str
    plan: plan_lib.Plan
    address: str = ""


@dataclasses.dataclass(frozen=True)
class Report:
    """The actual state.

    Attributes:
      incarnation: names this life of the actor.
      host: of its node.
      pid: of the actor.
      program: that it keeps.
    """

    incarnation: str
    host: str
    pid: int
    program: keeper_lib.Snapshot


class Learner:
    """Keeps `seedzero train` running on this node.

    Its port stays the same while this actor lives, so that workers find it again by themselves.
    """

    def __init__(self) -> None:
        self._post = _Post("learner")
        self._lock = threading.Lock()
        self._plan: plan_lib.Plan | None = None
        self._port = 0
        self._keeper = keeper_lib.Keeper(
            announcement=ANNOUNCEMENT,
            judge=self._judge,
            write=_write,
            system=program.System(functools.partial(program.launch, environment={})),
        )

    def __repr__(self) -> str:
        return "learner"

    def report(self, order: Order, seen: int, seconds: float) -> Report:
        """Returns the actual state once its number is not `seen` any more.

        Args:
          order: the desired state.
          seen: number of the state that the caller knows; -1 for none.
          seconds: longest wait for a change.

        Raises:
          UsageError: this node has another version of seedzero.
        """
        _check_version(order)
        with self._lock:
            if self._plan is None:
                self._plan = order.plan
                self._keeper.start(functools.partial(self._command, order.plan))
        return self._post.report(self._keeper.snapshot(after=seen, seconds=seconds))

    def stop(self, seconds: float) -> Report:
        """Lets the program save and leave; kills it after so many seconds."""
        return self._post.report(self._keeper.stop(seconds))

    def _command(self, plan: plan_lib.Plan) -> list[str]:
        # A learner that lost its actor saves before it leaves: this one waits for it.
        run_dir.wait_until_free(plan.run_dir, self._keeper.tell)
        last = self._keeper.snapshot()
        if last.heard:
            self._port = int(last.heard.rpartition(":")[2])
        elif last.starts:
            self._port = 0  # it never listened: another program may have that port now
        token_file = self._post.token_file(plan.token)
        return plan.learner_command(self._post.host, plan.port or self._port, token_file)

    def _judge(self, death: program.Death) -> keeper_lib.Verdict | None:
        assert self._plan is not None
        if death.status == exit_codes.BAD_USAGE:
            return keeper_lib.Verdict(keeper_lib.State.FAILED, death.last_line.removeprefix(_ERROR))
        # It ends with exit code 0 on SIGTERM, too, as where a machine is taken away.
        finished = _finished(self._plan.run_dir) if death.status == exit_codes.DONE else None
        return keeper_lib.Verdict(keeper_lib.State.FINISHED, finished) if finished else None


class Worker:
    """Keeps a worker running on this node, always with the learner's newest address."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._post = _Post(f"worker-{index}")
        self._lock = threading.Lock()
        self._order: Order | None = None
        self._keeper = keeper_lib.Keeper(announcement=_JOINED, judge=_never_over, write=_write)

    def __repr__(self) -> str:
        return f"worker-{self._index}"

    def report(self, order: Order, seen: int, seconds: float) -> Report:
        """As Learner.report. Without an address the program is left as it is."""
        _check_version(order)
        with self._lock:
            if order.address:
                last, self._order = self._order, order
                if last is None:
                    self._keeper.start(self._command)
                elif last.address != order.address:
                    self._keeper.renew()
        return self._post.report(self._keeper.snapshot(after=seen, seconds=seconds))

    def stop(self, seconds: float) -> Report:
        """Ends the program; kills it after so many seconds."""
        return self._post.report(self._keeper.stop(seconds))

    def _command(self) -> list[str]:
        assert self._order is not None
        plan = self._order.plan
        return plan.worker_command(self._index, self._order.address, self._post.token_file(plan.token))


class _Post:
    """An actor's place: its node, a private directory there, and its Ray metrics."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.host: str = ray.util.get_node_ip_address()
        self._incarnation = uuid.uuid4().hex
        self._directory = tempfile.TemporaryDirectory(prefix="seedzero-", ignore_cleanup_errors=True)
        self._running = metrics.Gauge("seedzero_running", "1 while the program runs", tag_keys=("name",))
        self._starts = metrics.Gauge("seedzero_starts", "starts of the program by this actor", tag_keys=("name",))

    def token_file(self, token: str) -> pathlib.Path:
        """Returns a file with the token, readable by this user alone."""
        path = pathlib.Path(self._directory.name) / "token"
        if not path.exists():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(token + "\n")
        return path

    def report(self, program: keeper_lib.Snapshot) -> Report:
        """Returns a report, and shows the same as metrics."""
        tags = {"name": self._name}
        self._running.set(float(program.state is keeper_lib.State.RUNNING), tags)
        self._starts.set(float(program.starts), tags)
        if program.state in keeper_lib.OVER:
            self._directory.cleanup()
        return Report(self._incarnation, self.host, os.getpid(), program)


def _check_version(order: Order) -> None:
    if order.version != seedzero.__version__:
        raise errors.UsageError(
            f"node {ray.util.get_node_ip_address()} has seedzero {seedzero.__version__}, the launcher "
            f"{order.version}; install the same version on every node"
        )


def _finished(place: str) -> str | None:
    """Returns the budget or return that ended the run at a path or URL; None if none has, or its bucket is away."""
    try:
        with run_copy.local(place) as path:
            return (run_dir.read_status(path) or {}).get("finished")
    except (errors.BucketError, errors.ResumeError):
        return None  # the restarted learner reports the error


def _never_over(death: program.Death) -> None:
    """Has every worker started again: the launcher knows when training is over."""


def _write(line: bytes) -> None:
    """Hands a program's output to Ray, which shows it in the dashboard and at the launcher."""
    sys.stdout.write(line.decode(errors="replace"))
    sys.stdout.flush()
