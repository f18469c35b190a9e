"""The observation of a WorkerMessage lies beside its other fields: put and found here without protobuf's copies."""

from __future__ import annotations

from seedzero.core import errors
from seedzero.transport import inference_pb2

_MAX_FIELDS = 64
"""Of one message at its top level; this protocol has two, one to come may have more."""
_TAG = inference_pb2.WorkerMessage.OBSERVATION_FIELD_NUMBER << 3 | 2


def join(head: bytes, observation: memoryview | bytes) -> bytes:
    """Returns a WorkerMessage of its other fields and its observation, which is copied once."""
    return b"".join((head, bytes([_TAG]), _varint(len(observation)), observation))


def split(data: bytes) -> tuple[bytes, memoryview]:
    """Returns a WorkerMessage's other fields, and its observation as a view of the message's bytes.

    The rest is left to the protobuf library. Only the top level is walked: tags and lengths; InvalidMessage where they
    make no sense, or there are more fields than any message has.
    """
    position, tag_start, start, end = 0, len(data), len(data), len(data)
    num_fields = 0
    while position < len(data):
        num_fields += 1
        if num_fields > _MAX_FIELDS:
            raise errors.InvalidMessage(
                f"a message of {len(data)} bytes has more than {_MAX_FIELDS} fields; expected one of WorkerMessage's "
                "and its observation"
            )
        field_start = position
        tag, position = _read_varint(data, position)
        if tag & 7 != 2:  # every field of WorkerMessage is length-delimited
            raise undecodable(data)
        length, position = _read_varint(data, position)
        position += length
        if position > len(data):
            raise undecodable(data)
        if tag == _TAG:
            tag_start, start, end = field_start, position - length, position
    head = data[:tag_start] if end == len(data) else data[:tag_start] + data[end:]
    return head, memoryview(data)[start:end]


def undecodable(data: bytes) -> errors.InvalidMessage:
    """Returns the error for bytes that make no message."""
    return errors.InvalidMessage(f"{len(data)} bytes that begin with {data[:16].hex()!r} cannot be decoded")


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[position : position + 10]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise undecodable(data)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
