"""XLA's persistent cache: programs compiled once serve later processes, too."""

from __future__ import annotations

import contextlib
import os
import pathlib
import types

import jax

from seedzero.core import user_cache

_chosen_here: set[str] = set()


def enable(directory: pathlib.Path | None = None) -> str:
    """Turns the cache on: in JAX_COMPILATION_CACHE_DIR, else in `directory`, else in the user's cache directory.

    Returns a sentence for the user if there is no cache, as the user has no directory for it; else "".
    """
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
    """Has this process of a `jax.distributed` cluster write its programs, too: JAX has the first one write alone.

    That spares file systems on which many processes write the same file. Most programs of another host are its own:
    they name its devices. With a JAX of other internals nothing changes.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from jax._src import compiler

        first = types.SimpleNamespace(global_state=types.SimpleNamespace(process_id=0))
        code, seen = compiler._cache_write.__code__, {**vars(compiler), "distributed": first}
        compiler._cache_write = types.FunctionType(code, seen)


def _is_usable(directory: pathlib.Path) -> bool:
    """Returns whether the directory, or its nearest existing parent, where it would be made, can be written."""
    existing = next(filter(os.path.exists, (directory, *directory.absolute().parents)))  # the root is there
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def expectation(platform: str, *, has_images: bool) -> str:
    """Returns a sentence announcing compilation, with the rough duration.

    platform: of the device, "cpu" or another. has_images: the environments show images, which compile longer.
    """
    usual = "1 to 3 minutes" if has_images or platform != "cpu" else "10 to 40 s"
    found = _chosen()
    is_filled = bool(found) and any(pathlib.Path(str(found)).glob("*"))
    cached = "; seconds if an earlier run left the same programs in the cache" if is_filled else ""
    return f"compiling acting and the update: usually {usual}, longer beside other work{cached}"


def _chosen() -> str | None:
    """Returns the directory chosen by the calling program, or an earlier call."""
    found: str | None = getattr(jax.config, "jax_compilation_cache_dir", None)  # its types do not know it
    return found
