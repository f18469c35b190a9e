"""The learner's end of the wire: a gRPC server on a thread of its own."""

from __future__ import annotations

import collections
import os
import time
from collections.abc import Callable

import numpy as np
from grpc import aio

from seedzero.config import sections
from seedzero.core import errors
from seedzero.transport import address as addresses
from seedzero.transport import codec, loop_thread, messages, options, security, service


class Server:
    """Serves workers. Its methods may be called on any thread; start and stop not on the server's own."""

    def __init__(
        self,
        learner: messages.Handler,
        settings: sections.TransportConfig,
        *,
        secured: security.ServerSecurity = security.OPEN,
        local: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepares only; see start().

        secured: token and TLS of the address, if it is HOST:PORT.
        local: a second address, unix:PATH, for processes of this user alone; empty: none.
        """
        self._settings = settings
        self._secured = secured
        self._local = local
        self._service = service.Service(learner, settings, clock, security.Guard(secured.token, clock))
        # Answers from other threads; bounded, since a group has at most one unanswered step.
        self._mail: collections.deque[tuple[str, int, int, bytes]] = collections.deque()
        self._mail_announced = False
        self._thread: loop_thread.LoopThread | None = None

    def start(self) -> str:
        """Binds the configured addresses and serves from now on; UsageError where one cannot be bound.

        Returns the configured address as workers name it, with the real port: "127.0.0.1:50051" or "unix:/path".
        """
        _keep_freed_memory()
        self._thread = loop_thread.LoopThread("seedzero-server")
        try:
            return self._thread.run(self._serve())
        except errors.UsageError:
            self._thread.stop()
            self._thread = None
            raise

    def reply(self, request: messages.StepRequest, actions: np.ndarray, weights_version: int) -> None:
        """Answers a step. Answers to a session that is over are dropped, and so are all after stop().

        actions: [E] of any integer dtype, or [E, D] of any float dtype.
        """
        num_axes = 2 if actions.dtype.kind == "f" else 1
        if actions.shape[:1] != request.first.shape or actions.ndim != num_axes:
            raise errors.InvalidMessage(
                f"the actions for group {request.group} have shape {actions.shape}; expected {request.first.shape}, "
                "continuous ones with one axis more"
            )
        data = codec.encode_actions(request.group, request.sequence, actions, weights_version)
        thread = self._thread
        if thread is None:
            return
        if thread.is_current():
            self._service.side.deliver(request.session_id, request.group, request.sequence, data)
            return
        self._mail.append((request.session_id, request.group, request.sequence, data))
        if not self._mail_announced:  # one wake-up for all answers of a batch
            self._mail_announced = True
            thread.post(self._deliver_mail)

    def restart(self, session_id: str, reason: str) -> None:
        """Ends a session without Handler.end, and has its worker reset and join again.

        A message that the server's thread handles at this moment may still reach the handler.
        """
        if (thread := self._thread) is not None:
            thread.post(self._service.side.restart, session_id, reason)

    def silent(self) -> str:
        """Returns which workers send heartbeats alone, and for how long; "": none."""
        return self._service.side.silent

    def stop(self, *, finished: bool, reason: str, grace_seconds: float = 2.0) -> None:
        """Ends all streams and the server; from its beginning on the handler is not called, save for its status.

        finished: training is over, workers leave with success; else they try to reconnect.
        grace_seconds: longest wait for workers to leave.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.run(self._shut_down(finished, reason, grace_seconds))
            thread.stop()

    def _deliver_mail(self) -> None:
        self._mail_announced = False
        while self._mail:
            self._service.side.deliver(*self._mail.popleft())

    async def _serve(self) -> str:
        self._server = aio.server(options=options.server(self._settings))
        self._server.add_generic_rpc_handlers(self._service.methods())
        bound = self._bind(self._settings.listen)
        if self._local:
            self._bind(self._local)
        await self._server.start()
        self._service.watch_leases()
        return bound

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
        if is_unix:  # whoever reads it may be in another directory
            return f"{addresses.UNIX_PREFIX}{addresses.unix_path(listen)}"
        return f"{listen.rpartition(':')[0]}:{port}"

    async def _shut_down(self, finished: bool, reason: str, grace_seconds: float) -> None:
        await self._service.dismiss(finished, reason, grace_seconds)
        await self._server.stop(None)


def _keep_freed_memory() -> None:
    """Makes the process reuse the memory of freed messages instead of returning it to the system.

    Otherwise the pages of every large message are returned, mapped and cleared anew: about 30 page faults and a tenth
    of a millisecond for 590 kB. glibc raises its thresholds to the size of the largest mapped block ever freed, up to
    32 MiB. This block is never touched and costs nothing; without glibc it has no effect.
    """
    bytes(32 * 2**20 - 64 * 2**10)
