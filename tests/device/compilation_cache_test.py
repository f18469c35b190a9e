"""The directory of the cache: the user's, or the environment's."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading

import jax
import pytest

from seedzero.core import errors, plain_files
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
        monkeypatch.setattr(plain_files, "cache_directory", pytest.fail)  # it needs no home
    assert compilation_cache.enable(tmp_path / given if given else None) == ""
    assert updated == {
        "jax_compilation_cache_dir": str(tmp_path / expected),
        "jax_persistent_cache_min_compile_time_secs": 0.1,
    }


def test_a_user_without_a_home_compiles_without_a_cache_and_is_told(
    updated: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_files, "cache_directory", lambda: None)
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


@pytest.mark.thorough
@pytest.mark.parametrize("words", [(), ("write",)])
def test_a_host_that_is_not_the_first_writes_programs_when_told(
    words: tuple[str, ...], tmp_path: pathlib.Path
) -> None:
    subprocess.run([sys.executable, "-c", _AS_HOST_1, str(tmp_path), *words], check=True)
    assert bool(list(tmp_path.glob("*-cache"))) == bool(words)


@pytest.mark.parametrize(
    ("name", "value"),
    [("jax_enable_x64", True), ("jax_numpy_rank_promotion", "raise"), ("jax_numpy_dtype_promotion", "strict")],
)
def test_what_agents_do_not_compute_with_is_named(name: str, value: object) -> None:
    before = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        with pytest.raises(errors.UsageError, match=name):
            compilation_cache.platform()
    finally:
        jax.config.update(name, before)
    assert compilation_cache.platform() == "cpu"


@pytest.mark.parametrize(
    ("platforms", "error"),
    [
        ("cuda", AssertionError()),
        ("gpu", RuntimeError("Unable to initialize backend 'rocm'")),
        ("tpu,cpu", RuntimeError("Unable to initialize backend 'tpu': cannot open libtpu.so")),
        ("cuda,cpu", None),  # a JAX for CUDA that sees no GPU
        ("", RuntimeError("No visible devices")),
    ],
)
def test_a_platform_that_is_not_there_is_named(
    platforms: str, error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def backend() -> str:
        if error is not None:
            raise error
        return "cpu"

    before = jax.config.jax_platforms  # type: ignore[attr-defined]
    jax.config.update("jax_platforms", platforms)
    monkeypatch.setattr(jax, "default_backend", backend)
    try:
        with pytest.raises(errors.ConfigError, match=None):
            compilation_cache.platform()
    finally:
        jax.config.update("jax_platforms", before)


TIMEOUT_SECONDS = 600.0


class Log:
    """The levels that were set, and when errors were hidden."""

    def __init__(self) -> None:
        self.levels: list[int] = []
        self.hidden = threading.Event()

    def set_level(self, level: int) -> None:
        self.levels.append(level)
        if level > 2:
            self.hidden.set()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    monkeypatch.setattr(compilation_cache, "_set_level", log.set_level)
    monkeypatch.setenv(compilation_cache.LEVEL, compilation_cache.USUAL_LEVEL)
    return log


def test_errors_are_hidden_while_a_slow_compilation_lasts(log: Log) -> None:
    with compilation_cache.without_alarm(0.0):
        assert log.hidden.wait(TIMEOUT_SECONDS)
    assert log.levels == [3, 1]


def test_the_last_of_several_slow_compilations_shows_them_again(log: Log) -> None:
    with compilation_cache.without_alarm(0.0):
        assert log.hidden.wait(TIMEOUT_SECONDS)
        log.hidden.clear()
        with compilation_cache.without_alarm(0.0):
            assert log.hidden.wait(TIMEOUT_SECONDS)
        assert log.levels[-1] == 3
    assert log.levels == [3, 3, 3, 1]


def test_a_quick_compilation_hides_nothing(log: Log) -> None:
    with compilation_cache.without_alarm(TIMEOUT_SECONDS):
        pass
    assert log.levels == []


@pytest.mark.parametrize("level", ["0", "2"])
def test_a_level_that_the_user_set_stays(log: Log, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    monkeypatch.setenv(compilation_cache.LEVEL, level)
    with compilation_cache.without_alarm(0.0):
        pass
    assert log.levels == []


FOLDS_FOR_SECONDS = """
import sys, threading
import jax, jax.numpy as jnp
from seedzero.device import compilation_cache

def fold(x):  # a constant of which XLA computes the result by its own, slowly
    zeros = jnp.zeros((64, 64, 64)).at[3, 4, 5].set(1.0)
    return x + jax.lax.reduce_window(zeros, -jnp.inf, jax.lax.max, (5, 5, 5), (1, 1, 1), "SAME").sum()

hidden, add = threading.Event(), compilation_cache._add
compilation_cache._add = lambda number: (add(number), hidden.set())
with compilation_cache.without_alarm(float(sys.argv[1])):
    if sys.argv[1] == "0":
        hidden.wait()
    jax.jit(fold).lower(1.0).compile()
"""
"""XLA's alarm about the folding of a constant comes after one second; it is the same as that of a compilation."""


@pytest.mark.slow
@pytest.mark.parametrize(("hide_seconds", "is_shown"), [("1000", True), ("0", False)])
def test_the_real_alarm_is_not_shown(hide_seconds: str, is_shown: bool, tmp_path: pathlib.Path) -> None:
    usual = {name: value for name, value in os.environ.items() if name not in (compilation_cache.LEVEL, "XLA_FLAGS")}
    environment = {**usual, "PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", FOLDS_FOR_SECONDS, hide_seconds]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=True)
    assert ("slow_operation_alarm" in ended.stderr) == is_shown, ended.stderr
