"""What can be exported, asked before JAX is loaded."""

from __future__ import annotations

from collections.abc import Sequence

from seedzero.core import errors

FORMATS = ("stablehlo",)
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def check(file_format: str, platforms: Sequence[str], batch_size: int | None) -> None:
    """Refuses what cannot be exported.

    Raises:
      UsageError: an unknown format or platform, or a batch of less than one row.
    """
    if file_format not in FORMATS:
        raise errors.UsageError(f"--format={file_format}: expected {' or '.join(FORMATS)}")
    unknown = [name for name in platforms if name not in PLATFORMS]
    if unknown or not platforms:
        raise errors.UsageError(f"--platforms={','.join(platforms)}: expected some of {', '.join(PLATFORMS)}")
    if batch_size is not None and batch_size < 1:
        raise errors.UsageError(f"--batch_size={batch_size}: expected at least 1")
