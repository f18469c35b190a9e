"""Presets in files: what they set, and refusals with file and line."""

from __future__ import annotations

import pathlib

import pytest

from seedzero.config import preset_files, presets
from seedzero.core import errors


def _file(tmp_path: pathlib.Path, content: str) -> pathlib.Path:
    file = tmp_path / "mine.preset"
    file.write_text(content)
    return file


def test_a_file_changes_a_preset(tmp_path: pathlib.Path) -> None:
    file = _file(
        tmp_path,
        "# of mine\n\n--preset=catch\n--agent=ppo\n--seed=3\n  \n--network.width=32 \n\t# wide\n  --listen=\n",
    )
    found = preset_files.read(file)
    assert found.preset == "catch"
    assert found.settings == {"run.agent": "ppo", "run.seed": "3", "network.width": "32", "transport.listen": ""}


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: pathlib.Path) -> None:
    file = _file(tmp_path, "\ufeff--preset=catch\n--agent=ppo\n")
    assert preset_files.read(file) == preset_files.PresetFile("catch", {"run.agent": "ppo"})


def test_no_preset_of_the_table_looks_like_a_file() -> None:
    assert not any(map(preset_files.is_file, presets.PRESETS))
    assert preset_files.is_file("mine.preset") and preset_files.is_file("./mine")


@pytest.mark.parametrize(
    ("content", "line", "told"),
    [
        ("--seed=3\n", 1, "--preset=NAME"),
        ("--preset=catch\nseed=3\n", 2, "'seed=3'; expected --setting=value"),
        ("--preset=catch\n--seed 3\n", 2, "'--seed 3'; expected --setting=value"),
        ("--preset=catch\n\n--sed=3\n", 3, "--sed"),
        ("--preset=catch\n--seed=three\n", 2, "three"),
        ("--preset=catch\n--agent=ppo\n--network.width=0\n", 3, "--network.width is 0; .*at least 1"),
        ("--preset=catch\n--seed=1\n--run.seed=2\n", 3, "--run.seed is in line 2, too"),
        ("--preset=catch\n--vtrace.width=8\n", 2, "--vtrace.width"),
        ("# mine\n--preset=cach\n", 2, "--preset=cach; .*--preset=catch"),
        ("--preset=catch\n--agent=pqn\n", 2, "'pqn'.* muzero, .*MODULE:OBJECT"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(content: str, line: int, told: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.ConfigError, match=rf"mine\.preset:{line}: .*{told}"):
        preset_files.read(_file(tmp_path, content))


def test_a_file_that_cannot_be_read_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.ConfigError, match=r"none\.preset"):
        preset_files.read(tmp_path / "none.preset")
    with pytest.raises(errors.ConfigError, match=f"--preset={tmp_path}: Is a directory; expected a file"):
        preset_files.read(tmp_path)
    (tmp_path / "bytes.preset").write_bytes(b"--preset=catch\n--seed=\xff")
    with pytest.raises(errors.ConfigError, match=r"bytes\.preset:2: .*--setting=value"):
        preset_files.read(tmp_path / "bytes.preset")
