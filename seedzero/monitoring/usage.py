"""Measures how much processor time and memory this process and the programs that it started use."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

CPU, MEMORY = "_cpu_percent", "_memory_bytes"
"""Ends of the metrics' names. 100 % is one core."""


class ProcessUse(NamedTuple):
    """What a living process has used so far. parent: its pid. memory_bytes: resident."""

    parent: int
    cpu_seconds: float
    memory_bytes: int


def processes(proc: pathlib.Path = pathlib.Path("/proc")) -> dict[int, ProcessUse]:
    """Returns the living processes by pid, of every user.

    Empty on systems without /proc, and while this process cannot open another file.
    """
    found: dict[int, ProcessUse] = {}
    ticks, page_bytes = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError):
        for file in proc.glob("[0-9]*/stat"):
            try:
                # The program's name, in brackets, may have spaces and brackets. The third field follows.
                fields = file.read_bytes().rpartition(b")")[2].split()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    return {}
                continue  # it has ended meanwhile
            spent = (int(fields[11]) + int(fields[12])) / ticks  # in the program and in the kernel
            found[int(file.parent.name)] = ProcessUse(int(fields[1]), spent, int(fields[21]) * page_bytes)
    return found


class Usage:
    """The use of processors and memory since the last row. Only one thread at a time may call `row`."""

    def __init__(
        self,
        device_bytes: Callable[[], int | None],
        read: Callable[[], Mapping[int, ProcessUse]] = processes,
        pid: int | None = None,
    ) -> None:
        """device_bytes: returns the memory in use on the devices; None if unknown. pid: of the learner; None: ours."""
        self._device_bytes, self._read, self._pid = device_bytes, read, os.getpid() if pid is None else pid
        self._before, self._seconds = read(), 0.0

    def row(self, seconds: float) -> dict[str, float]:
        """Returns metrics of the learner, of all programs that it started here, and of the devices.

        What is unknown is left out. seconds: since this object was made.
        """
        now, passed = self._read(), seconds - self._seconds
        groups = {"learner": {self._pid} & now.keys(), "workers": _descendants(now, self._pid)}
        found: dict[str, float] = {}
        for name, pids in groups.items():
            if pids and passed > 0:
                spent = sum(max(0.0, now[pid].cpu_seconds - self._spent(pid)) for pid in pids)
                found[name + CPU] = round(100 * spent / passed, 1)
            if pids:
                found[name + MEMORY] = sum(now[pid].memory_bytes for pid in pids)
        if (used := self._device_bytes()) is not None:
            found["device" + MEMORY] = used
        if now:
            self._before, self._seconds = now, seconds
        return found

    def _spent(self, pid: int) -> float:
        return self._before[pid].cpu_seconds if pid in self._before else 0.0


def _descendants(every: Mapping[int, ProcessUse], root: int) -> set[int]:
    """Returns the processes that one has started, and theirs in turn."""
    children: dict[int, list[int]] = {}
    for pid, process in every.items():
        children.setdefault(process.parent, []).append(pid)
    found: set[int] = set()
    waiting = [root]
    while waiting:
        new = [pid for pid in children.get(waiting.pop(), ()) if pid not in found]
        found.update(new)
        waiting += new
    return found - {root}
