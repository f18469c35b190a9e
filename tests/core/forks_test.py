"""A forked process holds no lock, port or pipe of this one, and calls no library that would hang.

In processes of their own: JAX warns of forks.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

import pytest

FORKED = """
import contextlib, os, socket, sys
from seedzero.core import forks

how, unix = sys.argv[1:]
listener = socket.create_server(("127.0.0.1", 0))
local = socket.create_server(unix, family=socket.AF_UNIX)
client = socket.create_connection(listener.getsockname())
accepted = listener.accept()[0]
reader, writer = os.pipe()
pipe = os.fdopen(writer, "wb")
mine = socket.socketpair()
closed = socket.socket()
if how == "places":
    forks.keep_listener(listener.getsockname()[1])
    forks.keep_listener(unix)
else:
    forks.keep(listener, local, accepted)
forks.keep(pipe, closed, None)
closed.close()
if os.fork() == 0:  # it lives until the other end of its own socket is closed
    mine[1].close()
    mine[0].send(b"!")
    mine[0].recv(1)
    os._exit(0)
mine[0].close()
mine[1].recv(1)  # it is at work
place = listener.getsockname()
for each in (listener, local, accepted, pipe):
    each.close()
assert (os.read(reader, 1), client.recv(1)) == (b"", b"")
with contextlib.suppress(OSError):
    socket.create_connection(place)
    raise SystemExit("somebody listens")
with contextlib.suppress(OSError):
    socket.socket(socket.AF_UNIX).connect(unix)
    raise SystemExit("somebody listens at the path")
mine[1].close()
assert os.wait()[1] == 0
print("free")
"""


@pytest.mark.parametrize("how", ["descriptors", "places"])
def test_a_forked_process_keeps_no_port_no_connection_and_no_pipe_open(how: str) -> None:
    with tempfile.TemporaryDirectory() as folder:  # a unix socket's path is short
        command = [sys.executable, "-c", FORKED, how, f"{folder}/a.sock"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout + done.stderr == "free\n"


LEFT = """
import os
from seedzero.core import errors
from seedzero.device import compilation_cache
from seedzero.transport import security

there = security.for_client("127.0.0.1:1")

def forked(call):
    if (pid := os.fork()) == 0:
        try:
            call()
        except errors.UsageError:
            os._exit(7)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def connect():
    return security.channel(there)

channel = connect()
print(forked(connect), forked(compilation_cache.enable), end=" ")
channel.close()
del channel
compilation_cache.enable()
print(forked(connect), forked(compilation_cache.enable))
"""


@pytest.mark.thorough
def test_a_library_in_use_before_a_fork_is_refused_after_it_and_no_other() -> None:
    command = [sys.executable, "-W", "ignore", "-c", LEFT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout + done.stderr == "7 0 7 7\n"
