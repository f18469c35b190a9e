"""Copies of learning players' parameters for other threads, made by the device loop between two calls."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent import futures
from typing import TypeAlias

from seedzero.agents import base
from seedzero.core import errors
from seedzero.loop import inboxes, players

Copied: TypeAlias = futures.Future[tuple[int, base.Params]]
"""A player's updates, and its parameters; UsageError: no such player learns."""


class ParamsCopies:
    """The copies that were asked for. news: wakes the loop."""

    def __init__(self, news: inboxes.News) -> None:
        self._news = news
        self._asked: list[tuple[str, Copied]] | None = []  # None: the loop is over

    def ask(self, player: str) -> Copied:
        """Any thread: asks for a copy of the newest parameters. Raises UsageError once the loop is over."""
        copied = Copied()
        with self._news:
            if self._asked is None:
                raise errors.UsageError("this run is over")
            self._asked.append((player, copied))
            self._news.tell()
        return copied

    def make(self, learning: Sequence[players.Player]) -> None:
        """Loop's thread: makes the copies; they may still be being computed."""
        with self._news:
            asked, self._asked = self._asked or [], []
        for name, copied in asked:
            if not copied.set_running_or_notify_cancel():
                continue
            if (player := {player.name: player for player in learning}.get(name)) is None:
                copied.set_exception(errors.UsageError(f"no player {name!r} is in this run"))
            else:
                copied.set_result((player.num_updates, player.copy_params()))

    def close(self) -> None:
        """After the loop's end: cancels what it has left."""
        with self._news:
            asked, self._asked = self._asked or [], None
        for _, copied in asked:
            copied.cancel()
