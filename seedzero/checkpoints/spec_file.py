"""The environments' spec in a run directory, for which its networks were built."""

from __future__ import annotations

import dataclasses
import math
import pathlib

from seedzero.checkpoints import run_dir as run_dirs
from seedzero.core import errors, json_object, types

_NAME = "spec.json"
_LIMITS = {float(limit) for bits in (8, 16, 32, 64) for limit in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)}
_LIMITS |= {2.0**32 - 1, 2.0**64}
"""Smallest and largest whole numbers: in earlier versions, the bounds of those that have none."""


def write(path: pathlib.Path, spec: types.EnvSpec) -> None:
    """Writes the spec into a run directory. Raises ResumeError if the disk cannot be written."""
    try:
        run_dirs.write_json_atomic(path / _NAME, dataclasses.asdict(spec))
    except OSError as error:
        raise errors.ResumeError(
            f"cannot write {path / _NAME}: {error.strerror}; give --run_dir=DIR that can be written"
        ) from None


def read(path: pathlib.Path) -> types.EnvSpec | None:
    """Returns the spec of a run directory; None before the first worker has joined. Raises ResumeError."""
    file = path / _NAME
    if not file.exists():
        return None
    try:
        return types.EnvSpec.from_json(json_object.parse(file.read_bytes()))
    except (ValueError, TypeError, KeyError) as error:
        raise errors.ResumeError(f"{file} is damaged ({error}); delete it to have it made anew") from None


def check_equal(came: types.EnvSpec, expected: types.EnvSpec) -> None:
    """Raises SpecMismatch, naming the fields, if a worker's environments differ from the run's."""
    is_silent = not (came.num_states and expected.num_states)  # an earlier version, or a worker that does not tell
    if is_silent and came.observation_shape == expected.observation_shape:
        came = dataclasses.replace(came, num_states=expected.num_states)
    came = _as_declared(came, expected)
    left, right = dataclasses.asdict(came), dataclasses.asdict(expected)
    different = [f"{name} is {left[name]}, expected {right[name]}" for name in left if left[name] != right[name]]
    if different:
        raise errors.SpecMismatch(
            f"the worker's environment differs from this run's: {'; '.join(different)}; start the worker with the "
            f"environment of the run, or the learner with another --run_dir"
        )


def _as_declared(came: types.EnvSpec, expected: types.EnvSpec) -> types.EnvSpec:
    """Returns a spec with what the other one declares differently in earlier versions of the same observations.

    That is bounds where one has none and the other one the limits of its type, and whether bytes are text: a run goes
    on with the network that was built for its own spec.
    """
    low = _bound(came.observation_low, expected.observation_low)
    high = _bound(came.observation_high, expected.observation_high)
    packed = came.packed
    if len(packed) == len(expected.packed):
        packed = tuple(
            dataclasses.replace(
                array,
                low=_bound(array.low, other.low),
                high=_bound(array.high, other.high),
                text=other.text if array.shape == other.shape and array.dtype == other.dtype else array.text,
            )
            for array, other in zip(packed, expected.packed, strict=True)
        )
    return dataclasses.replace(came, observation_low=low, observation_high=high, packed=packed)


def _bound(came: float, expected: float) -> float:
    finite, infinite = sorted((came, expected), key=abs)
    return expected if math.isinf(infinite) and finite in _LIMITS and finite * infinite > 0 else came
