"""The place of the unix socket of local processes."""

from __future__ import annotations

import pathlib
import socket
import tempfile

from seedzero.learner import local_socket
from seedzero.transport import addresses


def test_the_local_socket_lies_in_the_run_directory_if_it_can() -> None:
    with tempfile.TemporaryDirectory() as short:
        for _ in range(2):
            with local_socket.opened(pathlib.Path(short), "127.0.0.1:0") as local:
                assert local == f"unix:{short}/learner.sock"
            with socket.socket(socket.AF_UNIX) as left:  # as a killed process may leave it
                left.bind(f"{short}/probe.sock")
        (pathlib.Path(short) / "probe.sock").unlink(missing_ok=True)
        (pathlib.Path(short) / "probe.sock").write_text("mine")
        with local_socket.opened(pathlib.Path(short), "127.0.0.1:0") as local:
            assert not local.startswith(f"unix:{short}")
        assert (pathlib.Path(short) / "probe.sock").read_text() == "mine"
        with local_socket.opened(pathlib.Path(short), "unix:/mine") as local:
            assert local == "unix:/mine"
        with local_socket.opened(pathlib.Path(short), "unix:mine") as local:
            assert local == f"unix:{pathlib.Path('mine').absolute()}"
    for none in (pathlib.Path("/runs") / ("long" * 30), pathlib.Path("/proc"), pathlib.Path("/tmp/a,b")):
        with local_socket.opened(none, "") as local:
            folder = addresses.unix_path(local).parent
            assert folder.is_dir() and folder != none
        assert not folder.exists()
