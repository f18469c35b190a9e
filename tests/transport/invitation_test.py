"""The command that a learner prints for its workers."""

from __future__ import annotations

import dataclasses
import pathlib
import shlex
import socket

import certificates
import pytest

from seedzero.config import configs, worker_options
from seedzero.transport import invitation, security


def _read(config: configs.Config, address: str) -> worker_options.WorkerOptions:
    """Returns the options of the printed command."""
    words = shlex.split(invitation.to_worker(config, address))
    assert words[:2] == ["seedzero", "worker"]
    return worker_options.read(words[2:])


def _config(files: certificates.Files | None = None, **values: str) -> configs.Config:
    given = {name.replace("__", "."): value for name, value in values.items()}
    if files is not None:
        given |= {"tls.cert_file": str(files.cert), "tls.key_file": str(files.key)}
    return configs.override(configs.Config(), given)


@pytest.fixture
def _of_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "learner.example")


@pytest.mark.usefixtures("_of_example")
@pytest.mark.parametrize("listen", ["0.0.0.0:17777", "[::]:17777", "learner.example:17777"])
def test_an_invitation_is_a_command_that_works_elsewhere(listen: str) -> None:
    plain = worker_options.WorkerOptions(server="learner.example:17777")
    assert _read(_config(), listen) == plain
    with_token = _config(transport__token_file="my secrets/token")
    assert _read(with_token, listen) == dataclasses.replace(plain, token_file="my secrets/token")


@pytest.mark.usefixtures("_of_example")
def test_the_authority_beside_the_certificate_is_named(tmp_path: pathlib.Path) -> None:
    files = certificates.make(tmp_path / "authority", ["learner.example", "10.0.0.1"])
    (files.ca.parent / "a.pem").write_text("no certificate")
    for address in ("0.0.0.0:7", "10.0.0.1:7"):
        found = _read(_config(files), address)
        assert (found.ca_file, found.server_name) == (str(files.ca), "")
        security.for_client(found.server, security.Access(ca_file=found.ca_file))


@pytest.mark.parametrize(
    ("names", "server_name"),
    [
        (["learner.example"], "learner.example"),
        (["*.example", "learner.two"], "learner.two"),
        (["*.example"], "learner.example"),
        (["10.0.0.1"], "10.0.0.1"),
        (["127.0.0.1"], ""),
    ],
)
def test_the_name_of_a_certificate_is_said(names: list[str], server_name: str, tmp_path: pathlib.Path) -> None:
    files = certificates.make(tmp_path / "authority", names)
    assert _read(_config(files), "127.0.0.1:7").server_name == server_name
    files.ca.unlink()
    found = _read(_config(files), "127.0.0.1:7")
    assert (found.ca_file, found.server_name) == ("CERTIFICATE_OF_ITS_AUTHORITY", server_name)


def test_a_certificate_of_its_own_authority_is_the_file_that_vouches(tmp_path: pathlib.Path) -> None:
    files = certificates.make_alone(tmp_path / "alone", ["learner.example"])
    found = _read(_config(files), "127.0.0.1:7")
    assert (found.ca_file, found.server_name) == (str(files.cert), "learner.example")


def test_files_are_to_be_copied() -> None:
    assert invitation.waiting(_config()) == "waiting for a worker:"
    assert "copies of the files" in invitation.waiting(_config(transport__token_file="token"))


def test_an_invitation_to_a_socket_names_it() -> None:
    assert invitation.to_worker(_config(), "unix:/run/a") == "seedzero worker --server=unix:/run/a"


def test_an_invitation_to_a_run_with_remote_environments_is_for_the_users_own_worker() -> None:
    assert (
        invitation.to_worker(_config(env__id="remote"), "127.0.0.1:7") == "python YOUR_WORKER.py --server=127.0.0.1:7"
    )
