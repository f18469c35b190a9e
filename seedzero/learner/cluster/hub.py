"""Runs on host 0: a gRPC server for the other hosts, which lets them join and makes the decisions."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import grpc
from grpc import aio

from seedzero.config import sections
from seedzero.core import errors, forks, printable
from seedzero.learner.cluster import link, messages
from seedzero.learner.loop import agreement
from seedzero.transport import addresses, grpc_status, options, security


# Keeps track of the hosts that join a run, and of their common checkpoint, without threads, clocks or files.
class Made(NamedTuple):
    """A checkpoint of host 0."""

    num_hosts: int  # hosts of the run that made it
    state_sha256: str = ""  # digest of its parameters; "" for a single host
    # training steps of the other hosts by index, and of those that had left before
    others: Mapping[str, int] = {}


class Roll:
    """The hosts that have joined so far; `own` is host 0's hello."""

    def __init__(self, own: messages.HostHello) -> None:
        self._own = own
        self.joined: dict[int, messages.HostHello] = {own.index: own}

    @property
    def missing(self) -> list[int]:
        """The hosts that have not joined yet."""
        return [index for index in range(self._own.num) if index not in self.joined]

    def leave(self, index: int) -> None:
        """Removes a host that has ended before all have joined."""
        del self.joined[index]

    def admit(self, hello: messages.HostHello) -> None:
        """Adds a host. Raises UsageError if it does not belong to this run, Occupied if it has joined already."""
        own, name = self._own, f"host {hello.index}"
        if hello.version != own.version or hello.program != own.program:
            raise errors.UsageError(
                f"{name} runs {hello.program} (messages {hello.version}), and host 0 {own.program} (messages "
                f"{own.version}); install the same versions on all hosts, with the same JAX_ENABLE_X64"
            )
        if hello.num != own.num:
            raise errors.UsageError(
                f"{name} was started with --cluster.num_hosts={hello.num}, and host 0 with "
                f"--cluster.num_hosts={own.num}; give all "
                "the same"
            )
        if hello.index in self.joined:
            raise errors.Occupied(
                f"--cluster.index={hello.index} has joined already; start each host with an index of its own, "
                f"{self._range()} beside host 0"
            )
        if not 0 < hello.index < own.num:
            raise errors.UsageError(
                f"--cluster.index={hello.index}: beside host 0 this run of {own.num} has {self._range()}"
            )
        if hello.settings != own.settings:
            raise errors.UsageError(
                f"{name} has other settings than host 0; give all hosts the same command but for --cluster.index, "
                "--run_dir, --listen and the settings of files and local workers"
            )
        if messages.are_apart(hello.reached_at, own.reached_at):
            raise errors.UsageError(
                f"{name} is reached at {hello.reached_at} and host 0 at {own.reached_at}, which cannot exchange "
                "gradients; give --cluster.coordinator an address of host 0 in the network of all hosts, or each host "
                "its --cluster.interface"
            )
        self.joined[hello.index] = hello

    def warnings(self) -> list[str]:
        """Returns a sentence for each host whose programs may not compute the same bits as host 0's."""
        return [
            f"host {index} has XLA_FLAGS={hello.xla_flags or '(none)'}, and host 0 {self._own.xla_flags or '(none)'}: "
            "flags that change the arithmetic let the hosts' parameters drift apart; give all hosts the same"
            for index, hello in sorted(self.joined.items())
            if hello.xla_flags != self._own.xla_flags
        ]

    def _range(self) -> str:
        last = self._own.num - 1
        return "--cluster.index=1" if last == 1 else f"--cluster.index=1 to {last}"


def common_step(own: Mapping[int, Made], others: Mapping[int, Mapping[int, str] | None]) -> int:
    """Returns the update of the newest checkpoint that all the hosts that made it have, or -1 if there is none.

    A checkpoint with other parameters is a different one, from an abandoned past or another run. If there is none, and
    more than the run's first checkpoint was made, host 0's newest is taken. Hosts without it begin with an empty
    replay, because their disks are lost although the parameters are not.

    Args:
      own: host 0's checkpoints by their updates.
      others: those of each other host, as in `HostHello.steps`.

    Raises UsageError if only other hosts have checkpoints.
    """
    if not own:
        if having := [index for index, steps in others.items() if steps]:
            raise errors.UsageError(
                f"host {min(having)} has checkpoints and host 0 has none; start every host with the run directory "
                "that it had, or a new run in new ones"
            )
        return -1
    for step in sorted(own, reverse=True):
        made = own[step]
        needed = [steps for index, steps in others.items() if index < made.num_hosts and steps is not None]
        if all(steps.get(step) == made.state_sha256 for steps in needed):
            return step
    # these hosts ended while it was written
    is_first = len(own) == 1 and any(steps == {} for steps in others.values())
    return -1 if is_first else max(own)


