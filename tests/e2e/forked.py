"""Python programs in forks of a process that has imported `seedzero` and JAX: 2.6 s of a core less for each."""

from __future__ import annotations

import atexit
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO

import jax
import quick_python

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["seedzero.cli.main", "seedzero.learner.entry", "seedzero.learner.entry", "gymnasium"])


class Forked:
    """A running program, with that part of `subprocess.Popen`'s interface which tests need."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], directory: pathlib.Path) -> None:
        self.args = command
        (out, its_out), (err, its_err) = _context.Pipe(duplex=False), _context.Pipe(duplex=False)
        words = (command[1:], dict(environment), directory, its_out, its_err)
        self._process = _context.Process(target=_run, args=words)
        self._process.start()
        self.stdout, self.stderr = (_file(end) for end in (out, err))
        its_out.close()
        its_err.close()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        """Returns the exit status of an ended process, negative for a signal."""
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int:
        """Waits for the end."""
        self._process.join(seconds)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self.args, seconds or 0.0)
        return code

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()


def suits(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Returns whether a fork is as good as a new process: JAX, which workers go without, has read its variables."""
    is_suited = command[0] == sys.executable and (command[1] == "-m" or command[1].endswith(".py"))
    given = dict(environment)
    is_known = given.pop("JAX_PLATFORMS") == "cpu" and _of_jax(given) == _of_jax(os.environ)
    return is_suited and is_known and not {"worker", "launch"} & set(command)


def _of_jax(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("JAX_")}


def _file(end: multiprocessing.connection.Connection) -> IO[bytes]:
    with end:
        return os.fdopen(os.dup(end.fileno()), "rb")


def _run(
    words: Sequence[str],
    environment: Mapping[str, str],
    directory: pathlib.Path,
    out: multiprocessing.connection.Connection,
    err: multiprocessing.connection.Connection,
) -> None:
    """Becomes `python WORDS`."""
    os.setsid()
    os.chdir(directory)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for number, end in ((1, out), (2, err)):
        os.dup2(end.fileno(), number)
        end.close()
    # The old streams take their descriptors for files, in which they seek.
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    quick_python.collect_seldom()
    jax.config.update("jax_platforms", "cpu")
    is_module = words[0] == "-m"
    sys.argv = list(words[is_module:])
    place = directory if is_module else pathlib.Path(words[0]).parent
    sys.path[:0] = [str(place), *environment["PYTHONPATH"].split(os.pathsep)]
    try:
        if is_module:
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")
    finally:  # which multiprocessing leaves out
        atexit._run_exitfuncs()
