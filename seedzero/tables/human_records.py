"""Writes a person's games into records."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from seedzero.core import errors
from seedzero.tables import records


def write(directory: pathlib.Path, header: Mapping[str, Any], content: Mapping[str, np.ndarray]) -> pathlib.Path:
    """Writes a record as `human-N.npz` with the first free number N; returns the path.

    Several processes may record into the directory at once. Raises UsageError if it cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path = next(filter(_takes, (directory / f"human-{number}.npz" for number in itertools.count(1))))
        try:
            records.write(path, header, content)
        except OSError:
            path.unlink()
            raise
    except OSError as error:
        raise errors.UsageError(f"{directory} cannot be written: {error.strerror}; the game is not recorded") from None
    return path


def _takes(path: pathlib.Path) -> bool:
    """Makes an empty file, and returns whether nobody else has taken its name. Raises OSError."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
