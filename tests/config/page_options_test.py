"""The flags of a page of runs, and what it needs."""

from __future__ import annotations

import re

import pytest

from seedzero.config import page_options
from seedzero.core import errors


@pytest.mark.parametrize(
    ("root", "name", "path"),
    [
        ("", "", ""),
        ("/proxy/8000", "", "/proxy/8000"),
        ("/user/a%40b/proxy/8000/", "", "/user/a%40b/proxy/8000"),
        ("https://hub.example.org/user/me/proxy/8000", "hub.example.org", "/user/me/proxy/8000"),
        ("https://runs.example.org/", "runs.example.org", ""),
        ("http://10.0.0.7:8888/proxy/8000", "10.0.0.7", "/proxy/8000"),
    ],
)
def test_a_proxy_has_a_path_and_maybe_a_name(root: str, name: str, path: str) -> None:
    assert page_options.proxy(root) == (name, path)


@pytest.mark.parametrize(
    "root", ["proxy/8000", "/", "//evil/x", "/a b", "/a;b", "/a?b", "https://", "ftp://hub/a", "/ü"]
)
def test_another_root_is_refused(root: str) -> None:
    with pytest.raises(errors.UsageError, match=rf"--page\.root={re.escape(root)}: expected .*/proxy/8000.*https://"):
        page_options.proxy(root)


def test_a_training_has_a_page_with_a_root_if_asked() -> None:
    flags = {"page": "8000", "page.root": "/proxy/8000"}
    assert page_options.place({}) is None and page_options.place(flags) == (8000, "/proxy/8000")
    with pytest.raises(errors.UsageError, match=r"--page\.root=/proxy/8000.*--page=PORT"):
        page_options.place({"page.root": "/proxy/8000"})


@pytest.mark.parametrize("missing", [("uvicorn",), ("starlette", "uvicorn")])
def test_missing_packages_are_counted(missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_options.importlib.util, "find_spec", lambda name: None if name in missing else True)
    with pytest.raises(
        errors.UsageError, match="starlette and uvicorn are not" if missing[1:] else "but uvicorn is not"
    ):
        page_options.check_packages("--page")
