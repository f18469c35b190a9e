"""Ends a learner host that stands still: `python -m seedzero.cluster.watchdog PID SECONDS`, beside the host.

Its other hosts wait for a stopped host's part of an update for ever. A byte on standard input says that the host is
alive; after SECONDS without it is killed. The end of standard input is the host's own end.
"""

from __future__ import annotations

import os
import select
import signal
import sys


def watch(pid: int, seconds: float, descriptor: int) -> bool:
    """Returns false at the descriptor's end; kills the process after so long without a byte, and returns true."""
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
        signal.signal(number, signal.SIG_IGN)  # it leaves with its host
    pid, seconds = int(arguments[0]), float(arguments[1])
    if watch(pid, seconds, sys.stdin.fileno()):
        print(f"this host stood still for {seconds:g} s, so it is ended (SIGKILL): the others wait", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
