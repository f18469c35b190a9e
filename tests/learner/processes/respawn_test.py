"""A worker on a machine of its own; tests/deploy/gcp_entrypoint_test.py runs it as a whole."""

from __future__ import annotations

import os
import pathlib
import select
import subprocess
import sys

_SIGNALLED = """
import signal, sys
from seedzero.learner.processes import respawn

def address():
    with worker._told._cond:  # as within Event.set
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    return "a learner"

worker = respawn.Respawner(lambda server: [sys.executable, "-c", "import time; time.sleep(600)"], address)
sys.exit(worker.run())
"""


def test_a_signal_may_come_while_another_is_handled() -> None:
    assert subprocess.run([sys.executable, "-c", _SIGNALLED], timeout=600, check=False).returncode in (0, 143)


_CRASHING = """
import os, signal, subprocess, sys
if os.path.exists("crashed"):
    sys.exit(0)
open("crashed", "w").close()
child = "import time; held = open('left', 'w'); print('x', file=held, flush=True); time.sleep(60)"
subprocess.Popen([sys.executable, "-S", "-c", child])
open("go").read()
os.kill(os.getpid(), signal.SIGSEGV)
"""

_KEEPING = """
import sys
from seedzero.learner.processes import respawn

sys.exit(respawn.Respawner(lambda server: [sys.executable, "-c", sys.argv[1]], lambda: "a learner").run())
"""


def test_what_a_crashed_worker_started_ends_with_it(tmp_path: pathlib.Path) -> None:
    for name in ("left", "go"):
        os.mkfifo(tmp_path / name)
    command = [sys.executable, "-c", _KEEPING, _CRASHING]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (
        open(os.open(tmp_path / "left", os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as left,
        subprocess.Popen(command, cwd=tmp_path, env=environment) as keeping,
    ):
        assert select.select([left], [], [], 60.0)[0] and left.read(8)
        (tmp_path / "go").write_text("")
        assert select.select([left], [], [], 20.0)[0] and left.read(8) == b""
        assert keeping.wait(600) == 0
