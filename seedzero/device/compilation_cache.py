"""XLA's persistent cache: programs compiled once serve later processes, too."""

from __future__ import annotations

import os
import pathlib

import jax

_chosen_here: set[str] = set()


def enable(directory: pathlib.Path | None = None) -> None:
    """Turns the cache on: in JAX_COMPILATION_CACHE_DIR, else in `directory`, else in the user's cache directory."""
    chosen = _chosen()
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ and (chosen is None or chosen in _chosen_here):
        if directory is None:  # a user whom the system does not know may have none of their own
            parent = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
            directory = pathlib.Path(parent) / "seedzero" / "xla"
        _chosen_here.add(str(directory))
        jax.config.update("jax_compilation_cache_dir", str(directory))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def expectation(platform: str, *, has_images: bool) -> str:
    """Returns a sentence announcing compilation, with the rough duration.

    platform: of the device, "cpu" or another. has_images: the environments show images, which compile longer.
    """
    usual = "1 to 3 minutes" if has_images or platform != "cpu" else "10 to 40 s"
    found = _chosen()
    is_filled = bool(found) and any(pathlib.Path(str(found)).glob("*"))
    cached = "; seconds where an earlier run left the same programs in the cache" if is_filled else ""
    return f"compiling acting and the update: usually {usual}, longer beside other work{cached}"


def _chosen() -> str | None:
    """Returns the directory chosen by the calling program, or an earlier call."""
    found: str | None = getattr(jax.config, "jax_compilation_cache_dir", None)  # its types do not know it
    return found
