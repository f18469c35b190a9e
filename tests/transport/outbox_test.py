"""Messages are written in order, one at a time, until the end or an error."""

from __future__ import annotations

import asyncio

import pytest
from wire import in_a_loop

from seedzero.transport import outbox


class Wire:
    """A stream whose writes end when told to."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.writes: list[asyncio.Future[None]] = []
        self.outbox = outbox.Outbox(self.write)

    async def write(self, data: bytes) -> None:
        self.begun.append(data)
        self.writes.append(asyncio.get_running_loop().create_future())
        await self.writes[-1]

    async def begin(self, *messages: bytes) -> asyncio.Task[None]:
        """Has the first message written, while the others wait."""
        for data in messages:
            self.outbox.put(data)
        task = asyncio.create_task(self.outbox.write_all())
        await rest()
        return task

    async def end_write(self) -> None:
        self.writes[-1].set_result(None)
        await rest()


async def rest() -> None:
    """Lets all callbacks run that are due."""
    for _ in range(4):
        await asyncio.sleep(0)


@in_a_loop
async def test_messages_are_written_in_order_and_one_at_a_time() -> None:
    wire = Wire()
    wire.outbox.put(b"before")
    assert not wire.begun
    task = await wire.begin()
    wire.outbox.put(b"second")
    wire.outbox.put(b"third")
    assert wire.begun == [b"before"] and list(wire.outbox.waiting) == [b"second", b"third"]
    for expected in (b"second", b"third"):
        await wire.end_write()
        assert wire.begun[-1] == expected
    await wire.end_write()
    wire.outbox.put(b"after a rest")
    assert wire.begun[-1] == b"third"  # not at once: whatever else is due comes first
    wire.outbox.put(b"last")
    wire.outbox.put(None)
    await rest()
    await wire.end_write()
    assert wire.begun[-2:] == [b"after a rest", b"last"] and not task.done()
    await wire.end_write()
    assert task.done() and task.result() is None


@in_a_loop
async def test_the_error_of_a_write_ends_it() -> None:
    wire = Wire()
    task = await wire.begin(b"first", b"second")
    wire.writes[-1].set_exception(ConnectionResetError())
    with pytest.raises(ConnectionResetError):
        await task
    wire.outbox.put(b"third")
    await rest()
    assert wire.begun == [b"first"]


@in_a_loop
async def test_a_cancelled_write_cancels_it() -> None:
    wire = Wire()
    task = await wire.begin(b"first")
    wire.writes[-1].cancel()
    await rest()
    assert task.cancelled()


@in_a_loop
async def test_nothing_is_written_once_it_is_cancelled() -> None:
    wire = Wire()
    task = await wire.begin(b"first", b"second")
    task.cancel()
    await rest()
    await wire.end_write()
    wire.outbox.put(b"third")
    await rest()
    assert task.cancelled() and wire.begun == [b"first"]
