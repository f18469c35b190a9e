"""Writes frames as a video file."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import subprocess
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from seedzero.core import errors, forks
from seedzero.storage.checkpoints import durable

SUFFIXES = (".mp4", ".gif")
SHORTEST_GIF_MILLISECONDS = 20
"""Video players show shorter frames of a .gif for a tenth of a second."""


def check_path(path: str | os.PathLike[str]) -> None:
    """Raises UsageError for a path that is a directory, in a missing one, or not named .mp4 or .gif."""
    path = pathlib.Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise errors.UsageError(f"cannot write a video to {path}: its name must end in {' or '.join(SUFFIXES)}")
    if not os.path.isdir(path.parent):
        raise errors.UsageError(f"cannot write a video to {path}: there is no directory {path.parent}")
    if os.path.isdir(path):
        raise errors.UsageError(f"cannot write a video to {path}: it is a directory")


def write_video(path: str | os.PathLike[str], frames: Iterable[np.ndarray], fps: float) -> int:
    """Writes frames to an .mp4 (H.264, yuv420p, shown by every player) or .gif file; returns the number of frames.

    Args:
      path: of the file; the suffix selects the format.
      frames: [H, W, 3] uint8 each, all of one size; an odd size is made even by repeating the edge.
      fps: frames per second; a .gif shows at most 50.

    Raises UsageError for another suffix, a missing directory, an unwritable file, or no frames.
    """
    check_path(path)
    path = pathlib.Path(path)
    iterator = iter(frames)
    first = next(iterator, None)
    if first is None:
        raise errors.UsageError(f"no frames to write to {path}")
    checked = (_checked(frame, first.shape) for frame in itertools.chain([first], iterator))
    write = _write_mp4 if path.suffix.lower() == ".mp4" else _write_gif
    try:
        with durable.new_file(path) as partial:  # keep an earlier video until this one is complete
            return write(partial, checked, fps)
    except OSError as error:
        raise errors.UsageError(f"cannot write a video to {path}: {error}") from None


def thinned(frame: np.ndarray, longest_side: int) -> np.ndarray:
    """Returns every Nth row and column of a frame [H, W, 3], so that no side is longer than a limit; 0 is no limit."""
    every = -(-max(frame.shape[:2]) // longest_side) if longest_side else 1
    return frame[::every, ::every]


def _checked(frame: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[-1] != 3 or frame.shape != shape:
        raise errors.EnvironmentFailure(
            f"a rendered frame is {frame.dtype} {frame.shape}; expected uint8 [H, W, 3], all of one size, "
            f"the first had {shape}"
        )
    return frame


def _even(frame: np.ndarray) -> np.ndarray:
    """Repeats the last row and column if their number is odd, because yuv420p halves both. [H, W, 3] uint8."""
    height, width, _ = frame.shape
    return np.ascontiguousarray(np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge"))


def _write_mp4(path: pathlib.Path, frames: Iterator[np.ndarray], fps: float) -> int:
    import imageio_ffmpeg  # type: ignore[import-untyped]

    first = _even(next(frames))
    size = f"{first.shape[1]}x{first.shape[0]}"
    # imageio_ffmpeg's writer forks, which is unsafe in a process with JAX's threads; this does not.
    try:
        program = imageio_ffmpeg.get_ffmpeg_exe()
    except RuntimeError as error:  # ffmpeg is missing
        raise OSError(str(error)) from None
    command = [program, "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", size, "-r", str(fps), "-i", "-", "-an", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-f", "mp4"]
    command += [f"file:{path}"]
    count = 0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        forks.keep(process.stdin)
        with contextlib.suppress(BrokenPipeError):  # ffmpeg has ended, with a message on standard error
            for frame in itertools.chain([first], map(_even, frames)):
                process.stdin.write(frame.tobytes())
                count += 1
            process.stdin.close()
    if process.returncode != 0:
        raise OSError("ffmpeg failed")
    return count


def _write_gif(path: pathlib.Path, frames: Iterator[np.ndarray], fps: float) -> int:
    import imageio.v3 as imageio

    options: dict[str, Any] = {"duration": max(SHORTEST_GIF_MILLISECONDS, round(1000 / fps)), "loop": 0}
    count = 0
    with imageio.imopen(path, "w", plugin="pillow", extension=".gif") as file:
        for frame in frames:
            file.write(frame, **options)
            count += 1
    return count
