"""Places learners and workers on a Ray cluster and supervises them.

The launcher sends every actor its desired state and waits for the actual state (`ray_actors`). Ray restarts actors
that have died, on any node with room, and the next call brings the new one up to date. The launcher itself decides
little: workers follow the learners' newest addresses, further learners follow the first one's coordinator, and
everything ends when the first learner's program has finished or the user stops it. If one learner is lost, the others
end, and their actors start them again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
import ray.exceptions

import seedzero
from seedzero.config import machines
from seedzero.core import errors
from seedzero.interfaces.launch import launch_plan, ray_actors
from seedzero.learner.processes import keepers, signals

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
def connected(address: str, check_here: Callable[[launch_plan.Nodes], None]) -> Iterator[bool]:
    """Connects this process to a cluster while entered; yields whether the cluster was started for this launch.

    address: HOST:PORT of a cluster (UsageError if there is none), or "local" to start one on this machine. "" takes
    that of RAY_ADDRESS, else one that runs on this machine, else starts one. check_here: called with the cores of a
    cluster before it is started; it may raise an error.
    """
    try:
        yield _connect(address, check_here)
    finally:
        ray.shutdown()


def _connect(address: str, check_here: Callable[[launch_plan.Nodes], None]) -> bool:
    if "://" in address:
        raise errors.UsageError(
            f"--address={address}: the launcher must run within the cluster's network; give HOST:PORT, or submit it: "
            "ray job submit --address=http://HEAD:8265 -- seedzero launch ray ..."
        )
    if address != "local":
        try:
            ray.init(address or "auto", namespace=NAMESPACE, logging_level="WARNING")
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
        ray.init("local", namespace=NAMESPACE, logging_level="WARNING", num_cpus=num_cores)
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
    report: ray_actors.Report | None = None  # its last report; None before the first, and after a loss
    call: Any = None  # a call without a response, if any
    order: ray_actors.Order | None = None  # the desired state that this call sent
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
                self._add(name, ray_actors.Learner, plan.learner, plan.learner.num_accelerators, index, name)
            for index in range(plan.num_workers):
                self._add(f"worker-{index}", ray_actors.Worker, plan.worker, index, scheduling_strategy="SPREAD")
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

    def _order(self, member: _Member) -> ray_actors.Order:
        first, learners = self._members[0], self._learners
        if member not in learners:
            addresses = [learner.address for learner in learners]
            address = ",".join(addresses) if all(addresses) else ""
        elif member is first:
            address = ""
        else:
            address = first.report.coordinator if first.report else member.order.address if member.order else ""
        return ray_actors.Order(seedzero.__version__, self._plan, address)

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

    def _tell_change(self, member: _Member, report: ray_actors.Report) -> None:
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


def _stop_all(members: Sequence[_Member], seconds: float) -> dict[str, ray_actors.Report]:
    """Returns the last reports of all responding actors, by name."""
    calls = {member.handle.stop.remote(seconds): member.name for member in members if member.report is not None}
    reports = {}
    for call in ray.wait(list(calls), num_returns=len(calls), timeout=seconds + LEAVE_SECONDS)[0] if calls else ():
        with contextlib.suppress(ray.exceptions.RayError):
            reports[calls[call]] = ray.get(call)
    return reports
