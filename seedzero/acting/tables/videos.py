"""Makes videos of episodes played by a saved agent, and writes frames as a video file."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import subprocess
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from seedzero.acting.actors import actor, agent_choice
from seedzero.acting.tables import table
from seedzero.config import families
from seedzero.core import errors, forks, types
from seedzero.envs import env_base
from seedzero.monitoring.metrics import episodes
from seedzero.storage.checkpoints import durable, run_dirs, saved_files

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
    if path.suffix.lower() == ".mp4":
        _ffmpeg(path)


def write_video(path: str | os.PathLike[str], frames: Iterable[np.ndarray], fps: float) -> int:
    """Writes frames to an .mp4 (H.264, yuv420p, shown by every player) or .gif file; returns the number of frames.

    Args:
      path: of the file; the suffix selects the format.
      frames: [H, W, 3] uint8 each, all of one size; an odd size is made even by repeating the edge.
      fps: frames per second; a .gif shows at most 50.

    Raises UsageError for another suffix, a missing directory, an unwritable file, no ffmpeg, or no frames.
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
    """Returns every Nth row and column of a frame [H, W, 3], so that no side exceeds a limit; 0: no limit."""
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


def _ffmpeg(path: pathlib.Path) -> str:
    """Returns the program that writes .mp4. Raises UsageError without one."""
    import imageio_ffmpeg  # type: ignore[import-untyped]

    try:
        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except RuntimeError as error:
        raise errors.UsageError(f"cannot write a video to {path}: {error} Or end its name in .gif.") from None


def _write_mp4(path: pathlib.Path, frames: Iterator[np.ndarray], fps: float) -> int:
    first = _even(next(frames))
    size = f"{first.shape[1]}x{first.shape[0]}"
    # imageio_ffmpeg's writer forks, which is unsafe in a process with JAX's threads; this does not.
    command = [_ffmpeg(path), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
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


_PLAY_REMOTE = (
    "workers send no pictures: record a video in the environment itself, and score the run by `seedzero evaluate "
    "--listen=HOST:PORT`"
)


def play(choice: agent_choice.AgentChoice, target: str | os.PathLike[str], *, longest_side: int = 0) -> dict[str, Any]:
    """Writes a video, .mp4 or .gif, of one episode with a saved agent.

    In a game of two players the agent plays itself, and the return is the first mover's. If several agents share an
    environment, it is their mean.

    target: the file to write. longest_side: larger pictures are thinned to at most this many pixels in both directions
    alike; 0 for no limit. Returns step, chosen, video, frames, return and length; cut_off is 1 if the limit of steps
    ended the episode; policy as `scoring.evaluate`. Raises as `scoring.evaluate`, and UsageError if the video cannot
    be written.
    """
    choice, file = choice.absolute(), pathlib.Path(target).absolute()
    config = table.read_config(choice, _PLAY_REMOTE)
    known = run_dirs.read_spec(choice.path)
    num_rows = max(1, known.num_seats(types.Role.EVALUATE) if known else 1)
    seats = table.RunTable(choice, config, num_rows, types.Role.TRAIN, render=True)
    followed = episodes.Episodes(num_rows, seats.env.spec.num_players)
    limit = choice.most_steps(config)

    def is_over() -> bool:
        return bool(np.all(seats.step.final[actor.shown(seats.step)]))

    def frames() -> Iterator[np.ndarray]:
        while True:
            step, rows, movers = (
                seats.step,
                np.flatnonzero(actor.shown(seats.step)),
                seats.env.spec.movers(seats.step.observation),
            )
            followed.record(rows, step.reward[rows], seats.first[rows], step.final[rows], movers=movers)
            yield thinned(seats.env.render(), longest_side)
            if is_over() or followed.length.max() >= limit:
                return
            seats.advance()

    with env_base.closing(seats.env):
        usual = families.of(config.env.id).frames_per_second
        fps = getattr(seats.env, "frames_per_second", None) or usual
        num_frames = write_video(file, frames(), fps)
    totals = [followed.so_far(row).total for row in range(num_rows)]
    played: dict[str, Any] = {
        "frames": num_frames,
        "return": sum(totals) / num_rows,
        "length": int(followed.length.max()),
    }
    played |= {"task_returns": dict(zip(known.tasks, totals, strict=True))} if known and num_rows > 1 else {}
    played |= {} if is_over() else {"cut_off": 1}
    return {**seats.saved.to_json(), "video": os.fspath(target), **played}


def film(path: pathlib.Path, target: pathlib.Path, max_steps: int, longest_side: int) -> dict[str, Any]:
    """Writes a small video of one episode with the newest checkpoint of a run in training.

    Arguments, result and errors are as in `play`, for a trusted directory. The result also has `ledger` and
    `other_hosts`, the checkpoint's counts of training steps.
    """
    _, saved, _ = saved_files.find(path / "checkpoints", "last", "params")
    choice = agent_choice.AgentChoice(path, saved.step, trusted=True, max_steps=max_steps)
    result = play(choice, target, longest_side=longest_side)
    return {**result, **{name: saved.counters[name] for name in ("ledger", "other_hosts") if name in saved.counters}}
