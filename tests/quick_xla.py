"""Flags of XLA that make compilation on a CPU cheap: LLVM optimizes nothing, and fusions are emitted the old way."""

from __future__ import annotations

import os

_QUICK = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
    # jaxlib 0.10.2 miscompiles some programs of the two flags above where it generates code in several parts.
    "--xla_cpu_parallel_codegen_split_count=1"
)


def flags() -> str:
    """Returns a value of XLA_FLAGS: the environment's, and quick compilation."""
    return f"{os.environ.get('XLA_FLAGS', '')} {_QUICK}".strip()
