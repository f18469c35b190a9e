"""A learner that learns nothing, and workers for it: for tests of the wire."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import queue
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.transport import client, handshake, messages, security, servers

TIMEOUT_SECONDS = 600.0
NUM_GROUPS = 2
E = 2
SPEC = types.EnvSpec((3,), "float32", 4)
HELLO = messages.Hello("worker", "", (types.Role.TRAIN,), ("catch",), 64)
ENCODED_SPEC = handshake.encode_spec(SPEC)
SETTINGS = sections.TransportConfig(listen="127.0.0.1:0")


def make_step(reward: float = 0.0, **changes: Any) -> types.EnvStep:
    step = types.EnvStep(
        np.full((E, 3), reward, np.float32), np.full(E, reward, np.float32), np.zeros(E, bool), np.zeros(E, bool)
    )
    return step._replace(**changes)


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test in an event loop."""

    @functools.wraps(test)
    def run(**fixtures: object) -> None:
        asyncio.run(test(**fixtures))

    return run


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Learner:
    """Records what the server tells it; answers at once with the sequence number, unless told to hold."""

    def __init__(self, settings: sections.TransportConfig = SETTINGS, **options: Any) -> None:
        self.server = servers.Server(self, settings, live=self.live, **options)
        self.requests: queue.Queue[messages.StepRequest] = queue.Queue()
        self.begun: list[tuple[str, types.EnvSpec]] = []
        self.ended: queue.Queue[tuple[str, str]] = queue.Queue()
        self.hold = False
        self.refusal: Exception | None = None
        self.prefix = os.urandom(4).hex()
        self.num_sessions = 0

    def assign(self, hello: messages.Hello) -> types.Assignment:
        if self.refusal:
            raise self.refusal
        self.num_sessions += 1
        seeds = tuple(range(NUM_GROUPS * E))
        session_id = f"{self.prefix}-{self.num_sessions}"
        return types.Assignment(session_id, hello.roles[0], "catch", '{"a": 1}', NUM_GROUPS, E, seeds)

    def begin(self, session_id: str, spec: types.EnvSpec) -> None:
        if spec.num_actions != SPEC.num_actions:
            raise errors.SpecMismatch(f"num_actions is {spec.num_actions}; expected {SPEC.num_actions}")
        self.begun.append((session_id, spec))

    def step(self, request: messages.StepRequest) -> None:
        if np.any(request.step.reward == 13):
            raise ZeroDivisionError("secret")
        self.requests.put(request)
        if not self.hold:
            self.answer(request)

    def answer(self, request: messages.StepRequest, action: int = 1) -> None:
        self.server.reply(request, np.full(E, action), request.sequence)

    def end(self, session_id: str, reason: str) -> None:
        self.ended.put((session_id, reason))

    def status(self) -> Mapping[str, object]:
        return {"env_steps": 7, "stalled": None}

    def live(self, asked: messages.LiveAsk, present: Sequence[messages.Presence]) -> tuple[str, bytes]:
        return json.dumps({"asked": list(asked), "workers": [list(map(str, one[1:6])) for one in present]}), b"abc"

    def next_request(self) -> messages.StepRequest:
        return self.requests.get(timeout=TIMEOUT_SECONDS)

    def next_end(self) -> tuple[str, str]:
        return self.ended.get(timeout=TIMEOUT_SECONDS)


@contextlib.contextmanager
def serving(learner: Learner) -> Iterator[str]:
    address = learner.server.start()
    try:
        yield address
    finally:
        learner.server.stop(finished=False, reason="test over")


@contextlib.contextmanager
def joined(
    address: str, hello: messages.Hello = HELLO, access: security.Access = security.PLAIN
) -> Iterator[client.Client]:
    """A client in a session."""
    with client.Client(address, hello, settings=SETTINGS, access=access) as worker:
        assert worker.join() is not None
        worker.start(SPEC)
        yield worker


def receive_actions(worker: client.Client) -> messages.Actions:
    event = worker.receive()
    assert isinstance(event, messages.Actions)
    return event


HTTP_404 = b"\x8d"
"""HPACK of `:status: 404`, and nothing else: as of a proxy that has no learner yet."""
ENVOYS_404 = b"\x88" + b"\x00\x0ccontent-type\x10application/grpc" + b"\x00\x0bgrpc-status\x0212"
"""HPACK of `:status: 200`, `content-type: application/grpc`, `grpc-status: 12`."""


@contextlib.contextmanager
def proxy(answer: bytes, learner: Callable[[], str] = lambda: "") -> Iterator[str]:
    """A proxy in front of a learner.

    answer: HPACK of its own response, without a body. learner: asked at each connection; HOST:PORT to pass it on to,
    "": none is there.
    """
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as threads:

        def serve() -> None:
            while True:
                client_side = listener.accept()[0]
                if is_over.is_set():
                    client_side.close()
                    return
                address = learner()
                thread = (
                    threading.Thread(target=_pass_on, args=(client_side, address))
                    if address
                    else threading.Thread(target=_answer, args=(client_side, answer))
                )
                thread.start()
                threads.callback(thread.join)
                threads.callback(_hang_up, client_side)

        acceptor = threading.Thread(target=serve)
        acceptor.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            is_over.set()
            socket.create_connection(listener.getsockname()).close()
            acceptor.join()


def _answer(connection: socket.socket, block: bytes) -> None:
    """Answers every request of an HTTP/2 connection."""
    with connection, connection.makefile("rb") as read, contextlib.suppress(OSError):
        connection.sendall(_frame(4, 0, 0))  # SETTINGS
        read.read(24)
        while len(head := read.read(9)) == 9:
            read.read(int.from_bytes(head[:3]))
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:])
            if kind == 4 and not flags:
                connection.sendall(_frame(4, 1, 0))
            elif kind == 1:  # HEADERS; the answer's end them and the stream
                connection.sendall(_frame(1, 5, stream, block))


def _frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return len(content).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + content


def _pass_on(connection: socket.socket, learner: str) -> None:
    host, _, port = learner.rpartition(":")
    with connection, socket.create_connection((host, int(port))) as other:
        back = threading.Thread(target=_copy, args=(other, connection))
        back.start()
        _copy(connection, other)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    _hang_up(target)


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
