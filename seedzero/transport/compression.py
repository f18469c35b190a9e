"""Compresses observations on their way through a slow link, and decides which links are slow.

protos/seedzero/transport/inference.proto has the rules; docs/speed.md, "Links", what it saves and costs.
"""

from __future__ import annotations

import zlib

import numpy as np

from seedzero.core import errors
from seedzero.transport import inference_pb2, links

KNOWN = "gzip" in inference_pb2.Step.DESCRIPTOR.fields_by_name
"""False for a stub that is older, after an update of the sources: then nothing is compressed."""
_LEVEL = 1  # the quickest one
_GZIP = 16 + zlib.MAX_WBITS  # its CRC-32 finds flipped bits, of which zlib's own Adler-32 missed 2 in 1,000
_FEWEST_BYTES = 1_400  # of a message; a smaller one is a single packet, which arrives no earlier
_FAST = 125e6  # bytes per second; at this speed both ends work for up to half of the time that is saved on the way
_LEAST_GAIN = 1.05  # less may be chance


class Packer:
    """Compresses the observations of a worker's stream while `is_on`, each as what changed since its group's last."""

    def __init__(self) -> None:
        self.is_on = False
        self._last: dict[int, tuple[int, np.ndarray]] = {}  # number and bytes of each group's last step

    def forget(self) -> None:
        """Makes each group's next observations whole, as in a new session."""
        self._last.clear()

    def pack(self, fields: inference_pb2.Step, observation: memoryview | bytes) -> bytes:
        """Returns compressed observations, and says how in the step's fields; its group and sequence must be set."""
        whole = np.frombuffer(observation, np.uint8).copy()  # the environments may reuse the memory
        sequence, before = self._last.get(fields.group, (0, None))
        self._last[fields.group] = fields.sequence, whole
        fields.gzip = True
        if before is not None and before.size == whole.size:
            fields.difference_to = sequence
            whole = whole ^ before
        return zlib.compress(whole.data, _LEVEL, _GZIP)


class Unpacker:
    """Restores the observations of a worker's stream."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, np.ndarray]] = {}

    def forget(self) -> None:
        """Forgets the observations of a session."""
        self._last.clear()

    def remember(self, fields: inference_pb2.Step, data: memoryview, num_bytes: int) -> None:
        """Takes a step that was sent again: the group's next one may differ from it. Raises as `unpack` does."""
        if KNOWN and fields.gzip and self._last.get(fields.group, (None, None))[0] != fields.sequence:
            self.unpack(fields, data, num_bytes)

    def unpack(self, fields: inference_pb2.Step, data: memoryview, num_bytes: int) -> memoryview:
        """Returns `num_bytes` bytes, read-only, as the step's checked shape announces; never allocates more.

        Raises InvalidMessage for damaged bytes, another size, or a difference to anything but the group's last step.
        """
        place = f"observation of group {fields.group}, step {fields.sequence},"
        announced = int.from_bytes(data[-4:], "little")  # gzip's last field
        if announced != num_bytes:
            raise errors.InvalidMessage(
                f"{place} has {len(data)} compressed bytes that announce {announced}; expected {num_bytes}"
            )
        inflater = zlib.decompressobj(_GZIP)
        try:
            content = np.frombuffer(inflater.decompress(data, num_bytes + 1), np.uint8)
        except zlib.error as error:
            raise errors.InvalidMessage(f"{place} has {len(data)} damaged bytes: {error}") from None
        if len(content) != num_bytes or not inflater.eof or inflater.unused_data:
            raise errors.InvalidMessage(
                f"{place} has {len(data)} compressed bytes that do not hold the {num_bytes} that they announce"
            )
        sequence, before = self._last.get(fields.group, (None, content))
        if fields.HasField("difference_to"):
            if sequence != fields.difference_to:
                raise errors.InvalidMessage(
                    f"{place} differs from step {fields.difference_to}; expected "
                    f"{'whole observations' if sequence is None else f'step {sequence}'}"
                )
            content = content ^ before
            content.flags.writeable = False
        self._last[fields.group] = fields.sequence, content
        return content.data


class Trial:
    """Decides whether a stream's worker compresses: tries it once if the link is slow, and keeps what is quicker."""

    def __init__(self) -> None:
        self.is_on = False
        self._before_seconds = 0.0  # that steps were away before the trial; 0: it has not begun
        self._is_over = False

    def decide(self, link: links.WorkerLink | None, message_bytes: int) -> bool | None:
        """Returns whether to compress from now on, or None to leave it. After that, measure the link again.

        message_bytes: observations of a group.
        """
        if link is None or not link.is_complete or self._is_over:
            return None
        if self._before_seconds:
            self._is_over = True
            self.is_on = _LEAST_GAIN * link.away_seconds <= self._before_seconds
            return None if self.is_on else False
        if not link.is_far or not _FEWEST_BYTES <= message_bytes <= _FAST * link.round_trip_seconds:
            return None
        self._before_seconds, self.is_on = link.away_seconds, True
        return True
