"""Stores the environments' spec in the run directory; the run's networks are built for it."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib

from seedzero.core import errors, json_object, plain_files, types
from seedzero.storage.checkpoints import run_dirs, run_lock

NAME = "spec.json"


def write(path: pathlib.Path, spec: types.EnvSpec) -> None:
    """Writes the spec into a run directory. Raises ResumeError if the disk cannot be written."""
    with run_lock.as_resume_errors(path / NAME, "cannot write {}"):
        run_dirs.write_json_atomic(path / NAME, dataclasses.asdict(spec))


def read(path: pathlib.Path) -> types.EnvSpec | None:
    """Returns the spec in a run directory, or None before the first worker has joined. Raises ResumeError."""
    file = path / NAME
    try:
        return types.EnvSpec.from_json(json_object.parse(plain_files.read(file)))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.ResumeError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, errors.SpecMismatch) as error:
        raise errors.ResumeError(f"{file} is damaged ({error}); delete it to have it made again") from None


def check_equal(came: types.EnvSpec, expected: types.EnvSpec) -> None:
    """Raises SpecMismatch if a worker's environments differ from the run's, with the names of differing fields."""
    left, right = dataclasses.asdict(_as_declared(came, expected)), dataclasses.asdict(expected)
    different = [_difference(name, left[name], right[name]) for name in left if left[name] != right[name]]
    if different:
        raise errors.SpecMismatch(
            f"the worker's environment differs from this run's: {'; '.join(different)}; start the worker with the "
            f"environment of the run, or the learner with another --run_dir"
        )


def _as_declared(came: types.EnvSpec, expected: types.EnvSpec) -> types.EnvSpec:
    """Returns a worker's spec with the number of states and the spaces of the run's, if one of the two lacks them.

    A worker need not declare these.
    """
    is_silent = not (came.num_states and expected.num_states)
    is_same = is_silent and came.observation_shape == expected.observation_shape
    return dataclasses.replace(
        came,
        num_states=expected.num_states if is_same else came.num_states,
        spaces=came.spaces if came.spaces and expected.spaces else expected.spaces,
    )


def _difference(name: str, came: object, expected: object) -> str:
    if name == "spaces":  # it may have a megabyte
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(str(came), str(expected), strict=False))
        start = max(0, len(list(same)) - 40)
        came, expected = (f"...{str(text)[start : start + 120]}" for text in (came, expected))
    return f"{name} is {came}, expected {expected}"
