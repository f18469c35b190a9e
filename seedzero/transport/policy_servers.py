"""Answers any program with the actions of saved agents. `policy_sides` handles the server's messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc

from seedzero.config import sections
from seedzero.core import errors
from seedzero.transport import (
    grpc_status,
    inference_pb2,
    listeners,
    loop_thread,
    policy_codec,
    policy_sides,
    security,
    streams,
)

MAX_WATCHING = 64
"""The most streams of Watch; each holds one announcement at a time."""
Answer = tuple[str, int, bytes | grpc_status.Failure]
"""The session's id, the sequence number, and the message, or a failure that ends the session."""


class PolicyServer:
    """Serves clients on a separate thread. Any other thread may call its methods."""

    def __init__(
        self,
        player: policy_sides.PolicyPlayer,
        settings: sections.TransportConfig,
        *,
        secured: security.ServerSecurity = security.OPEN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Only prepares; see start()."""
        self._settings, self._secured = settings, secured
        self._side = policy_sides.PolicySide(player, settings, clock)
        self._streams = streams.Streams(self._side)
        self._service = PolicyService(player, self._streams, security.Guard(secured.token, clock))
        self._thread: loop_thread.LoopThread | None = None

    def start(self) -> str:
        """Binds the address, serves from now on and returns the address.

        Raises UsageError if it is in use or impossible.
        """
        self._thread = loop_thread.LoopThread("seedzero-policy")
        try:
            return self._thread.run(self._serve())
        except errors.UsageError:
            self._thread.stop()
            self._thread = None
            raise

    def answer(self, answers: Sequence[Answer]) -> None:
        """Answers requests, with one wake-up for all."""
        if (thread := self._thread) is not None:
            thread.post(self._deliver, answers)

    def announce(self, players: Mapping[str, int]) -> None:
        """Announces players and versions to all watchers."""
        if (thread := self._thread) is not None:
            thread.post(self._service.announce, players)

    @property
    def num_sessions(self) -> int:
        """Number of sessions at the moment."""
        return len(self._side.sessions)

    def stop(self, reason: str, grace_seconds: float = 2.0) -> None:
        """Ends all streams and the server."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.run(self._shut_down(reason, grace_seconds))
            thread.stop()

    def _deliver(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            self._side.deliver(*answer)

    async def _serve(self) -> str:
        self._listener = listeners.Listener(
            self._service.methods(), self._settings, self._secured, flags="--port and --host"
        )
        bound = await self._listener.start(self._settings.listen)
        self._streams.watch_leases()
        return bound

    async def _shut_down(self, reason: str, grace_seconds: float) -> None:
        await self._streams.dismiss(False, reason, grace_seconds)
        await self._listener.stop()


class PolicyService:
    """Answers calls, reading nothing before the token is checked. Runs on the server's event-loop thread."""

    def __init__(
        self,
        player: policy_sides.PolicyPlayer,
        clients: streams.Streams[policy_sides.PolicySide],
        guard: security.Guard,
    ) -> None:
        self._player, self._streams, self._guard = player, clients, guard
        self._health = listeners.Health(lambda: clients.farewell is None)
        self._num_watching = 0
        self._players = player.offer().players
        self._changed = asyncio.Event()

    def methods(self) -> tuple[grpc.GenericRpcHandler[bytes, bytes], ...]:
        """Returns all methods for a grpc.aio server as streams, because gRPC would read a unary request."""
        description = inference_pb2.Description.SerializeToString
        ours = {
            "Describe": grpc.stream_unary_rpc_method_handler(self.describe, None, description),
            "Act": grpc.stream_stream_rpc_method_handler(self.act),
            "Watch": grpc.stream_stream_rpc_method_handler(
                self.watch, None, inference_pb2.Announcement.SerializeToString
            ),
        }
        return grpc.method_handlers_generic_handler(policy_codec.SERVICE, ours), self._health.methods()

    async def describe(self, requests: object, context: listeners.Context) -> inference_pb2.Description:
        """Returns the spec, the players and their versions."""
        await listeners.refuse_strangers(self._guard, context)
        return policy_codec.encode_offer(self._player.offer())

    async def act(self, requests: object, context: listeners.Context) -> None:
        """Serves a client's stream from beginning to end."""
        await listeners.refuse_strangers(self._guard, context)
        await self._streams.serve(context)

    async def watch(self, requests: object, context: Any) -> None:
        """Sends players and versions, now and after every change."""
        await listeners.refuse_strangers(self._guard, context)
        if self._num_watching == MAX_WATCHING:
            many = f"{MAX_WATCHING} streams watch this server already; ask by Describe instead"
            await grpc_status.failure_of(errors.SlotsExhausted(many)).abort(context)
        self._num_watching += 1
        try:
            while True:
                changed = self._changed
                await context.write(inference_pb2.Announcement(players=policy_codec.served(self._players)))
                await changed.wait()
        finally:
            self._num_watching -= 1

    def announce(self, players: Mapping[str, int]) -> None:
        """Wakes all watchers; a slow one misses what comes in between."""
        self._players = players
        before, self._changed = self._changed, asyncio.Event()
        before.set()
