"""Programs on the nodes of a Ray cluster, instead of processes of this machine, with an actor for each.

Where the launcher is lost, its actors end, and so the programs' standard input, which they watch.
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
"""Threads of an actor: a line and the end are awaited while a stop comes."""
_PLACE_SECONDS = 1.0
"""An actor that does not answer for so long has no node."""


def room(cpus: int, gpus: int) -> int:
    """Returns how many programs with these numbers of cores and GPUs the living nodes hold.

    Raises UsageError for 0.
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
    """Returns a function as `program.launch`, for programs of this Python on any node with room, or as soon as one is.

    directory: of the programs; the same files on every node.
    """
    kind = ray.remote(num_cpus=cpus, num_gpus=gpus, max_concurrency=_CALLS_AT_A_TIME)(_Actor)

    def launch(command: Sequence[str], environment: Mapping[str, str] = {}) -> programs.Process:
        # A node's own JAX_PLATFORMS may ask for an accelerator, which this program was not given.
        own = {**({} if gpus else {"JAX_PLATFORMS": "cpu"}), **environment}
        return cast(programs.Process, _Process(kind.remote(list(command[1:]), directory, own)))

    return launch


class _Actor:
    """Runs a program on a node, for its whole life."""

    def __init__(self, words: Sequence[str], directory: str, environment: Mapping[str, str]) -> None:
        os.chdir(directory)
        self._process = programs.launch([sys.executable, *words], environment)
        self._lines = self._process.lines()

    def line(self) -> bytes:
        return next(self._lines, b"")

    def do(self, name: str) -> Any:
        return getattr(self._process, name)()


class _Process:
    """Replaces a `program.Process`."""

    def __init__(self, actor: Any) -> None:
        self._actor, self._is_stopped = actor, False
        self._end = actor.do.remote("wait")

    def lines(self) -> Iterator[bytes]:
        """Yields the output, line by line, and the loss of the node as a last one."""
        try:
            yield from iter(lambda: ray.get(self._actor.line.remote()), b"")
        except ray.exceptions.RayError as error:
            yield f"the program's node or actor is lost: {str(error).strip().splitlines()[-1][:200]}".encode()

    def wait(self) -> int:
        try:
            return int(ray.get(self._end))
        except ray.exceptions.RayError:
            ray.kill(self._actor)  # which may be away for a while only; ends `lines`, too
            return exit_codes.DONE if self._is_stopped else -signal.SIGKILL

    def close_input(self) -> None:
        """Asks the program to end; one that waits for room is not started any more."""
        self._is_stopped = True
        if not ray.wait([self._actor.do.remote("close_input")], timeout=_PLACE_SECONDS)[0]:
            ray.kill(self._actor)

    def kill_group(self) -> None:
        self._actor.do.remote("kill_group")
