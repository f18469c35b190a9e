"""The page beside a training, with its process imitated; serve_test.py has the real one."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Sequence
from typing import Any

import made_up
import pytest

from seedzero.config import page_options
from seedzero.learner import paging
from seedzero.processes import programs

DEADLINE_SECONDS = 600.0
URL = b"seedzero: the page of /runs/one: http://127.0.0.1:41235/ (Ctrl-C ends it)\n"


class Process(made_up.Process):
    """Ends by a kill, unless it has ended by itself."""

    pid = -1  # nobody's

    def __init__(self, *lines: bytes, status: int | None) -> None:
        super().__init__(*lines, status=status)
        self.was_killed = threading.Event()

    def kill_group(self) -> None:
        self.was_killed.set()
        self.end(-9)


class World:
    """Starts pages for a run."""

    def __init__(self, *lines: bytes, status: int | None = None, root: str = "") -> None:
        self._place = page_options.PagePlace(8000, root)
        self.process, self.commands = Process(*lines, status=status), list[Sequence[str]]()
        self.said, self.spoke = list[str](), threading.Event()

    def launch(self, command: Sequence[str]) -> programs.Process:
        self.commands.append(command)
        return self.process

    def say(self, text: str) -> None:
        self.said.append(text)
        self.spoke.set()

    def beside(self) -> Any:
        return paging.beside(pathlib.Path("/runs/one"), self._place, say=self.say, launch=self.launch)


def test_its_address_is_told_and_it_ends_with_the_run() -> None:
    world = World(URL)
    with world.beside():
        assert world.spoke.wait(DEADLINE_SECONDS) and not world.process.was_killed.is_set()
    assert world.process.was_killed.is_set()
    (text,) = world.said
    assert text == "the page of this run: http://127.0.0.1:41235/"
    assert world.commands[0][3:] == ["page", "--run_dir=/runs/one", "--port=8000", "--supervised"]


@pytest.mark.parametrize("starts", [True, False])
def test_its_death_is_a_line_and_no_end_of_training(starts: bool) -> None:
    world = World(b"seedzero: error: the page cannot listen on 127.0.0.1:8000: Address already in use\n", status=2)

    def fail(command: Sequence[str]) -> programs.Process:
        raise OSError(12, "Cannot allocate memory", "python")

    if not starts:
        world.launch = fail  # type: ignore[method-assign]
    with world.beside():
        assert world.spoke.wait(DEADLINE_SECONDS)
    (text,) = world.said
    cause = "exit code 2: seedzero: error: the page cannot listen on 127.0.0.1:8000: Address already in use"
    assert "training continues" in text and text.endswith(cause if starts else ": Cannot allocate memory: python")


def test_an_error_of_the_run_ends_the_page() -> None:
    world = World(URL)
    with pytest.raises(ZeroDivisionError), world.beside():
        raise ZeroDivisionError
    assert world.process.was_killed.is_set() or not world.commands


def test_the_page_is_told_its_root() -> None:
    world = World(URL, root="/proxy/8000")
    with world.beside():
        assert world.spoke.wait(DEADLINE_SECONDS)
    assert "--page.root=/proxy/8000" in world.commands[0]
