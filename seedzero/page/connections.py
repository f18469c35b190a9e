"""Connections of the page: a peer that keeps the page waiting loses its place, at once if others need it."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http import h11_impl

MAX_CONNECTIONS = 512
PATIENCE_SECONDS = 10.0
"""Longest time for a whole request, and for taking `LEAST_BYTES` of an answer."""
LEAST_BYTES = 64 << 10
MAX_UNSENT_BYTES = 64 << 20
"""Memory of the answers that peers have not taken; beyond it the peer that has kept the page waiting longest goes."""


class BrowserConnection(h11_impl.H11Protocol):
    """A connection of HTTP. Either the page works for it, or waits for its peer: for a request, or to take an answer.

    Only the second is limited in time. Bytes that complete no request do not end the wait.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.waiting_since: float | None = None  # of the event loop's clock; None: the page works
        self._unsent = 0  # bytes of an answer at that time
        self._timer: asyncio.TimerHandle | None = None

    @property
    def unsent(self) -> int:
        """Bytes of answers that wait for the peer."""
        return self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes a place; if it is the last one, the peer that has kept the page waiting longest gives its own."""
        super().connection_made(transport)
        others = [one for one in self._waiting() if one is not self]
        if others and len(self.connections) >= MAX_CONNECTIONS:
            others[0].drop()
        self._begin_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the wait."""
        super().connection_lost(exc)
        self._stop_waiting()

    def data_received(self, data: bytes) -> None:
        """Ends the wait if a request is whole."""
        super().data_received(data)
        if self._works():
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Begins to wait for the next request, or works for one that is there already."""
        super().on_response_complete()
        self._begin_turn()

    def pause_writing(self) -> None:
        """Begins to wait until an answer is taken; drops peers if all unsent answers are too large."""
        super().pause_writing()
        self._begin_turn()
        waiting = self._waiting()
        total = sum(one.unsent for one in waiting)
        for one in waiting:
            if total > MAX_UNSENT_BYTES:
                total -= one.unsent
                one.drop()

    def resume_writing(self) -> None:
        """Ends the wait for an answer that was taken."""
        super().resume_writing()
        self._begin_turn()

    def drop(self) -> None:
        """Ends the connection; an answer that was not taken is thrown away."""
        self._stop_waiting()
        self.connections.discard(self)
        self.transport.abort()

    def _waiting(self) -> list[BrowserConnection]:
        """Returns all connections whose peers keep the page waiting, the longest first."""
        found = [
            one for one in self.connections if isinstance(one, BrowserConnection) and one.waiting_since is not None
        ]
        return sorted(found, key=lambda one: one.waiting_since or 0.0)

    def _works(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not (cycle.more_body or cycle.response_complete or self.flow.write_paused)

    def _begin_turn(self) -> None:
        self._stop_waiting()
        if not self._works():
            self.waiting_since, self._unsent = self.loop.time(), self.unsent
            self._timer = self.loop.call_later(PATIENCE_SECONDS, self._look)

    def _stop_waiting(self) -> None:
        self.waiting_since = None
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """Drops the peer, unless it took enough of an answer meanwhile."""
        if self._unsent - self.unsent >= LEAST_BYTES:
            self._begin_turn()
        else:
            self.drop()
