"""Runs programs on the nodes of a Ray cluster instead of this machine, with an actor for each.

If the launcher is lost, its actors end, and with them the programs' standard input, which the programs watch.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import ray
import ray.exceptions

from seedzero.core import errors, exit_codes
from seedzero.launch import launch_plan, ray_launch
from seedzero.processes import programs

_CALLS_AT_A_TIME = 4
"""Threads of an actor: one waits for output and one for the end of the program while a stop may arrive."""
_PLACE_SECONDS = 1.0
"""An actor that has not responded for this long counts as having no node."""


def room(cpus: int, gpus: int) -> int:
    """Returns how many programs that need these cores and GPUs have room on the nodes that are alive.

    Raises UsageError if there is no room for any.
    """
    nodes = ray_launch.nodes()
    wanted = {name: number for name, number in (("CPU", cpus), ("GPU", gpus)) if number}
    found = sum(min(int(node.get(name, 0) // number) for name, number in wanted.items()) for node in nodes)
    if not found:
        raise errors.UsageError(
            f"no node has room for a run of {', '.join(f'{name} {number}' for name, number in wanted.items())}: the "
            f"cluster has {launch_plan.listing(nodes)}; give less by --cpus=N or --gpus=N"
        )
    return found


def launcher(cpus: int, gpus: int, directory: str) -> Callable[..., programs.Process]:
    """Returns a function like `program.launch` that runs Python programs on any node, as soon as one has room.

    directory: working directory of the programs, with the same files on every node.
    """
    kind = ray.remote(num_cpus=cpus, num_gpus=gpus, max_concurrency=_CALLS_AT_A_TIME)(_Actor)

    def launch(command: Sequence[str], environment: Mapping[str, str] = {}) -> programs.Process:
        # JAX_PLATFORMS on the node may name an accelerator that this program was not given.
        own = {**({} if gpus else {"JAX_PLATFORMS": "cpu"}), **environment}
        return cast(programs.Process, _Process(kind.remote(list(command[1:]), directory, own)))

    return launch


class _Actor:
    """Runs one program on a node."""

    def __init__(self, words: Sequence[str], directory: str, environment: Mapping[str, str]) -> None:
        os.chdir(directory)
        self._process = programs.launch([sys.executable, *words], environment)
        self._lines = self._process.lines()

    def line(self) -> bytes:
        return next(self._lines, b"")

    def do(self, name: str) -> Any:
        return getattr(self._process, name)()


class _Process:
    """Has the interface of `program.Process` for a program on a node."""

    def __init__(self, actor: Any) -> None:
        self._actor, self._is_stopped = actor, False
        self._end = actor.do.remote("wait")

    def lines(self) -> Iterator[bytes]:
        """Yields the output line by line, and at the end a message if the node is lost."""
        try:
            yield from iter(lambda: ray.get(self._actor.line.remote()), b"")
        except ray.exceptions.RayError as error:
            yield f"the program's node or actor is lost: {str(error).strip().splitlines()[-1][:200]}".encode()

    def wait(self) -> int:
        try:
            return int(ray.get(self._end))
        except ray.exceptions.RayError:
            ray.kill(self._actor)  # the node may only be away for a while; this also ends `lines`
            return exit_codes.DONE if self._is_stopped else -signal.SIGKILL

    def close_input(self) -> None:
        """Asks the program to end, or not to start any more if it is waiting for room."""
        self._is_stopped = True
        if not ray.wait([self._actor.do.remote("close_input")], timeout=_PLACE_SECONDS)[0]:
            ray.kill(self._actor)

    def kill_group(self) -> None:
        self._actor.do.remote("kill_group")
