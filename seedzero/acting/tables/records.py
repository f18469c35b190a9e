"""Files of recorded episodes: numpy's .npz without pickled objects, and a reader that checks them.

Shape letters: T steps, A actions, D numbers of a continuous action, N samples of a search over continuous actions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from seedzero.core import errors, json_object, plain_files, types
from seedzero.storage.checkpoints import durable

FORMAT, VERSION = "seedzero.record", 1
HEADER = "header"
OBSERVATION = "observation"
RENDER = "render"
"""What the environment draws, [T + 1, H, W, 3] uint8, if it can."""
_MAX_HEADER_BYTES = 64 << 20

_KINDS = {
    "reward": "f",
    "terminated": "b",
    "truncated": "b",
    "action": "if",
    "action_mask": "b",
    "mover": "i",
    "move": "U",
    "policy": "f",
    "value": "f",
    "network_value": "f",
    "prior": "f",
    "visits": "i",
    "q_value": "f",
    "completed_q": "f",
    "sampled": "f",
}
"""Arrays with one row per step -> the kind of their dtype."""
_ALWAYS = ("reward", "terminated", "truncated", "action")
_BY_ACTION = ("action_mask", "policy", "prior", "visits", "q_value", "completed_q")


@dataclasses.dataclass(frozen=True)
class Record:
    """A recorded episode of T steps.

    Attributes:
      header: facts about the run and the episode, named in docs/python.md.
      arrays: by name. `observation` (or `observation/NAME` for each of several arrays) and `render` have T + 1 rows,
        of which the last follows the last step; all others have T.
    """

    header: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]

    @property
    def num_steps(self) -> int:
        """Number of actions, T."""
        return len(self.arrays["action"])

    @property
    def spec(self) -> types.EnvSpec:
        """The interface of the recorded environment."""
        return types.EnvSpec.from_json(self.header["spec"])


def write(path: pathlib.Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a record as a whole or not at all. Raises OSError."""
    content = np.array(json_object.encode({"format": FORMAT, "version": VERSION, **header}))
    with durable.new_file(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **{HEADER: content}, **arrays)  # type: ignore[arg-type]


def read_record(path: str | os.PathLike[str]) -> Record:
    """Reads a file of `seedzero record`, executing nothing in it.

    Raises UsageError for a missing file, and RecordError for a damaged one, another format or a newer version.
    """
    path = pathlib.Path(path)
    try:
        with plain_files.opened(path) as file:
            return read(file, path)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise errors.UsageError(f"{path} cannot be read: {error.strerror}; give a file of `seedzero record`") from None
    except OSError as error:
        raise _damaged(path, error) from None


def read(file: BinaryIO, path: pathlib.Path, max_bytes: int | None = None) -> Record:
    """Reads a record from an open file. path: for errors. Raises RecordError, also beyond `max_bytes`."""
    with _naming(path):
        arrays = _arrays(file, None, max_bytes)
        header = json_object.parse(str(arrays.pop(HEADER)))
        _check(header, arrays)
        return Record(header, arrays)


def read_head(file: BinaryIO, path: pathlib.Path, max_bytes: int) -> tuple[dict[str, Any], int]:
    """Reads only the header, and the number of steps. Raises RecordError, also beyond `max_bytes`."""
    with _naming(path):
        arrays = _arrays(file, (HEADER, "reward"), max_bytes)
        header = json_object.parse(str(arrays[HEADER]))
        _check_format(header)
        return header, len(arrays["reward"])


@contextlib.contextmanager
def _naming(path: pathlib.Path) -> Iterator[None]:
    """Turns all errors that a damaged file may cause into RecordError."""
    try:
        yield
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        MemoryError,
        errors.SpecMismatch,
    ) as error:
        raise _damaged(path, f"{error} is missing" if isinstance(error, KeyError) else error) from None
    except (zipfile.BadZipFile, zlib.error, ArithmeticError, RuntimeError) as error:
        raise _damaged(path, error) from None


def _damaged(path: pathlib.Path, reason: object) -> errors.RecordError:
    return errors.RecordError(f"{path} is not a whole record ({reason}); record the episode again")


def _arrays(file: BinaryIO, names: Sequence[str] | None, max_bytes: int | None) -> dict[str, np.ndarray]:
    """Returns the named arrays; None means all."""
    loaded = np.load(file, allow_pickle=False)
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        raise ValueError("it is not an .npz file")
    with loaded, zipfile.ZipFile(file) as archive:
        wanted = loaded.files if names is None else names
        sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}
        num_bytes = sum(sizes[name] for name in wanted)
        if max_bytes is not None and num_bytes > max_bytes:
            raise ValueError(f"it has {num_bytes} bytes unpacked; expected at most {max_bytes}")
        if sizes[HEADER] > _MAX_HEADER_BYTES:
            raise ValueError(f"its header has {sizes[HEADER]} bytes; expected at most {_MAX_HEADER_BYTES}")
        found = {name: loaded[name] for name in wanted}
    for name, array in found.items():
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name} is not an array")
    return found


def _check(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError, KeyError, TypeError or SpecMismatch if the arrays do not fit the header."""
    _check_format(header)
    spec = types.EnvSpec.from_json(header["spec"])
    num_steps, num_choices = len(arrays["action"]), arrays.get("policy", np.zeros((0, spec.num_actions))).shape[-1]
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys((*_ALWAYS, *(arrays.keys() & _KINDS.keys())), (num_steps,))
    shapes |= {name: (num_steps, num_choices) for name in _BY_ACTION if name in shapes}
    shapes["action"] = (num_steps, *spec.action_shape)
    if "sampled" in shapes:
        shapes["sampled"] = (num_steps, num_choices, *spec.action_shape)
    shown = {observation_name(spec, array.name): array for array in spec.arrays}
    shapes |= {name: (num_steps + 1, *array.shape) for name, array in shown.items()}
    if RENDER in arrays and not (len(arrays[RENDER]) == num_steps + 1 and is_picture(arrays[RENDER][0])):
        found = arrays[RENDER]
        raise ValueError(f"{RENDER} is {found.dtype} {list(found.shape)}; expected uint8 [{num_steps + 1}, H, W, 3]")
    for name, shape in shapes.items():
        array = arrays[name]
        fits = array.dtype == shown[name].dtype if name in shown else array.dtype.kind in _KINDS[name]
        if array.shape != shape or not fits:
            raise ValueError(f"{name} is {array.dtype} {list(array.shape)}; expected {list(shape)}")


def _check_format(header: Mapping[str, Any]) -> None:
    if header.get("format") != FORMAT:
        raise ValueError(f"its format is {header.get('format')!r}; expected {FORMAT!r}")
    if header.get("version") != VERSION:
        raise ValueError(f"its version is {header.get('version')!r}; expected {VERSION}, of this release")


def is_picture(array: np.ndarray) -> bool:
    """Returns whether an array is a picture [H, W, 3] uint8."""
    return array.dtype == np.uint8 and array.ndim == 3 and array.shape[-1] == 3 and array.size > 0


def observation_name(spec: types.EnvSpec, name: str) -> str:
    """Returns the name that an array of the observation has in a file."""
    return f"{OBSERVATION}/{name}" if spec.packed else OBSERVATION
