"""Draws boards for environments without pictures, and converts pictures of other environments."""

from __future__ import annotations

from typing import Any

import numpy as np

_PIXELS_PER_CELL = 32
_COLOURS = np.array(
    [[78, 121, 167], [242, 142, 43], [225, 87, 89], [118, 183, 178], [89, 161, 79], [237, 201, 72], [176, 122, 161],
     [255, 157, 167], [156, 117, 95], [186, 176, 172]], np.uint8
)  # fmt: skip


def paint(planes: np.ndarray) -> np.ndarray:
    """Draws [H, W, C] as [32 H, 32 W, 3] uint8: a cell has the colour of its last non-zero plane."""
    lit = planes != 0
    last = lit.shape[-1] - 1 - np.argmax(lit[..., ::-1], axis=-1)
    picture = np.where(lit.any(axis=-1, keepdims=True), _COLOURS[last % len(_COLOURS)], np.uint8(0))
    return enlarged(picture, _PIXELS_PER_CELL)


def enlarged(picture: np.ndarray, factor: int) -> np.ndarray:
    """Enlarges a picture [H, W, C] to [factor H, factor W, C] of the same dtype."""
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)


def converted(value: Any) -> np.ndarray:
    """Converts an environment's picture to [H, W, 3] uint8.

    Args:
      value: [H, W], [H, W, 1], [H, W, 3], or [H, W, 4] with opacity, which is shown on white. uint8 stays unchanged;
        truth values, and numbers from 0 to 1 of every other dtype, become 0 to 255; whole numbers from 0 to 255 stay.
        A list of arrays (Gymnasium's `rgb_array_list`) stands for its newest.

    Raises ValueError, with a description of the value and of what was expected, for everything else, including NaN.
    """
    if isinstance(value, list | tuple) and value and isinstance(value[-1], np.ndarray):
        value = value[-1]
    try:
        picture = np.asarray(value)
    except Exception as error:  # ragged lists, and errors in foreign conversions
        raise ValueError(f"{type(value).__name__}, not an array [height, width, 3]") from error
    if picture.dtype.kind not in "biuf" or picture.ndim == 0:
        raise ValueError(f"{type(value).__name__}, not an array [height, width, 3] of numbers")
    if picture.ndim == 2:
        picture = picture[..., None]
    if picture.ndim != 3 or picture.shape[2] not in (1, 3, 4) or 0 in picture.shape:
        raise ValueError(
            f"an array of shape {list(np.shape(value))}; expected [height, width], or [height, width, channels] with "
            "1 channel (gray), 3 (red, green, blue) or 4 (and opacity)"
        )
    return _opaque(_as_bytes(picture))


def _as_bytes(picture: np.ndarray) -> np.ndarray:
    """Converts a picture's numbers to uint8 of 0 to 255. Raises ValueError for numbers on an unknown scale."""
    if picture.dtype == np.uint8:
        return picture
    low, high = picture.min(), picture.max()
    if low >= 0 and high <= 1:
        return np.rint(picture * 255.0).astype(np.uint8)
    if low >= 0 and high <= 255 and np.array_equal(picture, np.rint(picture)):
        return picture.astype(np.uint8)
    raise ValueError(
        f"{picture.dtype} from {low} to {high}; expected numbers from 0 to 1, or whole numbers from 0 to 255, as of "
        "np.clip(picture, 0, 255).astype(np.uint8)"
    )


def _opaque(picture: np.ndarray) -> np.ndarray:
    """Converts a picture [H, W, 1, 3 or 4] uint8 to [H, W, 3]; puts one with opacity on white."""
    if picture.shape[2] == 1:
        return picture.repeat(3, axis=2)
    if picture.shape[2] == 3:
        return picture
    opacity = picture[..., 3:] / 255
    return np.rint(picture[..., :3] * opacity + 255 * (1 - opacity)).astype(np.uint8)
