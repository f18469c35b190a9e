"""Ends a learner host that hangs: `python -m seedzero.learner.cluster.watchdog PID SECONDS`, a process next to it.

Otherwise the other hosts would wait forever for a stopped host's part of an update. A byte on standard input shows
that the host is alive; after SECONDS without one it is killed. Standard input ends when the host itself ends.
"""

from __future__ import annotations

import os
import select
import signal
import sys


def watch(pid: int, seconds: float, descriptor: int) -> bool:
    """Returns False when the descriptor ends.

    After this many seconds without a byte, kills the process and returns True.
    """
    while select.select([descriptor], [], [], seconds)[0]:
        if not os.read(descriptor, 4096):
            return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def main(arguments: list[str]) -> int:
    """Watches a process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # ends together with its host
    pid, seconds = int(arguments[0]), float(arguments[1])
    if watch(pid, seconds, sys.stdin.fileno()):
        print(f"this host stood still for {seconds:g} s, so it is ended (SIGKILL): the others wait", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
