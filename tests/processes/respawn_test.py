"""A worker on a machine of its own; tests/deploy/gcp_entrypoint_test.py runs it as a whole."""

from __future__ import annotations

import subprocess
import sys

_SIGNALLED = """
import signal, sys
from seedzero.processes import respawn

def address():
    with worker._told._cond:  # as within Event.set
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    return "a learner"

worker = respawn.Worker(lambda server: [sys.executable, "-c", "import time; time.sleep(600)"], address)
sys.exit(worker.run())
"""


def test_a_signal_may_come_while_another_is_handled() -> None:
    assert subprocess.run([sys.executable, "-c", _SIGNALLED], timeout=60, check=False).returncode in (0, 143)
