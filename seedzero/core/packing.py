"""Packs observations of named arrays: each environment's row has the concatenated bytes of all arrays.

So several arrays travel, are stored and are sampled as one; `ops/unpacking.py` gives agents the arrays.

Shape letters: E environments of one group, N bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from seedzero.core import types


def pack(arrays: Sequence[types.ArraySpec], values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Packs {name: [E, *shape]} as [E, N] uint8, little-endian and in C order, after casting to the arrays' dtypes."""
    batches = [values[array.name].astype(_dtype(array), order="C", copy=False) for array in arrays]
    return np.concatenate([batch.reshape(len(batch), -1).view(np.uint8) for batch in batches], axis=1)


def unpack(arrays: Sequence[types.ArraySpec], packed: np.ndarray) -> dict[str, np.ndarray]:
    """Unpacks [E, N] uint8 as {name: [E, *shape]}."""
    found, start = {}, 0
    for array in arrays:
        flat = packed[:, start : start + array.num_bytes]
        if array.dtype != "uint8":
            flat = np.ascontiguousarray(flat).view(_dtype(array))
        found[array.name] = flat.reshape(len(packed), *array.shape)
        start += array.num_bytes
    return found


def encode_texts(texts: Sequence[str], num_bytes: int) -> np.ndarray:
    """Encodes texts as UTF-8, [E, num_bytes] uint8, cut to the length or padded with zero bytes."""
    rows = [text.encode(errors="replace").replace(b"\0", b" ")[:num_bytes].ljust(num_bytes, b"\0") for text in texts]
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(texts), num_bytes)


def _dtype(array: types.ArraySpec) -> np.dtype[np.generic]:
    return np.dtype(array.dtype).newbyteorder("<")