_HELLO_SECONDS = 10.0
_FINISHED_SECONDS = 5.0
_TELL_SECONDS = 1.0
"""Longest time for the other hosts to hear why the run ends."""
_MAX_UNSENT = 10_000
"""Most messages that wait for a host that does not read; after that it counts as gone."""


class Hub(link.Link):
    """Admits the other hosts, counts their reports, and sends them decisions."""

    def __init__(
        self,
        hello: messages.HostHello,
        address: str,
        settings: sections.TransportConfig,
        *,
        secured: security.ServerSecurity = security.OPEN,
        silence_seconds: float,
        max_env_steps: int = 0,
        made: Mapping[int, Made] = {},
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """address: HOST:PORT; port 0 takes any free one. max_env_steps: as in `DecisionTally`.

        made: host 0's checkpoints, as in `common_step`.
        """
        hello = hello if hello.reached_at else dataclasses.replace(hello, reached_at=messages.own_end(address))
        super().__init__(hello, silence_seconds, clock)
        self._roll = Roll(hello)
        self._tally = agreement.DecisionTally(hello.num, max_env_steps)
        self._guard = security.Guard(secured.token, clock)
        self._unsent: dict[int, asyncio.Queue[bytes]] = {}
        self._heard: dict[int, float] = {}
        self._seen: dict[int, Mapping[str, Any]] = {}  # newest counters of every host
        self._found: dict[str, dict[str, str]] = {}  # by subject: what each host has said so far, by index
        self._leaving: set[int] = set()
        self._begins, self._made = False, made
        self._losing: asyncio.Task[None] | None = None
        self.address = self._thread.run(self._serve(address, settings, secured))

    async def _serve(self, address: str, settings: sections.TransportConfig, secured: security.ServerSecurity) -> str:
        given = options.server(settings, messages.MAX_BYTES)
        self._server = aio.server(options=given, maximum_concurrent_rpcs=2 * self.hello.num + 8)
        join = grpc.stream_stream_rpc_method_handler(self._join)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(messages.SERVICE, {messages.METHOD: join}),)
        )
        target = addresses.bound_target(address)
        try:
            if secured.credentials is None:
                port = self._server.add_insecure_port(target)
            else:
                port = self._server.add_secure_port(target, secured.credentials)
        except RuntimeError:
            raise errors.UsageError(
                f"cannot listen on --cluster.coordinator={address}: the address is in use or not this machine's"
            ) from None
        forks.keep_listener(port)
        await self._server.start()
        self._beating = asyncio.create_task(self.beating(self._beat))
        return f"{address.rpartition(':')[0]}:{port}"

    def meet(self, deadline_seconds: float) -> messages.Begin:
        with self._changed:
            self._changed.wait_for(lambda: not self._roll.missing or self._lost, deadline_seconds)
            missing = self._roll.missing
            self._begins = not missing
        if self._lost:
            raise errors.TrainingFailure(f"{self._lost}; start all hosts again")
        if missing:
            raise errors.TrainingFailure(
                f"host {', '.join(map(str, missing))} did not join within {deadline_seconds:g} s at {self.address}; "
                f"start {'it' if len(missing) == 1 else 'them'} with the same command, and --cluster.index"
                f"{messages.only_here(self.address)}"
            )
        self.warnings = [printable.escape(text) for text in self._roll.warnings()]
        others = {index: hello.steps for index, hello in self._roll.joined.items() if index}
        step = common_step(self._made, others)
        num_hosts = self._made[step].num_hosts if step in self._made else 1
        parts = [index for index, steps in others.items() if index < num_hosts and steps and step in steps]
        made = self._made[step].others if step in self._made else {}
        num_gone = sum(number for name, number in made.items() if name not in map(str, parts))
        self._thread.post(self._tally.count_gone, num_gone)
        begin = messages.Begin(_free_address(self.address), step, num_hosts, (0, *sorted(parts)), num_gone)
        self._thread.post(self._tell_all, {"begin": dataclasses.astuple(begin)})
        return begin

    def send(self, message: messages.Message) -> None:
        self._thread.post(self._handle_own, message)

    async def close(self) -> None:
        self._beating.cancel()
        await self._server.stop(1.0)
        forks.forget_listener(int(self.address.rpartition(":")[2]))

    # --- on the link's thread

    async def _join(self, requests: object, context: aio.ServicerContext[bytes, bytes]) -> None:
        """Serves a host from its hello until it ends."""
        try:
            self._guard.check(context.invocation_metadata() or (), context.peer())
            async with asyncio.timeout(_HELLO_SECONDS):
                data = await context.read()
            hello = messages.hello(messages.decode(data if isinstance(data, bytes) else b""))
            if self._begins or self._lost:
                raise errors.Occupied(f"the run continues without a new host {hello.index}; all start together again")
            self._roll.admit(hello)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no hello came for {_HELLO_SECONDS:g} s")
            return
        except errors.Error as error:
            await grpc_status.failure_of(error).abort(context)
            return
        index, reason = hello.index, f"host {hello.index} has ended"  # also if gRPC cancels this call
        self._heard[index], self._unsent[index] = self._clock(), asyncio.Queue(_MAX_UNSENT)
        with self._changed:
            self._changed.notify_all()
        writing = asyncio.create_task(self._write(context, self._unsent[index]))
        try:
            while isinstance(data := await context.read(), bytes):
                self._heard[index] = self._clock()
                self._handle(index, messages.decode(data))
        except (errors.Error, ValueError, KeyError, TypeError) as error:
            reason = f"host {index} sends what no host sends: {error}"
        except aio.BaseError:
            reason = f"the connection of host {index} broke: it has ended, or the network does not work"
        finally:
            writing.cancel()
            del self._heard[index], self._unsent[index]
            with self._changed:  # not between the last look of `meet` and its begin
                if is_early := not self._begins and not self._lost:
                    self._roll.leave(index)  # it may join again
            if not is_early and index not in self._leaving:
                self._lose_all(reason)

    async def _write(self, context: aio.ServicerContext[bytes, bytes], unsent: asyncio.Queue[bytes]) -> None:
        with contextlib.suppress(aio.BaseError):
            while True:
                await context.write(await unsent.get())
                unsent.task_done()

    def _handle_own(self, message: messages.Message) -> None:
        try:
            self._handle(0, message)
        except errors.Error as error:
            self._lose_all(str(error))

    def _handle(self, index: int, message: messages.Message) -> None:
        for kind, value in message.items():
            if kind == "beat":
                self._seen[index] = value
                self._decide(self._tally.stepped(index, messages.steps(value["steps"]).env_steps))
            elif kind == "built":
                self._decide(self._tally.built(index, messages.number(value), str(message["resolved"])))
            elif kind == "ready":
                self._decide(self._tally.ready(index, messages.number(value), messages.steps(message["steps"])))
            elif kind == "ask":
                reason = printable.escape(str(message.get("reason", ""))[: messages.MAX_TEXT])
                self._decide(self._tally.asked(agreement.Kind(value), reason))
            elif kind == "spent":
                reason = printable.escape(str(value)[: messages.MAX_TEXT])
                self._decide(self._tally.spent(index, reason))
            elif kind == "found":
                subject, words = map(str, value)
                found = self._found.setdefault(subject, {})
                found[str(index)] = words
                if len(found) == self.hello.num:
                    self._tell_all({"gathered": [subject, self._found.pop(subject)]})
            elif kind == "leaving":
                self._leaving.add(index)
                if index == 0 and not self._tally.has_begun:  # as far as host 0 knows, the run is finished
                    nothing = "host 0 has nothing left to do: the run is finished"
                    asyncio.get_running_loop().call_later(_FINISHED_SECONDS, self._lose_all, nothing)
                if len(self._leaving) == self.hello.num:
                    self._tell_all({"left": True})

    def _decide(self, decisions: list[agreement.Decision]) -> None:
        if not decisions:
            return
        seen = {str(index): dataclasses.asdict(found) for index, found in decisions[-1].steps.items()}
        made = [[kind.value, number, reason] for kind, number, reason, _ in decisions]
        self._tell_all({"decisions": made, "steps": seen})

    def _tell_all(self, message: messages.Message) -> None:
        data = messages.encode(message)
        for index, unsent in self._unsent.items():
            try:
                unsent.put_nowait(data)
            except asyncio.QueueFull:
                self._lose_all(f"host {index} reads nothing")
        self.receive(message)

    def _lose_all(self, reason: str) -> None:
        self._losing = self._losing or asyncio.create_task(self._lose_last(reason))

    async def _lose_last(self, reason: str) -> None:
        """Tells the other hosts first, because this one may end at once."""
        told = []
        for unsent in self._unsent.values():
            with contextlib.suppress(asyncio.QueueFull):
                unsent.put_nowait(messages.encode({"lost": reason}))
                told.append(asyncio.create_task(unsent.join()))
        if told:
            await asyncio.wait(told, timeout=_TELL_SECONDS)
        self.lose(reason)

    def _beat(self) -> None:
        if own := self.counters():
            self._handle(0, {"beat": own})
        self._tell_all({"beat": {str(index): found for index, found in self._seen.items()}})
        now = self._clock()
        for index, heard in self._heard.items():
            if index not in self._leaving and now - heard > self._silence_seconds:
                self._lose_all(link.silent(index, now - heard))


def _free_address(near: str) -> str:
    """Returns a free port on the same machine, where JAX's processes can meet."""
    host = near.rpartition(":")[0]
    with socket.socket(socket.AF_INET6 if host.startswith("[") else socket.AF_INET) as probe:
        probe.bind(("", 0))
        return f"{host}:{probe.getsockname()[1]}"
