"""Functions by name, from modules of the current directory, and what is wrong with a name."""

from __future__ import annotations

import pathlib

import pytest

from seedzero.core import errors, user_code


@pytest.fixture(autouse=True)
def _modules(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("/nowhere")  # restores sys.path
    (tmp_path / "of_a_user.py").write_text("limit = 3\ndef make(n):\n    return n + limit\n")
    (tmp_path / "of_a_user_2.py").write_text("import not_installed_at_all\n")


def test_a_function_is_found_in_the_current_directory() -> None:
    assert user_code.load("of_a_user:make")(4) == 7


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("of_a_user", "'of_a_user' is not complete; expected MODULE:FUNCTION, as in my_module:make"),
        (":make", "is not complete"),
        ("a.b:", "is not complete"),
        ("of_a_user.py:make", "there is no module"),
        ("subprocess:run", "module 'subprocess' is Python's own"),
        ("os.path:join", "module 'os.path' is Python's own"),
        ("of_nobody:make", "there is no module 'of_nobody' in .* or install it"),
        ("of_a_user:mak", "module 'of_a_user' has no function 'mak'; did you mean of_a_user:make"),
        ("of_a_user:limit", "module 'of_a_user' has no function 'limit'"),
        ("of_a_user_2:make", "'of_a_user_2' cannot be imported: No module named 'not_installed_at_all'"),
    ],
)
def test_what_is_wrong_is_said(name: str, message: str) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        user_code.load(name)
