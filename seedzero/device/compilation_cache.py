"""Turns on XLA's persistent cache, so that later processes need not compile the same programs again."""

from __future__ import annotations

import contextlib
import os
import pathlib
import types

import jax

from seedzero.core import forks, user_cache

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
        parent = user_cache.directory()
        directory = parent / "seedzero" / "xla" if parent else None
    if directory is None or not _is_usable(directory):
        jax.config.update("jax_compilation_cache_dir", None)
        place = f"{directory} cannot be written" if directory else "this user has no home directory"
        return f"programs are compiled at every start, without a cache: {place}; {user_cache.REMEDY}"
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
