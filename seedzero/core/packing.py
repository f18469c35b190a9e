"""Observations of named arrays: the concatenated bytes of all, a row for each environment.

So several arrays travel, lie in rings and files, and are sampled as one; `ops/unpacking.py` gives agents the arrays.

Shape letters: E environments of one group, N bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from seedzero.core import types


def pack(arrays: Sequence[types.ArraySpec], values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns [E, N] uint8 of {name: [E, *shape]}, little-endian and in C order; casts to the arrays' dtypes."""
    batches = [values[array.name].astype(_dtype(array), order="C", copy=False) for array in arrays]
    return np.concatenate([batch.reshape(len(batch), -1).view(np.uint8) for batch in batches], axis=1)


def unpack(arrays: Sequence[types.ArraySpec], packed: np.ndarray) -> dict[str, np.ndarray]:
    """Returns {name: [E, *shape]} of [E, N] uint8."""
    found, start = {}, 0
    for array in arrays:
        flat = packed[:, start : start + array.num_bytes]
        if array.dtype != "uint8":
            flat = np.ascontiguousarray(flat).view(_dtype(array))
        found[array.name] = flat.reshape(len(packed), *array.shape)
        start += array.num_bytes
    return found


def encode_texts(texts: Sequence[str], num_bytes: int) -> np.ndarray:
    """Returns [E, num_bytes] uint8: each text in UTF-8, cut to the length or padded with zero bytes."""
    rows = [text.encode(errors="replace").replace(b"\0", b" ")[:num_bytes].ljust(num_bytes, b"\0") for text in texts]
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(texts), num_bytes)


def _dtype(array: types.ArraySpec) -> np.dtype[np.generic]:
    return np.dtype(array.dtype).newbyteorder("<")
