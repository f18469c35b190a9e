"""Thins a curve for a screen: keeps the smallest and the largest value of each bucket of rows, and its mean."""

from __future__ import annotations

import numpy as np

from seedzero.core import json_object


def window(x: np.ndarray, low: float | None, high: float | None) -> slice:
    """Returns the indices of x within [low, high], and one more on each side; x [T] float64 never decreases."""
    first = 0 if low is None else int(np.searchsorted(x, low, side="left")) - 1
    end = len(x) if high is None else int(np.searchsorted(x, high, side="right")) + 1
    return slice(max(0, first), min(len(x), max(end, 0)))


def bucket_size(num_rows: int, num_buckets: int) -> int:
    """Returns the number of rows in a bucket; 1 if there are too few rows to thin."""
    return 1 if num_rows <= 2 * num_buckets + 2 else -(-num_rows // num_buckets)


def means(y: np.ndarray, size: int) -> np.ndarray:
    """Returns the mean of the finite values in each bucket of y [T], NaN if it has none."""
    starts, is_number = np.arange(0, len(y), size), np.isfinite(y)
    counts = np.add.reduceat(is_number.astype(np.float64), starts)
    totals = np.add.reduceat(np.where(is_number, y, 0.0), starts)
    return np.asarray(np.divide(totals, counts, out=np.full(len(starts), np.nan), where=counts > 0))


def thin(y: np.ndarray, num_buckets: int) -> np.ndarray:
    """Returns the indices of y [T] to keep, ascending: the first, the last, and at most 2 per bucket.

    Buckets have equal numbers of rows. NaN is kept only in buckets of nothing but NaN.
    """
    size = bucket_size(len(y), num_buckets)
    if size == 1:
        return np.arange(len(y))
    rest = -len(y) % size
    padded = np.concatenate([y, np.full(rest, np.nan)]).reshape(-1, size)
    starts = np.arange(len(padded)) * size
    lowest = np.where(np.isnan(padded), np.inf, padded).argmin(axis=1) + starts
    highest = np.where(np.isnan(padded), -np.inf, padded).argmax(axis=1) + starts
    return np.unique(np.concatenate([[0], lowest, highest, [len(y) - 1]]))


def shown(values: np.ndarray) -> list[float | None]:
    """Returns numbers for JSON, rounded to 7 digits; None for NaN and infinities."""
    return [json_object.number(value, 7) for value in values.tolist()]
