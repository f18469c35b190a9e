"""Runs are found below a directory, and no name leads out of it."""

from __future__ import annotations

import pathlib

import page_runs
import pytest
from starlette import requests

from seedzero.interfaces.page import catalogue


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    for name in ("runs/a", "runs/deep/er/b", "runs/a/inside", "outside"):
        page_runs.write(tmp_path / name)
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "runs" / "no run").mkdir()
    return tmp_path / "runs"


def test_runs_are_found_without_links_and_without_their_insides(root: pathlib.Path) -> None:
    assert catalogue.find(root) == ["a", "deep/er/b"]
    assert catalogue.find(root / "a") == ["."]
    assert catalogue.find(root / "nothing") == []


def test_names_lead_to_runs(root: pathlib.Path) -> None:
    assert catalogue.locate(root, "deep/er/b") == root / "deep/er/b"
    assert catalogue.locate(root / "a", ".") == root / "a"


@pytest.mark.parametrize(
    "name",
    ["", "/", "../outside", "a/../../outside", "/etc", "link", "link/", "deep", "no run", "a\0", "a\\b", "./a", "a//",
     "deep/../a", "..", "a/.", "%2e%2e/outside", "x" * 5000, "a\n"],
)  # fmt: skip
def test_hostile_names_are_refused(root: pathlib.Path, name: str) -> None:
    with pytest.raises(catalogue.UnknownRun):
        catalogue.locate(root, name)


def test_a_link_in_place_of_the_settings_makes_no_run(root: pathlib.Path) -> None:
    (root / "a" / "config.json").unlink()
    (root / "a" / "config.json").symlink_to(root.parent / "outside" / "config.json")
    with pytest.raises(catalogue.UnknownRun):
        catalogue.locate(root, "a")


def _request(query: str) -> requests.Request:
    return requests.Request({"type": "http", "query_string": query.encode(), "headers": []})


def test_numbers_are_read() -> None:
    request = _request("x=1.5&n=3")
    assert catalogue.query_number(request, "x") == 1.5 and catalogue.query_number(request, "y") is None
    assert catalogue.query_count(request, "n", 0, 3) == 3 and catalogue.query_count(request, "m", 2, 3) == 2


@pytest.mark.parametrize("text", ["", "a", "nan", "inf", "-1", "4", "1.5", "1e400"])
def test_other_values_are_refused(text: str) -> None:
    with pytest.raises(catalogue.BadQuery, match="n: expected"):
        catalogue.query_count(_request(f"n={text}"), "n", 0, 3)


def test_a_name_stays_in_the_message() -> None:
    with pytest.raises(catalogue.BadQuery, match="steps: expected 0 to 3"):
        catalogue.query_count(_request("steps=9"), "steps", 0, 3)
