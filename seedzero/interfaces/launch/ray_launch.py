"""Places learners and workers on a Ray cluster and supervises them.

The launcher sends every actor its desired state and waits for the actual state. Ray restarts actors
that have died, on any node with room, and the next call brings the new one up to date. The launcher itself decides
little: workers follow the learners' newest addresses, further learners follow the first one's coordinator, and
everything ends when the first learner's program has finished or the user stops it. If one learner is lost, the others
end, and their actors start them again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ray
import ray.exceptions
import ray.runtime_env
import ray.util
from ray.util import metrics

import seedzero
from seedzero.config import machines
from seedzero.core import errors
from seedzero.interfaces.launch import launch_plan
from seedzero.learner.processes import keepers, programs, signals
from seedzero.storage.bucket import run_copy
from seedzero.storage.checkpoints import run_dirs, run_lock

# Defines the actors on Ray's nodes, one for each learner and worker, each of which keeps a program running.
#
# Every call of `report` carries the desired state, and returns the actual state once that changes. So an actor that
# Ray has restarted, on the same node or another, needs nothing but the next call. Ray carries only these calls;
# observations and actions go from program to program over gRPC.
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


NAMESPACE = "seedzero"
"""Namespace of the actors' names, so that no two launchers use the same run directory."""
TICK_SECONDS = 0.5
POLL_SECONDS = 5.0
"""An actor responds after this time, even if nothing has changed."""
PLACE_SECONDS = 10.0
"""An actor that has not responded this long after its start or loss counts as not placed."""
SAVE_SECONDS = 600.0
"""How long a learner may save when it stops."""
LEAVE_SECONDS = 10.0
"""How long a worker may take to leave when it stops."""
MAX_NAMES = 5
"""Most names of actors without a node in one message."""
MAX_ERROR_LENGTH = 500
"""How much of Ray's text about an actor is shown, because it may contain whole logs."""
_LEAST_CORES = 2
"""Cores of a cluster that is started here, even on a smaller machine, so that a learner and a worker have room."""
_CALLS_AT_A_TIME = 8
"""Threads of an actor, because calls that the launcher has abandoned still wait in it for a while."""

State = keepers.ProgramState


@contextlib.contextmanager
def connected(
    address: str, check_here: Callable[[launch_plan.Nodes], None], runtime_env: Mapping[str, Any] | None = None
) -> Iterator[bool]:
    """Connects this process to a cluster while entered; yields whether the cluster was started for this launch.

    address: HOST:PORT of a cluster (UsageError if there is none), or "local" to start one on this machine. "" takes
    that of RAY_ADDRESS, else one that runs on this machine, else starts one. check_here: called with the cores of a
    cluster before it is started; it may raise an error. runtime_env: Ray's description of the files and packages that
    travel to the nodes; None for none.
    """
    try:
        yield _connect(address, check_here, runtime_env)
    finally:
        ray.shutdown()


def _connect(
    address: str, check_here: Callable[[launch_plan.Nodes], None], runtime_env: Mapping[str, Any] | None
) -> bool:
    try:
        ray.runtime_env.RuntimeEnv(**(runtime_env or {}))
    except (TypeError, ValueError) as error:
        raise errors.UsageError(f"--runtime_env={json.dumps(runtime_env)}: {error}") from None
    common: dict[str, Any] = dict(namespace=NAMESPACE, logging_level="WARNING", runtime_env=runtime_env)
    if "://" in address:
        raise errors.UsageError(
            f"--address={address}: the launcher must run within the cluster's network; give HOST:PORT, or submit it: "
            "ray job submit --address=http://HEAD:8265 -- seedzero launch ray ..."
        )
    if address != "local":
        try:
            ray.init(address or "auto", **common)
            return False
        except (ConnectionError, ValueError) as error:
            if address:
                raise errors.UsageError(
                    f"--address={address}: no Ray cluster answers there ({error}); start one by `ray start --head` or "
                    "`ray up`, or give --address=local"
                ) from None
    num_cores = max(machines.num_cores(), _LEAST_CORES)
    check_here([{"CPU": float(num_cores)}])  # first, because Ray is slow to start
    try:
        ray.init("local", num_cpus=num_cores, **common)
    except Exception as error:  # Ray has no special error for parts of it that do not start in time
        raise errors.TrainingFailure(
            f"Ray cannot be started on this machine: {error}; start it by `ray start --head`, then repeat the command"
        ) from None
    return True


