"""The console command `seedzero`: finds the command, runs it, and turns errors into messages and exit codes.

Exit codes: 0 done; 1 failure; 2 bad usage or configuration; 65 and 66 a worker's environment gave impossible values,
or failed after an episode; 75 run directory in use, or other hosts lost (train --supervised); 130 left at once on
Ctrl-C.

Nothing here or in the commands' files imports JAX before it is needed, so mistakes in the command line are reported at
once, and workers never load it.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, NoReturn, TextIO

import seedzero
from seedzero.cli import (
    benchmark,
    check_env,
    checkpoint,
    compare,
    diagnose,
    evaluate,
    gtp,
    launch,
    league,
    listings,
    output,
    page,
    parse,
    plot,
    record,
    serve,
    status,
    sweep,
    train,
    worker,
)
from seedzero.config import configs
from seedzero.core import errors, printable

COMMANDS: Mapping[str, parse.Command] = {
    "train": train.COMMAND,
    "sweep": sweep.COMMAND,
    "worker": worker.COMMAND,
    "check-env": check_env.COMMAND,
    "launch": launch.COMMAND,
    "evaluate": evaluate.COMMAND,
    "play": evaluate.PLAY,
    "export": evaluate.EXPORT,
    "record": record.COMMAND,
    "gtp": gtp.COMMAND,
    "serve": serve.COMMAND,
    "status": status.COMMAND,
    "diagnose": diagnose.COMMAND,
    "plot": plot.COMMAND,
    "compare": compare.COMMAND,
    "health": status.HEALTH,
    "league": league.COMMAND,
    "page": page.COMMAND,
    "runs": listings.RUNS,
    "checkpoint": checkpoint.COMMAND,
    "agents": listings.AGENTS,
    "envs": listings.ENVS,
    "config": listings.CONFIG,
    "benchmark": benchmark.COMMAND,
}


_NO_ADDRESSES = "this process gets no more memory; see `ulimit -v`, and what else runs on this machine"


def main(args: Sequence[str] | None = None) -> int:
    """Runs a command line (default: this process's) and returns the exit code."""
    try:
        code = _run(list(sys.argv[1:] if args is None else args))
        sys.stdout.flush()
        return code
    except errors.Error as error:
        return output.fail(error)
    except ImportError as error:
        reason = _NO_ADDRESSES if "failed to map" in str(error) else listings.explain(error)
        if reason is None:
            raise
        output.say(f"error: {reason}")
        return errors.FAILED
    except MemoryError:
        output.say(f"error: {_NO_ADDRESSES}")
        return errors.FAILED
    except KeyboardInterrupt as error:
        output.say(f"interrupted{error}")
        return errors.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone, so nothing more can be written, not even when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.FAILED
    except OSError as error:
        if error.errno == errno.ENOENT and error.filename is None:  # only os.getcwd() names no file
            output.say("error: the current directory was deleted; change to another one")
            return errors.FAILED
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        output.say(f"error: {error.filename}: {error.strerror}; raise `ulimit -n`, or see what holds them")
        return errors.FAILED


def program() -> NoReturn:
    """Runs the console command: `main`, which saves and ends everything; then the process ends."""
    sys.stdin = sys.stdin or _nowhere("r")
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    # What a person or an engine's client types may be no UTF-8, and a terminal's encoding may lack a run's letters.
    for stream, handling in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=handling)
    errors.leave(main())


def _nowhere(mode: Literal["r", "w"] = "w") -> TextIO:
    """Returns a stream that replaces a closed one (None in Python), with the same file number.

    Workers inherit it: their next file would get that number, and what a simulator prints would get into the file.
    """
    stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115  it stays open to the end
    os.set_inheritable(stream.fileno(), True)
    return stream


def _run(args: list[str]) -> int:
    if not args:
        print(printable.wrap(_overview(), printable.columns(sys.stderr)), file=sys.stderr)
        return errors.BAD_USAGE
    name, rest = args[0], args[1:]
    if name in ("--help", "-h", "help"):
        output.show(parse.help_text(rest[0], _find(rest[0])) if rest else _overview())
        return errors.DONE
    if name == "--version":
        print(f"seedzero {seedzero.__version__}")
        return errors.DONE
    command = _find(name)
    if {"--help", "-h", "--helpfull"} & set(rest):
        output.show(parse.help_text(name, command, full="--helpfull" in rest, agent=parse.last(rest, "agent")))
        return errors.DONE
    return command.run(parse.read(name, command, rest))


def _find(name: str) -> parse.Command:
    if name not in COMMANDS:
        nearest = configs.nearest(name, COMMANDS)
        hint = f"did you mean {nearest}?" if nearest else f"choose one of {', '.join(COMMANDS)}"
        raise errors.UsageError(f"unknown command {name!r}; {hint}")
    return COMMANDS[name]


def _overview() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items())
    return f"""usage: seedzero COMMAND [--key=value ...]

Distributed reinforcement learning: thin environment workers and one accelerator host.

{rows}

`seedzero COMMAND --help` explains a command. The quickest start: seedzero train --preset=catch"""
