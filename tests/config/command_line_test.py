from __future__ import annotations

import pathlib

import pytest

from seedzero.config import command_line
from seedzero.core import errors


def _even(text: str) -> None:
    if int(text) % 2:
        raise errors.ConfigError(f"--toy.count={text} is odd")


def _read(*args: str) -> tuple[list[str], dict[str, str]]:
    values = command_line.define({"toy.count": _even, "name": None, "json": None}, switches={"json"})
    return command_line.read(values, command_line.with_files(args), lambda key: f"; not {key}", {"count": "toy.count"})


def test_values_stay_texts_in_the_order_of_the_last_of_each() -> None:
    words, given = _read("--count=2", "go", "--name", "a b", "--toy.count=04", "--json", "on")
    assert words == ["go", "on"]
    assert list(given.items()) == [("name", "a b"), ("toy.count", "04"), ("json", "true")]


@pytest.mark.parametrize(
    ("args", "value"),
    [
        (["--json"], "true"),
        (["--json", "false"], "false"),
        (["--json=0"], "0"),
        (["--nojson"], "false"),
        (["--json", "--nojson"], "false"),
    ],
)
def test_a_switch_is_turned_on_and_off(args: list[str], value: str) -> None:
    assert _read(*args) == ([], {"json": value})


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--count", "--json"], "--count has no value; write --count=VALUE"),
        (["--count"], "--count has no value; write --count=VALUE"),
        (["--nocount"], "unknown setting --nocount"),
        (["--nojson=1"], "unknown setting --nojson=1"),
        (["-json"], "unknown setting -json"),
        (["--jsn"], "unknown setting --jsn"),
        (["--"], "unknown setting --"),
        (["--toy.count=3"], "--toy.count=3 is odd"),
    ],
)
def test_a_mistake_is_named(args: list[str], told: str) -> None:
    with pytest.raises(errors.UsageError, match=told):
        _read(*args)


def test_a_file_s_flags_stand_where_it_is_named(tmp_path: pathlib.Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.write_text("// of all runs\n--name=inner\n\n")
    outer.write_text(f"# mine\n--flagfile={inner}\n--count=4\n")
    assert _read("--name=first", f"--flagfile={outer}")[1] == {"name": "inner", "toy.count": "4"}
    assert _read("--flagfile", str(outer), "--name=last")[1] == {"toy.count": "4", "name": "last"}


@pytest.mark.parametrize("first", ["# mine\n", "// mine\n--count=4\n", "\n", "--count=4\n", ""])
def test_a_file_may_begin_with_a_byte_order_mark(first: str, tmp_path: pathlib.Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.write_text("--name=inner\n", encoding="utf-8-sig")
    outer.write_text(f"{first}--flagfile={inner}\n", encoding="utf-8-sig")
    count = {"toy.count": "4"} if "count" in first else {}
    assert _read(f"--flagfile={outer}")[1] == {"name": "inner", **count}


def test_a_file_that_cannot_be_read_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.UsageError, match="--flagfile= is empty"):
        _read("--name=first", "--flagfile=")
    (tmp_path / "binary").write_bytes(b"\xd0\xcf")
    for name, told in (
        ("missing", r"flagfile: .*No such file.*missing'; --flagfile=FILE"),
        ("binary", r"0xd0 .*one --flag=value"),
    ):
        with pytest.raises(errors.UsageError, match=told):
            _read(f"--flagfile={tmp_path / name}")
