"""Messages between hosts are read with care."""

from __future__ import annotations

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
    "changed",
    [
        *({"index": "1"}, {"index": True}, {"num": 1.5}, {"version": 2**70}, {"index": -2}),
        *({"reached_at": "nowhere"}, {"reached_at": 7000.5}),
        *({"steps": 3}, {"steps": [20]}, {"steps": {"a": ""}}),
    ],
    ids=str,
)
def test_another_hello_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(errors.InvalidMessage):
        messages.hello({"hello": {**HELLO, **changed}})


@pytest.mark.parametrize("missing", HELLO)
def test_a_hello_without_a_part_is_refused(missing: str) -> None:
    with pytest.raises(errors.InvalidMessage):
        messages.hello({"hello": {name: value for name, value in HELLO.items() if name != missing}})
