"""The user's cache directory, of every kind of user."""

from __future__ import annotations

import pathlib
import pwd

import pytest

from seedzero.core import user_cache


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, pathlib.Path("/x")),
        ({"XDG_CACHE_HOME": "", "HOME": "/h"}, pathlib.Path("/h/.cache")),
        ({}, None),
    ],
)
def test_a_user_without_home_and_entry_has_none(
    variables: dict[str, str], expected: pathlib.Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert user_cache.directory() == expected
