"""The mechanisms that mutations.py takes out are where it looks for them."""

from __future__ import annotations

import pathlib

import mutations  # see conftest.py
import pytest


def test_every_mechanism_stands_at_one_place() -> None:
    assert len({mutations.place_of(text) for _, text, _ in mutations.MECHANISMS}) > 20
    assert all(text != without for _, text, without in mutations.MECHANISMS)


def test_a_text_that_occurs_twice_or_never_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "seedzero").mkdir()
    (tmp_path / "seedzero" / "a.py").write_text("x = 1\nx = 1\n")
    with pytest.raises(SystemExit, match=r"2 places .* x = 1"):
        mutations.place_of("x = 1", tmp_path)
    with pytest.raises(SystemExit, match="0 places"):
        mutations.place_of("y = 1", tmp_path)


def test_tests_come_from_near_to_far(tmp_path: pathlib.Path) -> None:
    own = tmp_path / "tests" / "ops" / "gae_test.py"
    own.parent.mkdir(parents=True)
    own.touch()
    changed = tmp_path / "seedzero" / "ops" / "gae.py"
    near = [str(own), str(own.parent)]
    assert list(mutations.suites(changed, tmp_path, near=True)) == near
    assert list(mutations.suites(changed, tmp_path, near=False)) == [*near, str(tmp_path / "tests")]
