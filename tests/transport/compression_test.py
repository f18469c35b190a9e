"""Compressed observations: there and back, damaged, and on which links."""

from __future__ import annotations

import gzip
import itertools
import zlib
from typing import Any

import numpy as np
import pytest

from seedzero.core import errors, types
from seedzero.transport import codec, compression, inference_pb2, links

E, SIZE = 3, 400
SPEC = types.EnvSpec((SIZE,), "uint8", 4, 0, 255)
LAYOUT = codec.StepLayout(SPEC, E)
NUM_BYTES = E * SIZE


def make_step(seed: int) -> types.EnvStep:
    no = np.zeros(E, bool)
    return types.EnvStep(
        np.random.default_rng(seed).integers(0, 4, (E, SIZE), np.uint8), np.zeros(E, np.float32), no, no
    )


def packer() -> compression.Packer:
    found = compression.Packer()
    found.is_on = True
    return found


def taken(data: bytes, unpacker: compression.Unpacker | None) -> np.ndarray:
    message, observation = codec.decode_worker(data)
    return codec.step_of(message.step, observation, LAYOUT, unpacker).observation


def test_observations_come_back_whole_and_as_differences_of_each_group() -> None:
    worker, learner = packer(), compression.Unpacker()
    for sequence, group in itertools.product(range(3), range(2)):
        step = make_step(sequence)
        data = codec.encode_step(group, sequence, step, worker)
        fields = inference_pb2.WorkerMessage.FromString(data).step
        assert fields.gzip and len(data) < NUM_BYTES / 2
        assert fields.HasField("difference_to") == (sequence > 0) and fields.difference_to == max(0, sequence - 1)
        found = taken(data, learner)
        np.testing.assert_array_equal(found, step.observation)
        assert not found.flags.writeable
        step.observation[:] = 0  # an environment may reuse it


def test_a_new_session_begins_with_whole_observations() -> None:
    worker, learner = packer(), compression.Unpacker()
    taken(codec.encode_step(0, 0, make_step(0), worker), learner)
    worker.forget()
    learner.forget()
    data = codec.encode_step(0, 0, make_step(1), worker)
    np.testing.assert_array_equal(taken(data, learner), make_step(1).observation)


def test_a_worker_may_stop_and_begin_again() -> None:
    worker, learner = packer(), compression.Unpacker()
    for sequence, is_on in enumerate((True, False, False, True, True)):
        worker.is_on = is_on
        data = codec.encode_step(0, sequence, make_step(sequence), worker)
        np.testing.assert_array_equal(taken(data, learner), make_step(sequence).observation)


def test_a_step_that_was_sent_again_is_what_the_next_one_differs_from() -> None:
    worker, learner = packer(), compression.Unpacker()
    for sequence in range(2):
        data = codec.encode_step(0, sequence, make_step(sequence), worker)
        for _ in range(2):
            message, observation = codec.decode_worker(data)
            learner.remember(message.step, observation, NUM_BYTES)
    data = codec.encode_step(0, 2, make_step(2), worker)
    np.testing.assert_array_equal(taken(data, learner), make_step(2).observation)


def test_noise_fits_a_message_though_it_grows() -> None:
    noise = make_step(0)._replace(observation=np.random.default_rng(0).integers(0, 256, (E, SIZE), np.uint8))
    data = codec.encode_step(0, 0, noise, packer())
    assert NUM_BYTES < len(data) < NUM_BYTES + 200
    np.testing.assert_array_equal(taken(data, compression.Unpacker()), noise.observation)


def unpack(data: bytes, **fields: Any) -> memoryview:
    step = inference_pb2.Step(group=1, sequence=7, **fields)
    return compression.Unpacker().unpack(step, memoryview(data), NUM_BYTES)


