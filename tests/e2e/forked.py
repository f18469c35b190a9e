"""`seedzero` in a fork of a process that has imported it: each start takes 2.6 s of a core less."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO

import jax

from seedzero import cli
from seedzero.cli import main as commands

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["seedzero.cli.main", "seedzero.host.learner", "seedzero.host.starting"])


class Forked:
    """A process of the command line, with that part of `subprocess.Popen`'s interface which tests need."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], directory: pathlib.Path) -> None:
        self.args = words
        (out, its_out), (err, its_err) = _context.Pipe(duplex=False), _context.Pipe(duplex=False)
        self._process = _context.Process(target=_run, args=(words, dict(environment), directory, its_out, its_err))
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


def suits(environment: Mapping[str, str]) -> bool:
    """Returns whether a fork reads the environment as a new process would: JAX has read its variables already."""
    given = dict(environment)
    return given.pop("JAX_PLATFORMS") == "cpu" and _of_jax(given) == _of_jax(os.environ)


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
    """Becomes `python -m seedzero.cli WORDS`."""
    os.setsid()
    os.chdir(directory)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for number, end in ((1, out), (2, err)):
        os.dup2(end.fileno(), number)
        end.close()
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = environment["PYTHONPATH"].split(os.pathsep)
    sys.argv = [str(pathlib.Path(cli.__file__).with_name("__main__.py")), *words]
    jax.config.update("jax_platforms", "cpu")
    commands.program()
