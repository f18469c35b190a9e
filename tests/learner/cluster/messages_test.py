"""Messages between hosts are read with care."""

from __future__ import annotations

import socket

import pytest

from seedzero.core import errors
from seedzero.learner.cluster import messages

HELLO = {"index": 1, "num": 2, "settings": "same", "version": 1, "program": "this", "steps": {"20": "ab", "40": ""}}


def test_a_message_comes_out_as_it_went_in() -> None:
    message = {"decisions": [["update", 3, ""]], "steps": {}}
    assert messages.decode(messages.encode(message)) == message


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"3", b"{", b'{"a":' * 5000], ids=lambda data: repr(data[:8]))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(errors.InvalidMessage):
        messages.decode(data)


def test_a_hello_is_read() -> None:
    assert messages.hello({"hello": HELLO}) == messages.HostHello(
        1, 2, "same", 1, "this", {20: "ab", 40: ""}, "0.0.0.0"
    )


@pytest.mark.parametrize(
    "hello",
    [
        *({**HELLO, "index": value} for value in ("1", True, -2)),
        *({**HELLO, "num": 1.5}, {**HELLO, "version": 2**70}),
        *({**HELLO, "reached_at": value} for value in ("nowhere", 7000.5)),
        *({**HELLO, "steps": value} for value in (3, [20], {"a": ""})),
        *({name: value for name, value in HELLO.items() if name != missing} for missing in HELLO),
    ],
    ids=str,
)
def test_another_hello_is_refused(hello: dict[str, object]) -> None:
    with pytest.raises(errors.InvalidMessage):
        messages.hello({"hello": hello})


def _loopback() -> str:
    (name,) = [name for _, name in socket.if_nameindex() if name == "lo"]
    return name


def test_the_own_end_of_the_way_to_the_coordinator_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: pytest.fail("the machine's own name does not matter"))
    assert messages.own_end("127.0.0.1:7000") == "127.0.0.1"
    assert messages.own_end("localhost:7000") in ("127.0.0.1", "::1")


def test_a_name_that_nobody_knows_is_named() -> None:
    with pytest.raises(errors.TrainingFailure, match=r"--cluster\.coordinator=no-such-host\.invalid:1: .*no way"):
        messages.own_end("no-such-host.invalid:1")


def test_an_interface_has_its_address_and_another_is_refused() -> None:
    assert messages.of_interface(_loopback()) == "127.0.0.1"
    with pytest.raises(errors.UsageError, match=r"--cluster\.interface=nosuch0: .*lo"):
        messages.of_interface("nosuch0")


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
    assert messages.are_apart(one, other) is messages.are_apart(other, one) is expected


def test_a_coordinator_whose_name_is_loopback_on_its_own_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert messages.only_here("127.0.0.1:7000") == "" == messages.only_here("localhost:7000")
    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: resolve("127.0.1.1", *rest, **more))
    told = messages.only_here("debian:7000")
    assert "debian is 127.0.0.1 here" in told and "give --cluster.coordinator=ADDRESS:PORT" in told
