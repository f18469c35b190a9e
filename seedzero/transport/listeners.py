"""Runs a gRPC server at its addresses, with what every service has: health, and the token before anything else."""

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
"""The most streams of strangers that may stay; each may hold some megabytes that nobody reads."""
_HEALTH_SERVICE = "grpc.health.v1.Health"
_SERVING = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)
_NOT_SERVING = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)


class Listener:
    """A server of some methods on its caller's event loop."""

    def __init__(
        self,
        methods: Sequence[grpc.GenericRpcHandler[bytes, bytes]],
        settings: sections.TransportConfig,
        secured: security.ServerSecurity,
        *,
        flags: str = "--listen",
    ) -> None:
        """secured: the access of HOST:PORT. flags: the user's, for the address."""
        forks.check("gRPC")
        self._server = aio.server(options=options.server(settings))
        forks.uses("gRPC")
        self._server.add_generic_rpc_handlers(tuple(methods))
        self._secured, self._flags = secured, flags
        self._places: list[int | str] = []  # ports, and paths of unix sockets

    async def start(self, listen: str, local: str = "") -> str:
        """Serves at one or two addresses; returns the first as clients name it, with the real port.

        Raises UsageError if an address is in use or impossible.
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
        # a socket's file belongs to this user alone from the beginning, because nothing else guards it
        mask = os.umask(0o077)
        try:
            if is_unix or credentials is None:
                port = self._server.add_insecure_port(target)
            else:
                port = self._server.add_secure_port(target, credentials)
        except RuntimeError:
            raise errors.UsageError(
                f"cannot listen on {listen}: the address is in use or not this machine's; choose another by "
                f"{self._flags}"
            ) from None
        finally:
            os.umask(mask)
        self._places.append(str(addresses.unix_path(listen)) if is_unix else port)
        forks.keep_listener(self._places[-1])
        if is_unix:  # its reader may be in another directory
            return f"{addresses.UNIX_PREFIX}{addresses.unix_path(listen)}"
        return f"{listen.rpartition(':')[0]}:{port}"


class Health:
    """The standard health service.

    Everybody may ask, and it is the same for every service, because it reads no request.
    """

    def __init__(self, is_serving: Callable[[], bool]) -> None:
        self._is_serving = is_serving
        self._num_watching = 0

    def methods(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """Returns the methods for a grpc.aio server as streams, because gRPC would read a unary request."""
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
        """Sends the server's health, which never changes until the server ends."""
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
    """Ends a call without the token, before anything of it is read."""
    try:
        guard.check(context.invocation_metadata() or (), context.peer())
    except errors.AccessDenied as error:
        await grpc_status.failure_of(error).abort(context)
