"""Functions by name, from modules of the current directory, and what is wrong with a name."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
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


def test_a_module_that_would_train_when_it_is_imported_is_refused(tmp_path: pathlib.Path) -> None:
    user_code.check_may_train()
    (tmp_path / "unguarded.py").write_text("from seedzero.api import training\ntraining.train('catch')\n")
    with pytest.raises(
        errors.ConfigError, match=r"""'unguarded:make': .*seedzero\.train.*`if __name__ == \"__main__\""""
    ):
        user_code.load("unguarded:make")
    user_code.check_may_train()


@pytest.mark.parametrize("env", ["python:a:b", "python:a", "gym:a:B-v0", "gym:a:b:C-v0", "spiel:a:b(c=d:e)"])
def test_settings_that_name_code_are_known(env: str) -> None:
    code = {"env.id": env, "network.module": "a:network"}
    assert user_code.named({**code, "ppo.bonus": "", "league.builder": "past", "run.seed": 1}) == code
    builder = {"league.builder": "a:build"}
    assert user_code.named({**builder, "league.builder_args": "{}"}) == builder
    members = {"league.members": "random,a.b:bot,spiel:x"}
    assert user_code.named(members) == members
    assert user_code.named({"league.members": "random,mcts-5,spiel:x(y=a:b)"}) == {}


@pytest.mark.parametrize(
    "env",
    ["catch", "gym:CartPole-v1", "gym:ALE/Pong-v5", "atari:Pong", "remote", "python:", "spiel:a(b=c:d)"],
)
def test_other_environments_name_no_code(env: str) -> None:
    assert user_code.named({"env.id": env}) == ({"env.id": env} if env == "python:" else {})


def test_the_modules_of_settings_are_known() -> None:
    code = {"env.id": "python:a.b:make", "network.module": "c:make", "ppo.bonus": "d.e:make"}
    assert user_code.modules(code) == {"a.b", "c", "d.e"}
    assert user_code.modules({"env.id": "gym:f.g:Env-v0"}) == {"f.g"}
    assert user_code.modules({"env.id": "spiel:f.g:duel(file=a:b)"}) == {"f.g"}
    assert user_code.modules({"env.id": "pettingzoo:f.g"}) == {"f.g"}
    assert user_code.modules({"env.id": "pettingzoo:f.g:make"}) == {"f.g"}
    assert user_code.modules({"env.id": "gym:CartPole-v1"}) == set()
    assert user_code.modules({"league.members": "a:bot,random,b.c:bot,spiel:x"}) == {"a", "b.c"}


def test_a_package_in_a_folder_of_the_path_twice_is_found_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert user_code.files("folder") == [str(tmp_path / "folder")]


def test_a_module_is_found_as_an_import_would_and_is_not_imported(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(sys.path)
    assert user_code.files("of_a_user_2") == [str(tmp_path / "of_a_user_2.py")]
    assert user_code.files("of_nobody") == []
    (tmp_path / "later" / "package").mkdir(parents=True)
    (tmp_path / "later" / "package" / "__init__.py").write_text("raise SystemExit\n")
    (tmp_path / "later" / "of_a_user.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "later"))
    package = tmp_path / "later" / "package"
    assert user_code.files("package.deep.er") == [str(package / "__init__.py"), str(package)]
    assert user_code.files("of_a_user") == [str(tmp_path / "of_a_user.py")]  # the current directory comes first
    assert user_code.files("numpy")[0] == np.__file__
    assert sys.path == [str(tmp_path / "later"), *before]


def test_a_module_in_a_directory_is_seen_through_links_and_packages(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs_of_a_user"
    runs.mkdir()
    assert not user_code.lies_in("of_a_user", runs)
    assert user_code.lies_in("of_a_user", tmp_path)
    assert user_code.lies_in("runs_of_a_user.inner", runs) and not user_code.lies_in("runs_of_a_user", runs / "other")
    (tmp_path / "linked.py").symlink_to(runs / "linked.py")
    (runs / "linked.py").write_text("")
    assert user_code.lies_in("linked", runs)
    monkeypatch.syspath_prepend(str(runs))
    assert user_code.lies_in("of_a_user", runs)  # its imports would look there


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("of_a_user", "'of_a_user' .*MODULE:FUNCTION.* my_module:make"),
        (":make", "':make' .*MODULE:FUNCTION"),
        ("a.b:", "'a.b:' .*MODULE:FUNCTION"),
        ("of_a_user.py:make", "no module 'of_a_user.py' in .*; leave out .py, .*install it"),
        ("subprocess:run", "'subprocess' is Python's own; expected .*your own function"),
        ("os.path:join", "'os.path' is Python's own"),
        ("of_nobody:make", "no module 'of_nobody' in .*install it"),
        ("of_a_user:build", "it has make"),
        ("of_a_user:mak", "'of_a_user' .*'mak'; .* of_a_user:make"),
        ("of_a_user:limit", "'of_a_user' .*'limit'; it has make"),
        ("of_a_user_2:make", "'of_a_user_2' .*'not_installed_at_all'"),
    ],
)
def test_what_is_wrong_is_said(name: str, message: str) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        user_code.load(name)


@pytest.mark.parametrize(
    "path, module", [("/of/own.py", "own"), ("/of/pytest", "my_module"), ("/of/a-b.py", "my_module")]
)
def test_the_started_script_is_named_by_its_file(path: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", path, raising=False)
    for refused in (user_code.check, user_code.load):
        with pytest.raises(errors.ConfigError, match=f"__main__:make.* {module}:make for {module}.py"):
            refused("__main__:make")


def test_a_function_has_the_name_by_which_other_processes_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def local() -> None:
        pass

    of_script = type("Mine", (), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/of/own.py", raising=False)
    named = {user_code.check: "seedzero.core.user_code:check", of_script: "own:Mine"}
    unnamed = dict.fromkeys((local, lambda: None, 3), "")
    assert {each: user_code.named_by(each) for each in (*named, *unnamed)} == named | unnamed
    monkeypatch.setattr(sys.modules["__main__"], "__file__", None, raising=False)
    assert user_code.named_by(of_script) == ""


def test_a_deleted_current_directory_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(errors.ConfigError, match="the current directory, where your module may be, was deleted"):
        user_code.load("my_env:make")
