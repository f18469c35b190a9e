"""Observations beside protobuf's fields: any message's bytes come apart and together again."""

from __future__ import annotations

import pytest

from seedzero.core import errors
from seedzero.transport import framing, inference_pb2


@pytest.mark.parametrize("length", [0, 1, 127, 128, 70_000])
def test_a_joined_message_is_protobufs_and_splits_into_its_parts(length: int) -> None:
    head = inference_pb2.WorkerMessage(hello=inference_pb2.Hello(worker_id="w")).SerializeToString()
    observation = bytes(range(256)) * 300
    data = framing.join(head, memoryview(observation)[:length])
    parsed = inference_pb2.WorkerMessage.FromString(data)
    assert (parsed.hello.worker_id, parsed.observation) == ("w", observation[:length])
    found, view = framing.split(data)
    assert (found, bytes(view)) == (head, observation[:length])
    assert length == 0 or view.obj is data  # no copy


def test_fields_on_both_sides_of_the_observation_are_the_head() -> None:
    head = inference_pb2.WorkerMessage(hello=inference_pb2.Hello(worker_id="w")).SerializeToString()
    found, view = framing.split(framing.join(b"", b"abc") + head)
    assert (found, bytes(view)) == (head, b"abc")


def test_a_message_without_observation_is_all_head() -> None:
    assert framing.split(b"") == (b"", b"")


@pytest.mark.parametrize("data", [b"\x08\x01", b"\x12\x05ab", b"\x12", b"\xff" * 12], ids=bytes.hex)
def test_bytes_that_make_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(errors.InvalidMessage, match=f"{len(data)} bytes that begin with '{data.hex()}'"):
        framing.split(data)


def test_a_message_of_countless_fields_is_refused_before_they_are_walked() -> None:
    heartbeat = inference_pb2.WorkerMessage(heartbeat=inference_pb2.Heartbeat()).SerializeToString()
    assert framing.split(64 * heartbeat) == (64 * heartbeat, b"")
    with pytest.raises(errors.InvalidMessage, match="a message of 130 bytes has more than 64 fields"):
        framing.split(65 * heartbeat)