WHOLE = gzip.compress(bytes(NUM_BYTES))
SIZE_FIELD = NUM_BYTES.to_bytes(4, "little")
DAMAGED = {
    "no gzip": (b"nothing of the kind", "group 1, step 7, has 19 compressed bytes that announce"),
    "no gzip but the size": (b"nothing of the kind" + SIZE_FIELD, "group 1, step 7, has 23 damaged bytes"),
    "a flipped bit": (WHOLE[:-8] + bytes([WHOLE[-8] ^ 1]) + WHOLE[-7:], "damaged"),
    "an end that is missing": (WHOLE[:-2], "that announce"),
    "a middle that is missing": (WHOLE[:12] + WHOLE[-4:], "do not hold the 1200|damaged"),
    "nothing": (b"", "announce 0; expected 1200"),
    "bytes behind the end": (WHOLE + SIZE_FIELD, "do not hold the 1200"),
    "a second member": (WHOLE + WHOLE, "do not hold the 1200"),
    "a byte too few": (gzip.compress(bytes(NUM_BYTES - 1)), "announce 1199; expected 1200"),
    "a byte too many": (gzip.compress(bytes(NUM_BYTES + 1)), "announce 1201; expected 1200"),
    "more than they announce": (gzip.compress(bytes(2 * NUM_BYTES))[:-4] + SIZE_FIELD, "do not hold the 1200"),
    "a size that is not a number of theirs": (gzip.compress(bytes(8))[:-4] + SIZE_FIELD, "damaged"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_bytes_are_an_error_that_names_the_step(damage: str) -> None:
    data, message = DAMAGED[damage]
    with pytest.raises(errors.InvalidMessage, match=message):
        unpack(data)


def test_every_flipped_bit_is_an_error_or_restores_the_same() -> None:
    data = gzip.compress(make_step(0).observation.tobytes(), 1)
    whole = unpack(data).tobytes()
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        try:
            assert unpack(bytes(flipped)).tobytes() == whole  # a time or a system that nobody reads
        except errors.InvalidMessage as error:
            assert "group 1, step 7" in str(error)


def test_of_a_bomb_no_more_is_inflated_than_the_shape_announces(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Inflater:
        def __init__(self, bits: int) -> None:
            self._inflater = zlib_decompressobj(bits)
            self.eof, self.unused_data = False, b""

        def decompress(self, data: bytes, most: int) -> bytes:
            asked.append(most)
            return self._inflater.decompress(data, most)

    bomb, zlib_decompressobj = gzip.compress(bytes(2**26))[:-4] + SIZE_FIELD, zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", Inflater)
    with pytest.raises(errors.InvalidMessage, match="do not hold the 1200"):
        unpack(bomb)
    assert asked == [NUM_BYTES + 1]


def test_the_shape_is_checked_before_anything_is_inflated() -> None:
    step = make_step(0)._replace(observation=np.zeros((E, SIZE + 1), np.uint8))
    with pytest.raises(errors.InvalidMessage, match=r"shape \(3, 401\)"):
        taken(codec.encode_step(0, 0, step, packer()), None)


def test_a_difference_to_any_but_the_last_step_is_refused() -> None:
    with pytest.raises(errors.InvalidMessage, match="differs from step 6; expected whole observations"):
        unpack(WHOLE, difference_to=6)
    worker, learner = packer(), compression.Unpacker()
    first, second, third = (codec.encode_step(0, sequence, make_step(sequence), worker) for sequence in range(3))
    taken(first, learner)
    with pytest.raises(errors.InvalidMessage, match="differs from step 1; expected step 0"):
        taken(third, learner)
    np.testing.assert_array_equal(taken(second, learner), make_step(1).observation)


def test_compression_that_nobody_asked_for_is_refused() -> None:
    with pytest.raises(errors.InvalidMessage, match="only after Compress"):
        taken(codec.encode_step(0, 0, make_step(0), packer()), None)


FAR = links.WorkerLink(2, 16, 0.01, 0.02, 0.1, 0.001, 1e6, is_complete=True)
IMAGES = 147_456


def test_a_slow_link_is_tried_once_and_what_is_quicker_is_kept() -> None:
    trial = compression.Trial()
    assert trial.decide(None, IMAGES) is None
    assert trial.decide(FAR._replace(is_complete=False), IMAGES) is None
    assert trial.decide(FAR, IMAGES) is True
    assert trial.decide(None, IMAGES) is None
    quicker = FAR._replace(round_trip_seconds=0.02)
    assert trial.decide(quicker._replace(is_complete=False), IMAGES) is None
    assert trial.decide(quicker, IMAGES) is None
    assert trial.decide(FAR, IMAGES) is None  # whatever happens later


@pytest.mark.parametrize("after", [FAR, FAR._replace(round_trip_seconds=0.01, turn_seconds=0.2)])
def test_what_is_no_quicker_is_given_up(after: links.WorkerLink) -> None:
    trial = compression.Trial()
    assert trial.decide(FAR, IMAGES) is True
    assert trial.decide(after, IMAGES) is False
    assert trial.decide(FAR, IMAGES) is None


@pytest.mark.parametrize(
    ("changes", "message_bytes"),
    [
        ({"round_trip_seconds": 0.004}, IMAGES),  # a local link
        ({"answer_seconds": 0.2}, IMAGES),  # a learner that is slower
        ({}, 1_000),  # a packet
        ({"round_trip_seconds": 0.006}, 10 * IMAGES),  # 2 Gbit/s
    ],
)
def test_other_links_are_left_alone(changes: dict[str, float], message_bytes: int) -> None:
    assert compression.Trial().decide(FAR._replace(**changes), message_bytes) is None