def nodes() -> launch_plan.Nodes:
    """Returns the total resources of each node that is alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


@dataclasses.dataclass
class _Member:
    """What the launcher knows about an actor."""

    name: str
    needs: launch_plan.NodeResources
    handle: Any
    silent_since: float  # time of its creation or loss; only used while there is no report
    ask_at: float = 0.0  # after a loss, the earliest time of the next call
    report: Report | None = None  # its last report; None before the first, and after a loss
    call: Any = None  # a call without a response, if any
    order: Order | None = None  # the desired state that this call sent
    address: str = ""  # a learner's newest address; workers keep trying it while the learner is away

    @property
    def program(self) -> keepers.ProgramSnapshot:
        return self.report.program if self.report else keepers.ProgramSnapshot()


class Launch:
    """A run's learners and workers, from start to end. Only one thread may use it.

    is_own: whether the cluster exists only for this run, so that programs without room now will never get any.
    """

    def __init__(
        self,
        plan: launch_plan.Plan,
        *,
        is_own: bool,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan, self._is_own, self._say, self._clock = plan, is_own, say, clock
        self._members: list[_Member] = []
        self._unplaced = ""

    @property
    def _learners(self) -> list[_Member]:
        return self._members[: self._plan.num_learners]

    def run(self) -> str:
        """Runs until training is finished or the user stops it; returns why it is finished, or "".

        Raises UsageError if the run already has a launcher, cannot be placed, or the learner rejects its settings, and
        TrainingFailure if the learner or a worker has failed too often.
        """
        plan = self._plan
        if problem := launch_plan.shortage(plan.learner, plan.worker, plan.num_workers, nodes(), plan.num_learners):
            if self._is_own:
                raise errors.UsageError(problem)
            self._say(f"{problem}, or let nodes join: the programs wait for them")
        with signals.StopSignals(lambda: None, say=self._say, cleanup=lambda: None) as stop:
            try:
                self._create()
                finished = self._supervise(stop.requested)
            finally:
                saved = self._stop()
            return finished or self._check_saved(saved)

    def _check_saved(self, learner: keepers.ProgramSnapshot | None) -> str:
        """Returns the reason if training turns out to be finished, else ""."""
        if learner is None:
            self._say("the learner was lost before it could save; a resume continues from its last checkpoint")
        elif learner.state is State.FINISHED:
            return learner.problem
        elif learner.status:
            raise errors.TrainingFailure(
                f"the learner was told to save and leave, but {learner.problem}; its output above says more"
            )
        return ""

    # ------------------------------------------------------------------------------------ start

    def _create(self) -> None:
        plan = self._plan
        try:
            for index in range(plan.num_learners):
                name = "learner" if plan.num_learners == 1 else f"learner-{index}"
                self._add(name, Learner, plan.learner, plan.learner.num_accelerators, index, name)
            for index in range(plan.num_workers):
                self._add(f"worker-{index}", Worker, plan.worker, index, scheduling_strategy="SPREAD")
        except ray.exceptions.ActorAlreadyExistsError:
            raise errors.UsageError(
                f"--run_dir={plan.run_dir} has a launcher in this cluster already; end that one first"
            ) from None

    def _add(
        self, name: str, kind: type[Any], needs: launch_plan.NodeResources, *arguments: int | str, **options: str
    ) -> None:
        resources = needs.as_resources()
        actor = ray.remote(kind).options(
            name=f"{name} of {self._plan.run_dir}",
            num_cpus=resources.pop("CPU"),
            num_gpus=resources.pop("GPU", 0),
            resources=resources,
            max_restarts=-1,
            max_task_retries=0,  # the next call carries the desired state of that time
            max_concurrency=_CALLS_AT_A_TIME,
            **options,
        )
        self._members.append(_Member(name, needs, actor.remote(*arguments), self._clock()))

    # ------------------------------------------------------------------------------------ while it runs

    def _supervise(self, stop: threading.Event) -> str:
        learner = self._members[0]
        while not stop.is_set():
            for member in self._members:
                self._ask(member)
            self._hear(stop)
            if learner.program.state is State.FINISHED:
                return learner.program.problem
            self._check_failures()
            self._tell_unplaced()
        return ""

    def _ask(self, member: _Member) -> None:
        """Sends a member the desired state unless a call with it is in flight."""
        order = self._order(member)
        is_due = self._clock() >= member.ask_at if member.call is None else member.order != order
        if is_due:
            seen = member.program.number if member.report else -1
            member.call, member.order = member.handle.report.remote(order, seen, POLL_SECONDS), order

    def _order(self, member: _Member) -> Order:
        first, learners = self._members[0], self._learners
        if member not in learners:
            addresses = [learner.address for learner in learners]
            address = ",".join(addresses) if all(addresses) else ""
        elif member is first:
            address = ""
        else:
            address = first.report.coordinator if first.report else member.order.address if member.order else ""
        return Order(seedzero.__version__, self._plan, address)

    def _hear(self, stop: threading.Event) -> None:
        calls = {member.call: member for member in self._members if member.call is not None}
        if not calls:
            stop.wait(TICK_SECONDS)
            return
        answered, waiting = ray.wait(list(calls), num_returns=1, timeout=TICK_SECONDS)
        if answered and waiting:
            answered += ray.wait(waiting, num_returns=len(waiting), timeout=0)[0]
        for call in answered:
            self._take(calls[call])

    def _take(self, member: _Member) -> None:
        call, member.call = member.call, None
        try:
            report = ray.get(call)
        except ray.exceptions.ActorUnavailableError:
            member.ask_at = self._clock() + TICK_SECONDS
            if member.report is not None:
                self._say(f"{member.name}: its actor on {member.report.host} is lost; Ray starts it again")
                member.report, member.silent_since = None, self._clock()
        except ray.exceptions.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, errors.Error) else None
            raise cause or errors.TrainingFailure(f"{member.name}: {error}") from None
        except ray.exceptions.RayError as error:
            brief = " ".join(str(error).split())[:MAX_ERROR_LENGTH] or type(error).__name__
            raise errors.TrainingFailure(
                f"{member.name}: Ray has abandoned its actor ({brief}); run the same command again to resume"
            ) from None
        else:
            self._tell_change(member, report)
            member.report = report
            if member in self._learners and report.program.state is State.RUNNING:
                member.address = report.program.heard or member.address

    def _tell_change(self, member: _Member, report: Report) -> None:
        before, program = member.report, report.program
        if before is None or before.incarnation != report.incarnation:
            self._say(f"{member.name}: placed on {report.host}, actor pid {report.pid}")
        old = before.program if before else keepers.ProgramSnapshot()
        if program.state is State.PREPARING and program.problem not in ("", old.problem):
            self._say(f"{member.name}: {program.problem}")
        if program.starts != old.starts:
            self._say(f"{member.name}: started" + (f", {program.starts} times by now" if program.starts > 1 else ""))
        if program.heard and program.heard != old.heard:
            self._say(f"{member.name}: {'listens on' if member in self._learners else 'joined'} {program.heard}")

    def _check_failures(self) -> None:
        for member in self._members:
            program = member.program
            if member.report and program.state is State.FAILED:
                refused = member in self._learners and program.status == errors.BAD_USAGE
                kind = errors.UsageError if refused else errors.TrainingFailure
                raise kind(f"{member.name} on {member.report.host}: {program.problem}; its output above says more")

    def _tell_unplaced(self) -> None:
        """Reports which members have no node, whenever that changes."""
        now = self._clock()
        silent = [m for m in self._members if m.report is None and now - m.silent_since > PLACE_SECONDS]
        before, self._unplaced = self._unplaced, ", ".join(f"{m.name} (needs {m.needs})" for m in silent[:MAX_NAMES])
        if self._unplaced not in ("", before):
            more = f" and {len(silent) - MAX_NAMES} more" if len(silent) > MAX_NAMES else ""
            self._say(f"waiting for room: {self._unplaced}{more}; the cluster has {launch_plan.listing(nodes())}")

    # ------------------------------------------------------------------------------------ the end

    def _stop(self) -> keepers.ProgramSnapshot | None:
        """Stops everything, learners first. Returns the first learner's last state, or None if it is lost."""
        saved = _stop_all(self._learners, SAVE_SECONDS)
        _stop_all(self._members[self._plan.num_learners :], LEAVE_SECONDS)
        for member in self._members:
            ray.kill(member.handle, no_restart=True)
        first = saved.get(self._members[0].name) if self._members else None
        return first.program if first else None


def _stop_all(members: Sequence[_Member], seconds: float) -> dict[str, Report]:
    """Returns the last reports of all responding actors, by name."""
    calls = {member.handle.stop.remote(seconds): member.name for member in members if member.report is not None}
    reports = {}
    for call in ray.wait(list(calls), num_returns=len(calls), timeout=seconds + LEAVE_SECONDS)[0] if calls else ():
        with contextlib.suppress(ray.exceptions.RayError):
            reports[calls[call]] = ray.get(call)
    return reports
