"""Files are opened, links in their place are not; names that no library could take are refused."""

import pathlib

import golden
import pytest

from seedzero.core import errors, plain_files


def test_a_file_is_appended_to_and_a_link_is_refused(tmp_path: pathlib.Path) -> None:
    file, link, dangling = tmp_path / "file", tmp_path / "link", tmp_path / "dangling"
    link.symlink_to(file)
    dangling.symlink_to(tmp_path / "nothing")
    for _ in range(2):
        with open(file, "ab", opener=plain_files.opener) as opened:
            opened.write(b"row\n")
    for path in (link, dangling):
        with pytest.raises(OSError, match="symbolic links"), open(path, "ab", opener=plain_files.opener):
            pass
    assert file.read_bytes() == b"row\nrow\n" and not (tmp_path / "nothing").exists()


def test_a_name_that_is_no_utf_8_is_refused_and_shown_safely(said: golden.Said) -> None:
    plain_files.check_name("/runs/größe\x1b[31m")
    with pytest.raises(errors.ResumeError, match=r"bad\\udcff\\x1b ") as caught:
        plain_files.check_name(pathlib.Path("bad\udcff\x1b"))
    said(caught.value)
    assert str(caught.value).isprintable()
