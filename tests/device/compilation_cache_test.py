"""The directory of the cache: the user's, or the environment's."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import jax
import pytest

from seedzero.core import user_cache
from seedzero.device import compilation_cache


@pytest.fixture
def updated(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """JAX's options that are set meanwhile, of an environment that says nothing."""
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    found: dict[str, object] = {}
    monkeypatch.setattr(jax.config, "update", found.__setitem__)
    monkeypatch.setattr(compilation_cache, "_chosen", lambda: found.get("jax_compilation_cache_dir"))
    return found


@pytest.mark.parametrize(
    ("variable", "given", "expected"),
    [
        ("XDG_CACHE_HOME", None, "seedzero/xla"),
        ("HOME", None, ".cache/seedzero/xla"),
        ("HOME", "of the caller", "of the caller"),
    ],
)
def test_programs_are_kept_in_the_callers_directory_or_the_users_cache(
    updated: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    variable: str,
    given: str | None,
    expected: str,
) -> None:
    monkeypatch.setenv(variable, str(tmp_path))
    if given:
        monkeypatch.setattr(user_cache, "directory", pytest.fail)  # it needs no home
    assert compilation_cache.enable(tmp_path / given if given else None) == ""
    assert updated == {
        "jax_compilation_cache_dir": str(tmp_path / expected),
        "jax_persistent_cache_min_compile_time_secs": 0.1,
    }


def test_a_user_without_a_home_compiles_without_a_cache_and_is_told(
    updated: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_cache, "directory", lambda: None)
    assert "without a cache: this user has no home directory; set HOME" in compilation_cache.enable()
    assert updated["jax_compilation_cache_dir"] is None


@pytest.mark.parametrize("place", ["file", "file/below", "locked/below"])
def test_a_directory_that_cannot_be_written_is_named(
    updated: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, place: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "locked").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: pathlib.Path(path).name != "locked")  # root may do anything
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / place))
    assert f"{tmp_path / place / 'seedzero' / 'xla'} cannot be written" in compilation_cache.enable()
    assert updated["jax_compilation_cache_dir"] is None


def test_the_environment_has_precedence(updated: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/elsewhere")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "9")
    compilation_cache.enable()
    assert updated == {}


def test_a_directory_that_the_program_chose_stays_and_one_of_before_does_not(
    updated: dict[str, object], tmp_path: pathlib.Path
) -> None:
    for name in ("one", "other"):
        compilation_cache.enable(tmp_path / name)
        assert updated["jax_compilation_cache_dir"] == str(tmp_path / name)
    updated["jax_compilation_cache_dir"] = "/of/the/program"
    compilation_cache.enable(tmp_path / "one")
    assert updated["jax_compilation_cache_dir"] == "/of/the/program"


def test_what_is_said_about_its_time_follows_from_what_is_known(
    updated: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compilation_cache.enable()
    vectors = compilation_cache.expectation("cpu", has_images=False)
    assert "cache" not in vectors
    assert " 10 to 40 s" in vectors
    for platform, has_images in (("cpu", True), ("gpu", False)):
        slower = compilation_cache.expectation(platform, has_images=has_images)
        assert " 1 to 3 minutes" in slower
    (tmp_path / "seedzero" / "xla").mkdir(parents=True)
    assert compilation_cache.expectation("cpu", has_images=False) == vectors
    (tmp_path / "seedzero" / "xla" / "jit_update-0").touch()
    assert "seconds if an earlier run " in compilation_cache.expectation("cpu", has_images=False)


_AS_HOST_1 = """
import sys
import jax
from jax._src import distributed
from seedzero.device import compilation_cache

distributed.global_state.process_id = 1
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
if sys.argv[2:]:
    compilation_cache.write_on_every_host()
jax.block_until_ready(jax.jit(lambda x: x + 1)(1))
"""


@pytest.mark.parametrize("words", [(), ("write",)])
def test_a_host_that_is_not_the_first_writes_programs_when_told(
    words: tuple[str, ...], tmp_path: pathlib.Path
) -> None:
    subprocess.run([sys.executable, "-c", _AS_HOST_1, str(tmp_path), *words], check=True)
    assert bool(list(tmp_path.glob("*-cache"))) == bool(words)
