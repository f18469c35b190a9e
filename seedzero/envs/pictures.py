"""Pictures of boards, for environments without their own."""

from __future__ import annotations

import numpy as np

_PIXELS_PER_CELL = 32
_COLOURS = np.array(
    [[78, 121, 167], [242, 142, 43], [225, 87, 89], [118, 183, 178], [89, 161, 79], [237, 201, 72], [176, 122, 161],
     [255, 157, 167], [156, 117, 95], [186, 176, 172]], np.uint8
)  # fmt: skip


def paint(planes: np.ndarray) -> np.ndarray:
    """Returns a picture [32 H, 32 W, 3] uint8 of [H, W, C]: a cell has the colour of its last non-zero plane."""
    lit = planes != 0
    last = lit.shape[-1] - 1 - np.argmax(lit[..., ::-1], axis=-1)
    picture = np.where(lit.any(axis=-1, keepdims=True), _COLOURS[last % len(_COLOURS)], np.uint8(0))
    return enlarged(picture, _PIXELS_PER_CELL)


def enlarged(picture: np.ndarray, factor: int) -> np.ndarray:
    """Returns a picture [H, W, C] as [factor H, factor W, C] of the same dtype."""
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)
