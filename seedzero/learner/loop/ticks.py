"""The calls of one acting tick, until their actions arrive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from seedzero.device import batches


class ActingCall(NamedTuple):
    """A call in flight: the actions [R] of its rows; the row [B] of each environment, and which of [N] these are."""

    actions: jax.Array | np.ndarray
    rows: np.ndarray
    mine: np.ndarray | None  # [N] bool; None: all, B = N
    metrics: Mapping[str, jax.Array] = {}  # {name: [R]} metrics of the agent's own in training
    given: np.ndarray | None = None  # [B], a scripted mover's actions, which replace the others


class Dealt(NamedTuple):
    """A home's part of a tick: its messages, with N environments, and their calls."""

    rows: batches.Batch
    messages: Sequence[batches.Message]
    version: int  # version of the home's parameters
    age: int  # updates that they have not seen
    calls: Sequence[ActingCall]
    looks: Mapping[int, Any] | None = None  # as in `record.Acted`
    bot: np.ndarray | None = None  # [N], as in `scripted_moves.bots`

    def actions(self) -> np.ndarray:
        """Waits for the actions [N, ...] and returns them."""
        joined: np.ndarray
        found = [np.asarray(call.actions)[call.rows] for call in self.calls]
        found = [one if call.given is None else call.given for one, call in zip(found, self.calls, strict=True)]
        if self.calls[0].mine is None:
            (joined,) = found
        else:
            joined = np.zeros((len(self.calls[0].mine), *found[0].shape[1:]), found[0].dtype)
            for call, actions in zip(self.calls, found, strict=True):
                joined[call.mine] = actions
        return joined

    def answers(self, actions: np.ndarray) -> Iterator[tuple[Any, ...]]:
        """Yields the arguments of `dispatchers.Workers.reply` for each message. actions: those of `actions`."""
        ends = np.cumsum([len(message.slots) for message in self.messages])[:-1]
        bots = [None] * len(self.messages) if self.bot is None else np.split(self.bot, ends)
        for message, chosen, bot in zip(self.messages, np.split(actions, ends), bots, strict=True):
            asked = () if bot is None or not bot.any() else (message.answer(bot)[1],)
            yield *message.answer(chosen), self.version, *asked
