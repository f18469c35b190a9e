"""An event loop runs on its owner's thread while that waits, and on the keeper's while the owner is away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from wire import TIMEOUT_SECONDS

from seedzero.transport import caller_loop


@pytest.fixture
def loop() -> Iterator[caller_loop.CallerLoop]:
    made = caller_loop.CallerLoop("kept")
    yield made
    made.close()


class Beats:
    """A task that notes the threads which run it, until `num` turns."""

    def __init__(self, num: int) -> None:
        self.threads: list[str] = []
        self.done = threading.Event()
        self._num = num

    async def begin(self) -> None:
        self.task = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        for _ in range(self._num):
            await asyncio.sleep(0)
            self.threads.append(threading.current_thread().name)
        self.done.set()


def test_what_the_owner_waits_for_runs_on_its_thread(loop: caller_loop.CallerLoop) -> None:
    async def name() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    mine = threading.current_thread().name
    assert loop.run(name()) == mine
    found: list[str] = []
    loop.call(lambda: found.append(threading.current_thread().name))
    assert found == [mine]

    def arrives() -> None:
        found.append(threading.current_thread().name)
        loop.check()

    loop.call(asyncio.run_coroutine_threadsafe, _soon(arrives), loop._loop)
    loop.wait(lambda: len(found) == 2)
    assert found == [mine, mine]


async def _soon(callback: object) -> None:
    assert callable(callback)
    callback()


def test_the_keeper_runs_it_while_the_owner_is_away_and_gives_it_back(loop: caller_loop.CallerLoop) -> None:
    for _ in range(2):
        beats = Beats(3)
        loop.run(beats.begin())
        assert beats.done.wait(TIMEOUT_SECONDS)  # this thread does nothing else, like a slow environment
        assert beats.threads == ["kept"] * 3
        assert loop.run(_answer()) == 5


async def _answer() -> int:
    return 5


def test_errors_reach_the_caller(loop: caller_loop.CallerLoop) -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        loop.run(fail())
    with pytest.raises(ZeroDivisionError):
        loop.call(divmod, 1, 0)
    assert loop.run(_answer()) == 5


def test_another_thread_wakes_the_owner(loop: caller_loop.CallerLoop) -> None:
    due: list[int] = []

    def tell() -> None:
        due.append(1)
        loop.wake()

    other = threading.Thread(target=tell)
    other.start()
    loop.wait(lambda: bool(due))
    other.join()


def test_it_runs_inside_another_loop_as_in_a_notebook(loop: caller_loop.CallerLoop) -> None:
    async def cell() -> int:
        mine = asyncio.get_running_loop()
        found = loop.run(_answer())
        assert asyncio.get_running_loop() is mine
        return found

    assert asyncio.run(cell()) == 5


def test_closing_cancels_what_runs_and_later_wakes_do_nothing() -> None:
    loop = caller_loop.CallerLoop("kept")
    beats = Beats(10**9)
    loop.run(beats.begin())
    loop.close()
    assert beats.task.cancelled() and not loop._keeper.is_alive()
    loop.wake()
