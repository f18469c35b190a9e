"""Prepares JAX to compile: its settings, XLA's persistent cache for later processes, and its alarm of slowness."""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
import types
from collections.abc import Iterator

import jax
from jaxlib import utils

from seedzero.core import errors, forks, plain_files
from seedzero.device import patience

# Hides XLA's alarm about a slow compilation from the user.
#
# Two minutes into a compilation, and again when it ends, XLA logs an error, "Very slow compile? If you want to file a
# bug ...". It cannot be turned off; only the level of XLA's whole log can be set. So that log's errors are hidden from
# shortly before the alarm until the compilation ends. If it fails, it raises an exception anyway.
HIDE_SECONDS = 100.0
"""After this time in one compilation, errors in XLA's log are hidden; the alarm comes after 120 s."""
LEVEL = "TF_CPP_MIN_LOG_LEVEL"
USUAL_LEVEL = "1"
"""The level that JAX sets if the user sets none: warnings and errors are logged."""
_ERRORS_HIDDEN = 3

_lock = threading.Lock()
_num_hiding = 0


@contextlib.contextmanager
def without_alarm(hide_seconds: float = HIDE_SECONDS) -> Iterator[None]:
    """Any thread: hides the alarm around a compilation. A level that the user has set is not changed."""
    if os.environ.get(LEVEL) != USUAL_LEVEL or getattr(jax.config, "jax_logging_level", None) not in (None, "NOTSET"):
        yield
        return

    def hide(over: threading.Event) -> None:
        if not over.wait(hide_seconds):
            _add(1)
            over.wait()
            _add(-1)

    with patience.beside("compile-log", hide):
        yield


def _add(number: int) -> None:
    """Counts the threads that hide errors in XLA's log, which stay hidden while there is one."""
    global _num_hiding
    with _lock:
        _num_hiding += number
        _set_level(_ERRORS_HIDDEN if _num_hiding else int(USUAL_LEVEL))


def _set_level(level: int) -> None:
    utils.absl_set_min_log_level(level)


# What JAX's own settings and environment variables must be, before anything is compiled.
_NEEDED = {
    "jax_enable_x64": (False,),
    "jax_numpy_rank_promotion": ("allow", "warn"),
    "jax_numpy_dtype_promotion": ("standard",),
}
"""Setting -> values that agents compute with. `seedzero.search` alone takes all."""


def platform() -> str:
    """Returns the platform of JAX's devices. Raises UsageError for settings that no agent computes with.

    Raises ConfigError if JAX lacks the first of JAX_PLATFORMS.
    """
    for name, needed in _NEEDED.items():
        if (value := getattr(jax.config, name, needed[0])) not in needed:
            raise errors.UsageError(
                f"JAX's {name} is {value} here, and agents need {needed[0]}: unset {name.upper()}, or use the "
                "agent in a separate process"
            )
    asked = getattr(jax.config, "jax_platforms", "") or "cpu"  # JAX's types do not know it
    wanted, found = asked.partition(",")[0], "cpu"
    try:
        found = jax.default_backend()
    except (AssertionError, RuntimeError) as error:  # the first from a package that was built without it
        if wanted == "cpu":
            raise errors.ConfigError(f"JAX finds no device: {error}") from None
    if found == "cpu" != wanted:  # JAX silently ignores CUDA if it sees no GPU
        raise errors.ConfigError(
            f"JAX_PLATFORMS={asked} asks for {wanted}, and JAX finds none here; see to its "
            "driver and JAX's package for it, or set JAX_PLATFORMS=cpu"
        )
    return found


_chosen_here: set[str] = set()


def enable(directory: pathlib.Path | None = None) -> str:
    """Turns the cache on, in JAX_COMPILATION_CACHE_DIR, else in `directory`, else in the user's cache directory.

    Returns a sentence for the user if there is no cache because the user has no directory for it, else "". Raises
    UsageError in a process that was forked while JAX was in use.
    """
    forks.uses("JAX")
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    chosen = _chosen()
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or not (chosen is None or chosen in _chosen_here):
        return ""
    if directory is None:
        parent = plain_files.cache_directory()
        directory = parent / "seedzero" / "xla" if parent else None
    if directory is None or not _is_usable(directory):
        jax.config.update("jax_compilation_cache_dir", None)
        place = f"{directory} cannot be written" if directory else "this user has no home directory"
        return f"programs are compiled at every start, without a cache: {place}; {plain_files.CACHE_REMEDY}"
    _chosen_here.add(str(directory))
    jax.config.update("jax_compilation_cache_dir", str(directory))
    return ""


def write_on_every_host() -> None:
    """Makes this process of a `jax.distributed` cluster write its programs, too; by default only JAX's first one does.

    JAX's default spares file systems on which many processes would write the same file. But most programs of another
    host are its own, because they name its devices. If JAX's internals have changed, this does nothing.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from jax._src import compiler

        first = types.SimpleNamespace(global_state=types.SimpleNamespace(process_id=0))
        code, seen = compiler._cache_write.__code__, {**vars(compiler), "distributed": first}
        compiler._cache_write = types.FunctionType(code, seen)


def _is_usable(directory: pathlib.Path) -> bool:
    """Returns whether the directory can be written or, if it does not exist, the nearest parent that does."""
    # ends, because the root exists
    existing = next(filter(os.path.exists, (directory, *directory.absolute().parents)))
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def expectation(platform: str, *, has_images: bool) -> str:
    """Returns a sentence that announces compilation and roughly how long it takes.

    platform: the device's, "cpu" or another. has_images: whether environments show images, whose networks compile
    longer.
    """
    usual = "1 to 3 minutes" if has_images or platform != "cpu" else "10 to 40 s"
    found = _chosen()
    is_filled = bool(found) and any(pathlib.Path(str(found)).glob("*"))
    cached = "; seconds if an earlier run left the same programs in the cache" if is_filled else ""
    return f"compiling acting and the update: usually {usual}, longer beside other work{cached}"


def _chosen() -> str | None:
    """Returns the directory that the calling program, or an earlier call, has chosen."""
    found: str | None = getattr(jax.config, "jax_compilation_cache_dir", None)  # JAX's types do not have it
    return found
