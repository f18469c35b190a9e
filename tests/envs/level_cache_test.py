"""The level cache: Lab's interface, folders and buckets, whole levels whoever is killed, and what fails."""

from __future__ import annotations

import logging
import os
import pathlib
import re

import fake_gcs
import level_cache_kills  # beside this file: see conftest.py
import pytest

from seedzero.core import errors
from seedzero.envs import dmlab

KEY, LEVEL = "maze/7 with any characters: ÿ", b"PK\3\4 the compiled level"


@pytest.fixture
def pk3(tmp_path: pathlib.Path) -> pathlib.Path:
    """A compiled level, where Lab puts it."""
    path = tmp_path / "compiled.pk3"
    path.write_bytes(LEVEL)
    return path


def _fetched(cache: dmlab.LevelCache, key: str, tmp_path: pathlib.Path) -> bytes | None:
    path = tmp_path / "fetched.pk3"
    path.unlink(missing_ok=True)
    return path.read_bytes() if cache.fetch(key, str(path)) else None


@pytest.mark.parametrize("place", ["DIRECTORY/a/levels", "gs://runs/lab/levels"])
def test_what_was_written_is_fetched_by_its_key_by_others_too(
    place: str, gcs: fake_gcs.FakeGcs, tmp_path: pathlib.Path, pk3: pathlib.Path
) -> None:
    one, other = (dmlab.make_level_cache(place.replace("DIRECTORY", str(tmp_path))) for _ in range(2))
    assert _fetched(one, KEY, tmp_path) is None
    one.write(KEY, str(pk3))
    assert _fetched(other, KEY, tmp_path) == LEVEL and _fetched(other, "another", tmp_path) is None
    assert (other.num_hits, other.num_fetches) == (1, 2)
    assert all(name.startswith("lab/levels/") and name.endswith(".pk3") for name in gcs.names("runs"))
    assert len(gcs.names("runs")) == ("://" in place)


def test_a_bucket_that_refuses_is_reported_once_and_ends_nothing(
    gcs: fake_gcs.FakeGcs,
    tmp_path: pathlib.Path,
    pk3: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gcs.fault = lambda request: 403
    cache = dmlab.make_level_cache("gs://runs/levels")
    assert _fetched(cache, KEY, tmp_path) is None
    cache.write(KEY, str(pk3))
    assert _fetched(cache, KEY, tmp_path) is None
    (line,) = caplog.messages
    assert line.startswith("level cache gs://runs/levels cannot be read: ") and "PERMISSION_DENIED" in line
    assert "give this account the role roles/storage.objectUser" in line


def test_a_level_that_cannot_be_put_where_lab_wants_it_is_made_anew(
    tmp_path: pathlib.Path, pk3: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = dmlab.make_level_cache(str(tmp_path / "levels"))
    cache.write(KEY, str(pk3))
    assert not cache.fetch(KEY, str(tmp_path / "gone" / "fetched.pk3"))
    assert (cache.num_hits, cache.num_fetches) == (0, 1)
    (line,) = caplog.messages
    assert "[Errno 2] No such file" in line


def test_a_level_has_its_name_only_when_it_is_whole(
    tmp_path: pathlib.Path, pk3: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, seen = dmlab.make_level_cache(str(tmp_path / "levels")), []

    def full(descriptor: int) -> None:
        seen.extend(file.name for file in (tmp_path / "levels").rglob("*") if file.is_file())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    cache.write(KEY, str(pk3))
    assert len(seen) == 1 and not seen[0].endswith(".pk3")
    assert not [file for file in (tmp_path / "levels").rglob("*") if file.is_file()]
    monkeypatch.undo()
    cache.write(KEY, str(pk3))
    assert _fetched(cache, KEY, tmp_path) == LEVEL


def test_what_a_killed_process_left_is_deleted_once_it_is_old(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "ab"
    folder.mkdir()
    old, new = folder / ".unfinished-1", folder / ".unfinished-2"
    for file in (old, new):
        file.write_bytes(b"half")
    os.utime(old, (0, 0))
    dmlab.make_level_cache(str(tmp_path))
    assert not old.exists() and new.exists()  # the other's process may still be writing


@pytest.mark.thorough
def test_two_processes_share_a_cache_without_a_torn_level_though_they_are_killed(tmp_path: pathlib.Path) -> None:
    seen = level_cache_kills.run(tmp_path, 6)
    assert seen.torn == 0 and seen.failures == []


def test_the_hit_rate_is_logged(
    tmp_path: pathlib.Path, pk3: pathlib.Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dmlab, "REPORT_EVERY", 4)
    caplog.set_level(logging.INFO)
    cache = dmlab.make_level_cache(str(tmp_path / "levels"))
    cache.report()
    cache.write(KEY, str(pk3))
    for key in (KEY, "b", KEY, KEY, KEY):
        _fetched(cache, key, tmp_path)
    cache.report()
    place = tmp_path / "levels"
    assert [re.sub(r"\D+", " ", line.removeprefix(f"level cache {place}")) for line in caplog.messages] == [
        " 3 4 75 ",
        " 4 5 80 ",
    ]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.EnvironmentFailure, match=r"--dmlab\.level_cache=.*/file/levels: Not a directory"):
        dmlab.make_level_cache(str(tmp_path / "file" / "levels"))


def test_a_malformed_url_is_named() -> None:
    with pytest.raises(errors.UsageError, match=r"--dmlab.level_cache=http://x/y: expected gs://BUCKET/PATH"):
        dmlab.make_level_cache("http://x/y")
    with pytest.raises(errors.UsageError, match=r"--dmlab.level_cache=gs://B_/y: .*Invalid GCS bucket name"):
        dmlab.make_level_cache("gs://B_/y")
