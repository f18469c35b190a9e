"""Directories appear whole or not at all."""

import pathlib
import shutil

import jax.numpy as jnp
import pytest

from seedzero.core import errors
from seedzero.storage.checkpoints import durable, trees


def test_a_directory_appears_when_it_is_complete_and_is_replaced(tmp_path: pathlib.Path) -> None:
    for text in ("old", "new"):
        with durable.new_directory(tmp_path / "one") as temporary:
            (temporary / text).write_text(text)
            assert not (tmp_path / "one" / text).exists()
        assert [path.name for path in (tmp_path / "one").iterdir()] == [text]
        assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_an_error_leaves_what_was_there(tmp_path: pathlib.Path) -> None:
    with durable.new_directory(tmp_path / "one") as temporary:
        (temporary / "file").write_text("old")
    with pytest.raises(OSError, match="full"), durable.new_directory(tmp_path / "one") as temporary:
        (temporary / "file").write_text("new")
        raise OSError("full")
    assert (tmp_path / "one" / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_the_new_one_stands_before_the_old_one_is_deleted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final, delete, stood = tmp_path / "one", shutil.rmtree, []

    def look_and_delete(path: pathlib.Path, **options: bool) -> None:
        stood.append([file.name for file in final.iterdir()])
        delete(path, **options)

    monkeypatch.setattr(shutil, "rmtree", look_and_delete)
    for text in ("old", "new"):
        with durable.new_directory(final) as temporary:
            (temporary / text).write_text(text)
    assert stood == [["old"], ["new"], ["new"]]


@pytest.mark.parametrize("place_is_empty", [False, True])
def test_a_crash_between_two_names_loses_neither_directory(place_is_empty: bool, tmp_path: pathlib.Path) -> None:
    (tmp_path / "7.12345678.replaced").mkdir()
    (tmp_path / "7.12345678.replaced" / "content").write_text("old")
    (tmp_path / "7.87654321.tmp").mkdir()
    if not place_is_empty:
        (tmp_path / "7").mkdir()
        (tmp_path / "7" / "content").write_text("new")
    durable.remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["7"]
    assert (tmp_path / "7" / "content").read_text() == ("old" if place_is_empty else "new")


def test_what_only_looks_like_a_leftover_stays(tmp_path: pathlib.Path) -> None:
    for name in ("backup.tmp", "7.mine.trash"):
        (tmp_path / name).mkdir()
    (tmp_path / "7.12345678.tmp").write_text("no directory")
    before = sorted(tmp_path.iterdir())
    durable.remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_a_kill_while_a_directory_is_replaced_leaves_the_old_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_exchange", lambda one, other: False)  # a disk without
    with durable.new_directory(tmp_path / "7") as temporary:
        (temporary / "content").write_text("old")
    rename = pathlib.Path.rename

    def rename_once(path: pathlib.Path, to: pathlib.Path) -> None:
        if to == tmp_path / "7":
            raise KeyboardInterrupt
        rename(path, to)

    monkeypatch.setattr(pathlib.Path, "rename", rename_once)
    with pytest.raises(KeyboardInterrupt), durable.new_directory(tmp_path / "7") as temporary:
        (temporary / "content").write_text("new")
    monkeypatch.undo()
    assert not (tmp_path / "7").exists()
    durable.remove_leftovers(tmp_path)
    assert (tmp_path / "7" / "content").read_text() == "old"


def test_a_place_is_never_empty_while_a_directory_is_replaced(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = tmp_path / "7"
    with durable.new_directory(final) as temporary:
        (temporary / "content").write_text("old")
    monkeypatch.setattr(pathlib.Path, "rename", lambda path, to: pytest.fail("two changes"))
    with durable.new_directory(final) as temporary:
        (temporary / "content").write_text("new")
    assert (final / "content").read_text() == "new" and list(tmp_path.iterdir()) == [final]


def test_among_others_files_a_mark_tells_a_leftover(tmp_path: pathlib.Path) -> None:
    final = tmp_path / "b"
    marks = {"a.12345678.tmp": "12345678", "b.12345678.tmp": "12345678", "b.c.12345678.tmp": "12345678"}
    marks |= {"b.11111111.tmp": "12345678", "b.22222222.replaced": "22222222", "b.33333333.trash": ""}
    for name, mark in marks.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / durable.MARK).write_text(mark)
    (tmp_path / "b.44444444.tmp").mkdir()
    (tmp_path / "b.44444444.tmp" / durable.MARK).symlink_to(tmp_path / "b.12345678.tmp" / durable.MARK)
    durable.remove_marked_leftovers(final)
    kept = ["a.12345678.tmp", "b", "b.11111111.tmp", "b.33333333.trash", "b.44444444.tmp", "b.c.12345678.tmp"]
    assert sorted(path.name for path in tmp_path.iterdir()) == kept
    assert not any(final.iterdir())  # its mark is gone


def test_a_mark_does_not_follow_a_link(tmp_path: pathlib.Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "one" / durable.MARK).symlink_to(tmp_path / "mine")
    with durable.new_directory(tmp_path / "one", is_marked=True):
        pass
    assert (tmp_path / "mine").read_text() == "mine" and not any((tmp_path / "one").iterdir())


def test_two_writers_of_one_file_write_it_whole_beside_files_of_others(tmp_path: pathlib.Path) -> None:
    final, others = tmp_path / "a.npz", [tmp_path / f"a.npz{suffix}" for suffix in (".tmp", ".part")]
    for other in others:
        other.write_text("mine")
    with durable.new_file(final) as first, durable.new_file(final) as second:
        first.write_text("first")
        second.write_text("second, which is longer")
        assert not final.exists()
    assert final.read_text() == "first"
    assert [other.read_text() for other in others] == ["mine", "mine"] and len(list(tmp_path.iterdir())) == 3


def test_a_file_is_flushed_before_it_has_its_name(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[pathlib.Path] = []
    monkeypatch.setattr(durable, "flush", lambda path: flushed.append(path) or (tmp_path / "a").exists())
    with pytest.raises(OSError, match="full"), durable.new_file(tmp_path / "a"):
        raise OSError("full")
    assert flushed == [] and not any(tmp_path.iterdir())
    with durable.new_file(tmp_path / "a") as temporary:
        pass
    assert flushed == [temporary] and list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_removing_what_is_not_there_is_nothing(tmp_path: pathlib.Path) -> None:
    durable.remove(tmp_path / "nothing")


def test_arrays_with_one_name_are_refused(tmp_path: pathlib.Path) -> None:
    tree = {"a": {"b": jnp.zeros(1)}, "a/b": jnp.zeros(1)}
    with pytest.raises(errors.CheckpointError, match=r"'a/b'.*'/'"):
        trees.save(tmp_path / "tree", tree)
