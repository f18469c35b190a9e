"""Records a person's game: the positions that one row of the environment shows, with the agent's findings.

Shape letters: T steps, A actions.
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seedzero.core import errors, types
from seedzero.play import courses
from seedzero.recordings import recording, records


def arrays(
    course: courses.Course, spec: types.EnvSpec, seat: int, found: Sequence[Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Returns the arrays of a record; {} if no move was made.

    A record of an alternating game has the moves of both sides; otherwise it has those of one seat. found: the agent's
    findings, [R, ...] by name, about each position with actions.
    """
    row, numbers = course.row(seat), course.seen(seat)
    taken, after = numbers[:-1], [course.steps[number] for number in numbers[1:]]
    if not taken:
        return {}
    rows: list[dict[str, Any]] = [
        {
            **{name: values[row] for name, values in found[number].items()},
            "action": course.actions[number][row],
            "reward": step.reward[row],
            "terminated": step.terminated[row],
            "truncated": step.truncated[row],
        }
        for number, step in zip(taken, after, strict=True)
    ]
    for each, number in zip(rows, taken, strict=True):
        if (mask := course.steps[number].action_mask) is not None:
            each["action_mask"] = mask[row]
        if spec.num_players == 2:
            each["mover"] = np.int8(course.movers(number)[0])
    observations = np.stack([course.steps[number].observation[row] for number in numbers])
    return {name: np.stack([each[name] for each in rows]) for name in rows[0]} | recording.shown(spec, observations)


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
