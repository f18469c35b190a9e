"""Exit codes of every process of seedzero, and the function that ends a process."""

import os
import sys
import threading
from typing import NoReturn

DONE = 0
FAILED = 1
BAD_USAGE = 2
"""A command line or configuration that cannot be run."""
REFUSED = 65
"""A worker has impossible values, mostly from its environments, which a restart would mostly show again."""
FAILED_LATER = 66
"""A worker's environments failed after some of its episodes were completed, so a restart makes progress."""
TRY_LATER = 75
"""Tells a supervisor that another learner still uses the run directory."""
INTERRUPTED = 130
"""The process left at once after Ctrl-C."""


def leave(code: int) -> NoReturn:
    """Ends the process at once.

    Python would first wait for every thread. An environment's thread may never end, and the compiling thread cannot be
    interrupted, although a large program takes longer than the notice before a machine is taken away.
    """
    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        for stream in filter(None, (sys.stdout, sys.stderr)):  # a closed stream is None
            stream.flush()
        os._exit(code)
    sys.exit(code)
