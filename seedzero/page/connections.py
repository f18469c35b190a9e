"""Limits slow connections: drops peers that keep the page waiting too long, or sooner if others need their places."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http import h11_impl

MAX_CONNECTIONS = 512
PATIENCE_SECONDS = 10.0
"""Time limit for sending a whole request, and for taking `LEAST_BYTES` of an answer."""
LEAST_BYTES = 64 << 10
MAX_UNSENT_BYTES = 64 << 20
"""Memory for unsent answers; beyond it the peers that have kept the page waiting longest are dropped."""


class BrowserConnection(h11_impl.H11Protocol):
    """An HTTP connection, where either the page works, or waits for its peer to send a request or take an answer.

    Only waiting is limited in time. Bytes that do not complete a request do not end the wait.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.waiting_since: float | None = None  # by the event loop's clock; None while the page works
        self._unsent = 0  # bytes unsent at that time
        self._timer: asyncio.TimerHandle | None = None

    @property
    def unsent(self) -> int:
        """Bytes of answers that the peer has not taken."""
        return self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes a place; if there was none left, drops the peer that has kept the page waiting longest."""
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
        """Ends the wait once a request is complete."""
        super().data_received(data)
        if self._works():
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Waits for the next request, unless it has arrived already."""
        super().on_response_complete()
        self._begin_turn()

    def pause_writing(self) -> None:
        """Begins to wait until the answer is taken; drops peers if all unsent answers together are too large."""
        super().pause_writing()
        self._begin_turn()
        waiting = self._waiting()
        total = sum(one.unsent for one in waiting)
        for one in waiting:
            if total > MAX_UNSENT_BYTES:
                total -= one.unsent
                one.drop()

    def resume_writing(self) -> None:
        """Ends the wait for an answer to be taken."""
        super().resume_writing()
        self._begin_turn()

    def drop(self) -> None:
        """Closes the connection and discards unsent answers."""
        self._stop_waiting()
        self.connections.discard(self)
        self.transport.abort()

    def _waiting(self) -> list[BrowserConnection]:
        """Returns the connections whose peers keep the page waiting, the longest first."""
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
        """Drops the peer, unless it has taken enough of an answer meanwhile."""
        if self._unsent - self.unsent >= LEAST_BYTES:
            self._begin_turn()
        else:
            self.drop()
