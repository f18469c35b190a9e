"""Addresses that can and cannot be used."""

from __future__ import annotations

import pathlib
import socket

import pytest

from seedzero.core import errors
from seedzero.transport import addresses


@pytest.mark.parametrize("name", ["127.0.0.1:50051", "learner.example.org:1", "[::1]:50051"])
def test_host_and_port_are_left_alone(name: str) -> None:
    assert addresses.target(name) == addresses.bound_target(name) == name


@pytest.mark.parametrize("name", ["dns:learner:1", "dns:///learner.example.org:1", "dns://8.8.8.8/learner:1"])
def test_names_for_a_resolver_are_for_clients_alone(name: str) -> None:
    assert addresses.target(name) == name
    with pytest.raises(errors.UsageError, match=r"HOST:PORT .* unix:PATH"):
        addresses.bound_target(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "localhost",
        "localhost:",
        ":50051",
        "host:port",
        "host:70000",
        "::1:50051",
        "host:-1",
        "dns:",
        "dns:///host",
        "dns://server",
        "dns:unix:/x",
    ],
)
def test_other_addresses_are_refused(name: str) -> None:
    with pytest.raises(errors.UsageError, match=r"HOST:PORT .* unix:PATH"):
        addresses.target(name)


def test_unix_path_becomes_absolute_and_quoted(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert addresses.target("unix:a b").endswith("/a%20b")
    assert addresses.unix_path("unix:x") == tmp_path / "x"


def test_impossible_unix_paths_are_refused() -> None:
    with pytest.raises(errors.UsageError, match="'unix:' has no path; write unix:PATH"):
        addresses.target("unix:")
    with pytest.raises(errors.UsageError, match=r"201 .* 107.*--listen"):
        addresses.target("unix:/" + 200 * "x")
    with pytest.raises(errors.UsageError, match=r"'unix:/a,b/learner\.sock'.*comma.*--listen"):
        addresses.target("unix:/a,b/learner.sock")


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a:1", ("a:1",)),
        ("a:1,[::1]:2,dns:///c:3", ("a:1", "[::1]:2", "dns:///c:3")),
        ("unix:/a,unix:b", ("unix:/a", "unix:b")),
        ("nonsense", ("nonsense",)),  # as it came, for the one who reads it
    ],
)
def test_a_list_names_its_addresses_in_order(text: str, entries: tuple[str, ...]) -> None:
    assert addresses.listed(text) == entries


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (",", "entry 1 "),
        ("a:1,", "entry 2 .* empty"),
        ("a:1,,b:2", "entry 2 .* empty"),
        ("a:1, b:2", "entry 2 .* spaces"),
        ("a:1,b", "'b' is neither"),
        ("a:1,b:2,a:1", "'a:1' and 'a:1'"),
        ("unix:/a,unix:/b,unix:/./a", "'unix:/a' and 'unix:/./a'"),
        ("a:1,unix:/a", "unix sockets and others"),
        ("unix:/a,b/learner.sock", "no path with a comma"),
    ],
)
def test_malformed_lists_are_refused(text: str, fault: str) -> None:
    with pytest.raises(errors.UsageError, match=fault):
        addresses.listed(text)


def test_dead_socket_file_is_removed(tmp_path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "s"))
    addresses.free_unix_path(f"unix:{tmp_path / 's'}")
    assert not (tmp_path / "s").exists()
    addresses.free_unix_path(f"unix:{tmp_path / 's'}")


def test_living_socket_and_other_files_stay(tmp_path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(tmp_path / "s"))
        alive.listen()
        with pytest.raises(errors.UsageError, match="/s: another process listens there"):
            addresses.free_unix_path(f"unix:{tmp_path / 's'}")
    (tmp_path / "file").touch()
    with pytest.raises(errors.UsageError, match="/file exists and is not a socket"):
        addresses.free_unix_path(f"unix:{tmp_path / 'file'}")
    with pytest.raises(errors.UsageError, match=r"/missing$"):
        addresses.free_unix_path(f"unix:{tmp_path / 'missing' / 's'}")
    assert (tmp_path / "s").exists() and (tmp_path / "file").exists()
