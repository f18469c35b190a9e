"""The address of a host for the others: its own end, whatever the machine calls itself."""

from __future__ import annotations

import socket

import pytest

from seedzero.core import errors
from seedzero.learner.cluster import reach


def _loopback() -> str:
    (name,) = [name for _, name in socket.if_nameindex() if name == "lo"]
    return name


def test_the_own_end_of_the_way_to_the_coordinator_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: pytest.fail("the machine's own name does not matter"))
    assert reach.own_end("127.0.0.1:7000") == "127.0.0.1"
    assert reach.own_end("localhost:7000") in ("127.0.0.1", "::1")


def test_a_name_that_nobody_knows_is_named() -> None:
    with pytest.raises(errors.TrainingFailure, match=r"--cluster\.coordinator=no-such-host\.invalid:1: .*no way"):
        reach.own_end("no-such-host.invalid:1")


def test_an_interface_has_its_address_and_another_is_refused() -> None:
    assert reach.of_interface(_loopback()) == "127.0.0.1"
    with pytest.raises(errors.UsageError, match=r"--cluster\.interface=nosuch0: .*lo"):
        reach.of_interface("nosuch0")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("10.0.0.1", "192.168.0.7", False),
        ("127.0.0.1", "127.0.1.1", False),
        ("127.0.1.1", "10.0.0.1", True),
        ("10.0.0.1", "fd00::1", True),
        ("fd00::2", "fd00::1", False),
    ],
)
def test_loopback_reaches_no_other_machine(one: str, other: str, expected: bool) -> None:
    assert reach.are_apart(one, other) is reach.are_apart(other, one) is expected


def test_a_coordinator_whose_name_is_loopback_on_its_own_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reach.only_here("127.0.0.1:7000") == "" == reach.only_here("localhost:7000")
    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: resolve("127.0.1.1", *rest, **more))
    told = reach.only_here("debian:7000")
    assert "debian is 127.0.0.1 here" in told and "give --cluster.coordinator=ADDRESS:PORT" in told
