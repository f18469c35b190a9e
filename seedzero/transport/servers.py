"""Runs the learner's gRPC server on its own thread, with enough open files; `streams` serves the workers."""

from __future__ import annotations

import asyncio
import collections
import json
import resource
import time
from collections.abc import Callable

import grpc
import numpy as np

from seedzero.config import sections
from seedzero.core import errors
from seedzero.transport import (
    codec,
    grpc_status,
    inference_pb2,
    listeners,
    loop_thread,
    messages,
    model_pool,
    security,
    streams,
)

# Raises the limit of open files, because every connection needs a file.
_OTHERS = 256
"""A generous number of open files that a learner needs besides workers' connections."""


def allow_descriptors(max_workers: int) -> str | None:
    """Raises this process's limit of open files to the system's; returns a warning if that is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max_workers + _OTHERS
    if soft == resource.RLIM_INFINITY:
        return None
    allowed = max(soft, needed) if hard == resource.RLIM_INFINITY else hard  # some systems do not grant infinity
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed >= needed:
        return None
    return (
        f"{allowed} open files are allowed here (ulimit -Hn) and --transport.max_workers={max_workers} may take "
        f"{needed}: workers beyond that wait for a connection; raise the limit, or lower --transport.max_workers"
    )


_MAX_ASKING = 8
"""The most live calls at a time; each is answered as soon as its request is there."""
_ASK_SECONDS = 5.0


class Server:
    """Serves workers. Any thread may call its methods, except that start and stop must not run on the server's own."""

    def __init__(
        self,
        learner: messages.Handler,
        settings: sections.TransportConfig,
        *,
        secured: security.ServerSecurity = security.OPEN,
        local: str = "",
        elsewhere: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.monotonic,
        live: messages.Live | None = None,
        pool: tuple[model_pool.ModelPool, str] | None = None,
        regroup: messages.Regroup = lambda *_: "",
    ) -> None:
        """Only prepares; see start().

        secured: token and TLS of the address, if it is HOST:PORT.
        local: a second address, unix:PATH, for processes of this user alone, or "".
        elsewhere: returns the address of the run's host with the most room, as workers name it, or "". The server's
            thread calls it for each worker with a valid token that does not fit, so it must not block.
        live: answers pages; None for a learner without them.
        pool: gives parameters to those with this token; None gives them to nobody.
        regroup: hears of the measurements of each worker that reports some.
        """
        self.has_started = False
        """Whether its addresses are bound, so that the run may make progress."""
        self.address = ""
        """The configured address as workers name it, with the real port, once the server has started."""
        self._settings, self._secured, self._local = settings, secured, local
        self._streams = streams.Streams(streams.LearnerSide(learner, settings, clock, regroup), elsewhere)
        self._service = Service(learner, self._streams, security.Guard(secured.token, clock), live)
        guard = security.Guard(pool[1] if pool else "", clock, "--serve.token_file")
        self._pool = model_pool.ModelService(pool[0], guard) if pool else None
        # Answers from other threads; bounded, because a group has at most one unanswered step.
        self._mail: collections.deque[tuple[str, int, int, bytes, bool]] = collections.deque()
        self._mail_announced = False
        self._thread: loop_thread.LoopThread | None = None

    def start(self) -> str:
        """Binds the configured addresses and serves from now on.

        Raises UsageError for an address in use or impossible.

        Returns the configured address as workers name it, with the real port: "127.0.0.1:50051" or "unix:/path".
        """
        _keep_freed_memory()
        self._thread = loop_thread.LoopThread("seedzero-server")
        try:
            self.address = self._thread.run(self._serve())
        except errors.UsageError:
            self._thread.stop()
            self._thread = None
            raise
        self.has_started = True
        return self.address

    def reply(
        self,
        request: messages.StepRequest,
        actions: np.ndarray,
        weights_version: int,
        bot: np.ndarray | None = None,
    ) -> None:
        """Answers a step. Answers to sessions that are over, and all after stop(), are dropped.

        actions: [E] of any integer dtype, or [E, D] of any float dtype. bot: as in `messages.Actions`, not all 0.
        """
        num_axes = 2 if actions.dtype.kind == "f" else 1
        if actions.shape[:1] != request.first.shape or actions.ndim != num_axes:
            raise errors.InvalidMessage(
                f"the actions for group {request.group} have shape {actions.shape}; expected {request.first.shape}, "
                "continuous ones with one axis more"
            )
        data = codec.encode_actions(request.group, request.sequence, actions, weights_version, bot)
        if (thread := self._thread) is None:
            return
        answer = (request.session_id, request.group, request.sequence, data, bot is not None)
        if thread.is_current():
            self._streams.side.deliver(*answer)
            return
        self._mail.append(answer)
        if not self._mail_announced:  # one wake-up for all answers of a batch
            self._mail_announced = True
            thread.post(self._deliver_mail)

    def restart(self, session_id: str, reason: str) -> None:
        """Ends a session without Handler.end, and makes its worker reset and join again.

        A message that the server's thread handles at this moment may still reach the handler.
        """
        if (thread := self._thread) is not None:
            thread.post(self._streams.side.restart, session_id, reason)

    def present(self) -> list[messages.Presence]:
        """Returns all sessions with their last signs of life and their links."""
        return self._streams.side.present()

    def silent(self) -> str:
        """Returns the workers that send only heartbeats, with times, or ""."""
        return self._streams.side.silent

    def stop(self, *, finished: bool, reason: str, grace_seconds: float = 2.0) -> None:
        """Ends all streams and the server. Once `stop` has begun, only the handler's status is called.

        finished: whether training is over, so that workers leave with success; otherwise they try to reconnect.
        grace_seconds: longest wait for workers to leave.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.run(self._shut_down(finished, reason, grace_seconds))
            thread.stop()

    def _deliver_mail(self) -> None:
        self._mail_announced = False
        while self._mail:
            self._streams.side.deliver(*self._mail.popleft())

    async def _serve(self) -> str:
        more = (self._pool.methods(),) if self._pool else ()
        self._listener = listeners.Listener((*self._service.methods(), *more), self._settings, self._secured)
        bound = await self._listener.start(self._settings.listen, self._local)
        self._streams.watch_leases()
        return bound

    async def _shut_down(self, finished: bool, reason: str, grace_seconds: float) -> None:
        await self._streams.dismiss(finished, reason, grace_seconds)
        await self._listener.stop()


class Service:
    """Answers calls without reading them, except in `streams`. Runs on the server's event-loop thread."""

    def __init__(
        self,
        learner: messages.Handler,
        workers: streams.Streams[streams.LearnerSide],
        guard: security.Guard,
        live: messages.Live | None = None,
    ) -> None:
        self._learner, self._streams, self._guard, self._live = learner, workers, guard, live
        self._num_asking = 0
        self._health = listeners.Health(lambda: workers.farewell is None)

    def methods(self) -> tuple[grpc.GenericRpcHandler[bytes, bytes], ...]:
        """Returns all methods for a grpc.aio server.

        gRPC sees each as a stream, because it would read and keep the whole request of a unary method before the token
        is checked. Only Connect and Live read, as raw bytes, which `codec` decodes.
        """
        unary, stream = grpc.stream_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        reply = inference_pb2.StatusReply.SerializeToString
        live = unary(self.live, None, inference_pb2.LiveReply.SerializeToString)
        ours = {"Connect": stream(self.connect), "Status": unary(self.status, None, reply)}
        ours |= {"Live": live} if self._live else {}
        return grpc.method_handlers_generic_handler(codec.SERVICE, ours), self._health.methods()

    async def status(self, requests: object, context: streams.Context) -> inference_pb2.StatusReply:
        """Returns the learner's counters and state."""
        await listeners.refuse_strangers(self._guard, context)
        try:
            return inference_pb2.StatusReply(json=json.dumps(dict(self._learner.status())))
        except Exception as error:  # the text of an unexpected error must not reach the caller
            failure = grpc_status.failure_of(error)
        await context.abort(failure.code, failure.details)

    async def live(self, requests: object, context: streams.Context) -> inference_pb2.LiveReply:
        """Returns the newest calls, the workers, and the steps of an environment."""
        await listeners.refuse_strangers(self._guard, context)
        if self._num_asking == _MAX_ASKING:
            many = f"{_MAX_ASKING} pages ask this learner at the moment; try again"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, many)
        self._num_asking += 1
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                asked = codec.live_ask(await context.read())
            assert self._live is not None
            text, observations = self._live(asked, self._streams.side.present())
            return inference_pb2.LiveReply(json=text, observations=observations)
        except TimeoutError:
            failure = grpc_status.Failure(grpc.StatusCode.DEADLINE_EXCEEDED, f"no request came for {_ASK_SECONDS:g} s")
        except Exception as error:  # the text of an unexpected error must not reach the caller
            failure = grpc_status.failure_of(error)
        finally:
            self._num_asking -= 1
        await context.abort(failure.code, failure.details)

    async def connect(self, requests: object, context: streams.Context) -> None:
        """Serves a worker's stream from beginning to end."""
        await listeners.refuse_strangers(self._guard, context)
        await self._streams.serve(context)


def _keep_freed_memory() -> None:
    """Makes the process reuse the memory of freed messages instead of returning it to the system.

    Otherwise the pages of every large message are returned, mapped and cleared again: about 30 page faults and a tenth
    of a millisecond for 590 kB. glibc raises its thresholds to the size of the largest mapped block ever freed, up to
    32 MiB. This block is never touched and costs nothing; without glibc it has no effect.
    """
    bytes(32 * 2**20 - 64 * 2**10)
