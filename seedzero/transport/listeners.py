"""A gRPC server at its addresses, and the parts that every service has: health, and the token before anything else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2

from seedzero.config import sections
from seedzero.core import errors, forks
from seedzero.transport import addresses, grpc_status, options, security

Context = grpc_status.Context

_MAX_WATCHING = 2
"""Streams of strangers that stay: each may hold some megabytes that nobody reads."""
_HEALTH_SERVICE = "grpc.health.v1.Health"
_SERVING = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)
_NOT_SERVING = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)


class Listener:
    """A server of some methods, on the event loop of its caller."""

    def __init__(
        self,
        methods: Sequence[grpc.GenericRpcHandler[bytes, bytes]],
        settings: sections.TransportConfig,
        secured: security.ServerSecurity,
    ) -> None:
        """secured: of HOST:PORT."""
        self._server = aio.server(options=options.server(settings))
        self._server.add_generic_rpc_handlers(tuple(methods))
        self._secured = secured
        self._places: list[int | str] = []  # ports, and paths of unix sockets

    async def start(self, listen: str, local: str = "") -> str:
        """Serves at an address, and at a second one; returns the first one as clients name it, with the real port.

        UsageError: it is in use, or impossible.
        """
        bound = self._bind(listen)
        if local:
            self._bind(local)
        await self._server.start()
        return bound

    async def stop(self) -> None:
        """Ends all calls."""
        await self._server.stop(None)
        for place in self._places:
            forks.forget_listener(place)

    def _bind(self, listen: str) -> str:
        target, credentials = addresses.bound_target(listen), self._secured.credentials
        is_unix = listen.startswith(addresses.UNIX_PREFIX)
        if is_unix:
            addresses.free_unix_path(listen)
        mask = os.umask(0o077)  # a socket's file is this user's alone from its beginning: nothing else guards it
        try:
            if is_unix or credentials is None:
                port = self._server.add_insecure_port(target)
            else:
                port = self._server.add_secure_port(target, credentials)
        except RuntimeError:
            raise errors.UsageError(
                f"cannot listen on {listen}: the address is in use or not this machine's; choose another by --listen"
            ) from None
        finally:
            os.umask(mask)
        self._places.append(str(addresses.unix_path(listen)) if is_unix else port)
        forks.keep_listener(self._places[-1])
        if is_unix:  # whoever reads it may be in another directory
            return f"{addresses.UNIX_PREFIX}{addresses.unix_path(listen)}"
        return f"{listen.rpartition(':')[0]}:{port}"


class Health:
    """The standard health service: for everybody, and the same for every service, as no request is read."""

    def __init__(self, is_serving: Callable[[], bool]) -> None:
        self._is_serving = is_serving
        self._num_watching = 0

    def methods(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """Returns the methods for a grpc.aio server; each is a stream to gRPC, which would read a unary request."""
        state = health_pb2.HealthCheckResponse.SerializeToString
        health = {
            "Check": grpc.stream_unary_rpc_method_handler(self.check, None, state),
            "Watch": grpc.stream_stream_rpc_method_handler(self.watch, None, state),
        }
        return grpc.method_handlers_generic_handler(_HEALTH_SERVICE, health)

    async def check(self, requests: object, context: Context) -> health_pb2.HealthCheckResponse:
        """Returns the server's health."""
        return _SERVING if self._is_serving() else _NOT_SERVING

    async def watch(self, requests: object, context: Context) -> None:
        """Sends the server's health, unchanged until its end."""
        if self._num_watching == _MAX_WATCHING:
            many = f"{_MAX_WATCHING} streams watch the learner's health already; ask by Check instead"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, many)
        self._num_watching += 1
        try:
            await context.write(await self.check(requests, context))
            await asyncio.Event().wait()  # until either end cancels it
        finally:
            self._num_watching -= 1


async def refuse_strangers(guard: security.Guard, context: Context) -> None:
    """Ends a call without the token; nothing of it was read."""
    try:
        guard.check(context.invocation_metadata() or (), context.peer())
    except errors.AccessDenied as error:
        await grpc_status.failure_of(error).abort(context)
