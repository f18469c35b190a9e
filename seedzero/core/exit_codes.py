"""Exit codes of every process of seedzero, and the end of a process."""

import os
import sys
import threading
from typing import NoReturn

DONE = 0
FAILED = 1
BAD_USAGE = 2
"""A command line or configuration that cannot be run."""
REFUSED = 65
"""Of a worker: impossible values, mostly of its environments, which a restart would mostly show again."""
TRY_LATER = 75
"""For a supervisor: another learner still uses the run directory."""
INTERRUPTED = 130
"""The process left at once, on Ctrl-C."""


def leave(code: int) -> NoReturn:
    """Ends the process at once.

    Python would first wait for every thread: an environment's may never end, and the compiling one cannot be
    interrupted, though a large program takes longer than the notice before a machine is taken away.
    """
    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        for stream in filter(None, (sys.stdout, sys.stderr)):  # a closed one is None
            stream.flush()
        os._exit(code)
    sys.exit(code)
