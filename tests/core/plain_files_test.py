"""Files are opened, links in their place are not."""

import pathlib

import pytest

from seedzero.core import plain_files


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
