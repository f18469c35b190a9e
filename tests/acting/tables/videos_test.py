"""Video files."""

import pathlib
import re
import subprocess
from collections.abc import Iterator

import imageio.v3 as imageio
import imageio_ffmpeg
import numpy as np
import pytest

from seedzero.acting.tables import videos
from seedzero.core import errors


def frames(num: int, height: int, width: int) -> Iterator[np.ndarray]:
    """Yields frames that brighten from black to white. [H, W, 3] uint8."""
    for i in range(num):
        yield np.full((height, width, 3), 255 * i // (num - 1), np.uint8)


def decode(path: pathlib.Path) -> tuple[str, bytes]:
    """Returns what ffmpeg says about a file, and its frames as gray bytes."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "gray", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    return done.stderr.decode(), done.stdout


def test_mp4_is_h264_yuv420p_of_even_size_with_every_frame(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "game.mp4"
    assert videos.write_video(path, frames(12, 63, 81), fps=30) == 12
    description, content = decode(path)
    assert re.search(r"Video: h264.* yuv420p.* 82x64.* 30 fps", description)
    brightness = np.frombuffer(content, np.uint8).reshape(12, 64, 82).mean((1, 2))
    assert brightness[0] < 10 and brightness[-1] > 245 and (np.diff(brightness) > 0).all()


@pytest.mark.parametrize("suffix", videos.SUFFIXES)
def test_of_two_videos_of_one_name_each_is_whole(suffix: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / f"game{suffix}"
    mine = tmp_path / f"game.part{suffix}"
    mine.write_text("mine")

    def meanwhile() -> Iterator[np.ndarray]:
        yield from frames(3, 48, 48)
        videos.write_video(path, frames(5, 64, 64), fps=30)
        yield from frames(3, 48, 48)

    assert videos.write_video(path, meanwhile(), fps=30) == 6
    assert len(decode(path)[1]) == 6 * 48 * 48
    assert mine.read_text() == "mine" and sorted(tmp_path.iterdir()) == sorted([path, mine])


def test_names_may_look_like_protocols_and_options(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("atari:Pong.mp4", "-x.mp4"):
        assert videos.write_video(pathlib.Path(name), frames(2, 50, 34), fps=30) == 2
        assert (tmp_path / name).stat().st_size > 0


def test_where_ffmpeg_is_missing_the_video_cannot_be_written(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> str:
        raise RuntimeError("no ffmpeg here")

    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", missing)
    with pytest.raises(errors.UsageError, match=r"game\.mp4: no ffmpeg here Or end its name in \.gif"):
        videos.check_path(tmp_path / "game.mp4")  # before an agent is loaded
    videos.check_path(tmp_path / "game.gif")


def test_even_size_stays(tmp_path: pathlib.Path) -> None:
    videos.write_video(tmp_path / "game.mp4", frames(2, 50, 34), fps=60)
    assert re.search(r"Video: .* 34x50.* 60 fps", decode(tmp_path / "game.mp4")[0])


def test_odd_size_repeats_the_edge() -> None:
    frame = np.arange(9, dtype=np.uint8).repeat(3).reshape(3, 3, 3)
    even = videos._even(frame)
    np.testing.assert_array_equal(even[..., 0], [[0, 1, 2, 2], [3, 4, 5, 5], [6, 7, 8, 8], [6, 7, 8, 8]])


@pytest.mark.parametrize(("fps", "milliseconds"), [(10, 100), (60, 20)])
def test_gif_has_every_frame_and_the_time_between_them(tmp_path: pathlib.Path, fps: float, milliseconds: int) -> None:
    path = tmp_path / "game.GIF"
    assert videos.write_video(path, frames(5, 21, 33), fps=fps) == 5
    shown = imageio.imread(path)
    assert shown.shape == (5, 21, 33, 3)
    assert shown[0].max() == 0 and shown[-1].min() == 255
    assert imageio.immeta(path)["duration"] == milliseconds


@pytest.mark.parametrize(
    ("longest_side", "shape"), [(0, (7, 10, 3)), (10, (7, 10, 3)), (9, (4, 5, 3)), (4, (3, 4, 3)), (1, (1, 1, 3))]
)
def test_thinned_frames_are_no_longer_than_asked(longest_side: int, shape: tuple[int, ...]) -> None:
    frame = np.arange(210, dtype=np.uint8).reshape(7, 10, 3)
    thin = videos.thinned(frame, longest_side)
    assert thin.shape == shape and thin[0, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "num_frames", "named"),
    [
        ("game.avi", 2, r"game\.avi: .*\.mp4 .*\.gif"),
        ("missing/game.mp4", 2, "/missing"),
        ("folder.mp4", 2, r"folder\.mp4: "),
        ("folder.gif", 2, r"folder\.gif: "),
        (f"{'x' * 300}.mp4", 2, "File name too long"),
        ("game.mp4", 0, "no frames"),
    ],
)
def test_a_file_that_cannot_be_written_is_named(
    name: str, num_frames: int, named: str, tmp_path: pathlib.Path
) -> None:
    if name.startswith("folder"):
        (tmp_path / name).mkdir()
    before = list(tmp_path.iterdir())
    with pytest.raises(errors.UsageError, match=named):
        videos.write_video(tmp_path / name, frames(num_frames, 4, 4), fps=30)
    assert list(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "frame", [np.zeros((4, 4, 3), np.float32), np.zeros((4, 4), np.uint8), np.zeros((4, 6, 3), np.uint8)]
)
def test_wrong_frame_is_named(tmp_path: pathlib.Path, frame: np.ndarray) -> None:
    stream = iter([np.zeros((4, 4, 3), np.uint8), frame])
    with pytest.raises(errors.EnvironmentFailure, match=r"expected uint8 \[H, W, 3\]"):
        videos.write_video(tmp_path / "game.mp4", stream, fps=30)


@pytest.mark.parametrize("error", [errors.EnvironmentFailure("no more frames"), RuntimeError("out of memory")])
@pytest.mark.parametrize("suffix", videos.SUFFIXES)
def test_an_earlier_video_stays_where_an_episode_fails(tmp_path: pathlib.Path, suffix: str, error: Exception) -> None:
    path = tmp_path / f"play{suffix}"
    path.write_bytes(b"earlier")

    def failing() -> Iterator[np.ndarray]:
        yield from frames(2, 16, 16)
        raise error

    with pytest.raises(type(error), match=f"^{error}$"):  # as it is: it is not a failure to write
        videos.write_video(path, failing(), 5.0)
    assert path.read_bytes() == b"earlier" and list(tmp_path.iterdir()) == [path]
