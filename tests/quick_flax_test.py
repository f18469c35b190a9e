"""Parameters whose shapes Flax compares once: another shape is refused, and an initializer is traced once."""

from __future__ import annotations

from typing import Any

import flax
import numpy as np
import pytest
from flax import linen

_SEEN = np.ones((1, 2), np.float32)


def _params(width: int) -> dict[str, Any]:
    return {"params": {"kernel": np.ones((2, width), np.float32), "bias": np.zeros(width, np.float32)}}


def test_another_shape_is_refused_whatever_was_compared_before() -> None:
    dense = linen.Dense(3)
    for _ in range(2):
        assert np.asarray(dense.apply(_params(3), _SEEN)).tolist() == [[2.0, 2.0, 2.0]]
    for _ in range(2):
        with pytest.raises(flax.errors.ScopeParamShapeError, match="kernel"):
            dense.apply(_params(4), _SEEN)
    assert np.asarray(linen.Dense(4).apply(_params(4), _SEEN)).shape == (1, 4)
    with pytest.raises(flax.errors.ScopeParamNotFoundError):
        dense.apply({"params": {"bias": np.zeros(3, np.float32)}}, _SEEN)


def test_an_initializer_is_traced_once_for_a_shape() -> None:
    traced = []

    def init(key: Any, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        traced.append(shape)
        return np.zeros(shape, dtype)

    for width in (3, 3, 5, 3):
        linen.Dense(width, kernel_init=init).apply(_params(width), _SEEN)
    assert traced == [(2, 3), (2, 5)]
