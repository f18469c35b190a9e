"""What makes a worker a process: command line, log on stderr, signals, and the pipe of a supervisor."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence

from seedzero.config import config
from seedzero.core import types
from seedzero.transport import security
from seedzero.worker import worker

STOP_SECONDS = 10.0
"""An environment that does not return holds a worker that was told to stop no longer than this."""

_ROLES = {"train": (types.Role.TRAIN,), "evaluate": (types.Role.EVALUATE,), "any": worker.ANY_ROLE}


def main(arguments: Sequence[str] | None = None, *, env_factory: worker.EnvFactory | None = None) -> int:
    """Runs `python -m seedzero.worker`; returns the exit code.

    Args:
      arguments: of the command line; None: this process's.
      env_factory: as of worker.run.
    """
    parser = argparse.ArgumentParser("python -m seedzero.worker", description="Steps environments for a learner.")
    parser.add_argument("--server", required=True, metavar="HOST:PORT|unix:PATH", help="address of the learner")
    parser.add_argument("--num_envs", type=_count, help="most environments; default: as many as the learner asks for")
    parser.add_argument("--role", choices=tuple(_ROLES), default="any", help="what to step environments for")
    parser.add_argument("--worker_id", help="name in reports; default: host and process id")
    parser.add_argument("--threads", type=int, default=0, help="Atari: emulator threads; 0: one for each core")
    for key in ("keepalive_seconds", "ping_timeout_seconds", "max_backoff_seconds"):
        default = getattr(config.TransportConfig(), key)
        parser.add_argument(f"--{key}", type=float, default=default, help="as transport's setting of the learner")
    parser.add_argument("--token_file", default="", help="file with the learner's token")
    parser.add_argument(
        "--tls.ca_file",
        dest="ca_file",
        default="",
        help="PEM file with the certificates that may "
        f"vouch for the learner's, or {security.SYSTEM_ROOTS}: public ones; default: plain text",
    )
    parser.add_argument(
        "--tls.server_name",
        dest="server_name",
        default="",
        help="name that the learner's certificate is for; default: the host in --server",
    )
    parser.add_argument("--supervised", action="store_true", help="end when standard input is closed")
    options = parser.parse_args(arguments)
    return run(
        options.server,
        num_envs=options.num_envs,
        roles=_ROLES[options.role],
        worker_id=options.worker_id,
        env_factory=env_factory,
        threads=options.threads,
        supervised=options.supervised,
        settings=config.TransportConfig(
            keepalive_seconds=options.keepalive_seconds,
            ping_timeout_seconds=options.ping_timeout_seconds,
            max_backoff_seconds=options.max_backoff_seconds,
        ),
        access=security.Access(options.token_file, options.ca_file, options.server_name),
    )


def run(
    server: str,
    *,
    num_envs: int | None = None,
    roles: Sequence[types.Role] = worker.ANY_ROLE,
    worker_id: str | None = None,
    env_factory: worker.EnvFactory | None = None,
    threads: int = 0,
    supervised: bool = False,
    settings: config.TransportConfig = worker.DEFAULTS,
    access: security.Access = security.PLAIN,
) -> int:
    """Runs a worker as this process's only work, from its main thread; returns the exit code.

    SIGTERM, and without a supervisor SIGINT, end it like the learner's End, with exit code 0.

    Args:
      supervised: standard input is a pipe from the supervisor, whose end (however it came) ends this process too.
      others: as of worker.run.
    """
    worker_id = worker_id or worker.default_worker_id()
    logging.basicConfig(format=f"seedzero worker {worker_id}: %(message)s", stream=sys.stderr)
    logging.getLogger("seedzero").setLevel(logging.INFO)
    stop, ended = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    # Ctrl-C reaches the whole foreground: there the supervisor decides when its workers shall end.
    signal.signal(signal.SIGINT, signal.SIG_IGN if supervised else lambda *_: stop.set())
    threading.Thread(target=_end_if_stuck, args=(stop, ended), name="seedzero-last-resort", daemon=True).start()
    if supervised:
        threading.Thread(target=_watch_supervisor, args=(stop,), name="seedzero-supervisor", daemon=True).start()
    try:
        return worker.run(
            server,
            num_envs=num_envs,
            roles=roles,
            worker_id=worker_id,
            env_factory=env_factory,
            threads=threads,
            stop=stop,
            settings=settings,
            access=access,
        )
    finally:
        ended.set()


def _watch_supervisor(stop: threading.Event) -> None:
    # Not through sys.stdin: a thread that waits in it makes Python's own end fatal.
    while os.read(0, 4096):
        pass
    stop.set()


def _end_if_stuck(stop: threading.Event, ended: threading.Event) -> None:
    """Ends the process if the worker has not ended by itself long after it was told to."""
    stop.wait()
    if not ended.wait(STOP_SECONDS):
        os._exit(worker.FAILED)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} environments; at least 1 is needed")
    return number
