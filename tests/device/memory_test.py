"""Memory of compiled programs against sizes counted by hand."""

from __future__ import annotations

import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.core import errors
from seedzero.device import meshes, tracing

GIB = 2**30


def test_bytes_of_one_device_are_its_share_of_split_arrays_and_all_of_the_others() -> None:
    mesh = meshes.make(4)
    shapes = jax.ShapeDtypeStruct((8, 3), jnp.float32), jax.eval_shape(lambda: jax.random.key(0))
    split = meshes.placed(shapes[0], meshes.sharded(mesh))
    whole = meshes.placed(shapes, meshes.replicated(mesh))
    assert tracing.device_bytes(split) == 2 * 3 * 4
    assert tracing.device_bytes({"split": split, "whole": whole}) == 24 + 96 + 8


def test_a_result_in_the_place_of_an_argument_counts_once() -> None:
    x = jax.ShapeDtypeStruct((1000,), jnp.float32)
    compiled = jax.jit(lambda x, y: (x + 1, y * 2), donate_argnums=0).lower(x, x).compile()
    needs = tracing.memory_needs(compiled, elsewhere=7)
    assert needs.arguments == 8000 and needs.elsewhere == 7
    assert 4000 <= needs.besides < 4100  # one result, and XLA's pointers
    assert sum(needs) == needs.arguments + needs.besides + 7


def test_a_program_beyond_the_limit_is_refused_with_the_settings_to_lower() -> None:
    needs = tracing.ProgramMemory(3 * GIB, GIB, GIB // 2)
    tracing.check_memory("update", needs, int(4.5 * GIB), "--x")
    with pytest.raises(
        errors.CapacityError, match=r"update needs 4\.50 GiB.*3\.00.*1\.00.*0\.50.*has 4\.00.*lower --x"
    ):
        tracing.check_memory("update", needs, 4 * GIB, "--x")


class _Refused:
    """A program that its compiler refuses."""

    def __init__(self, message: str) -> None:
        self._message = message

    def compile(self) -> Any:
        raise jax.errors.JaxRuntimeError(self._message)


def test_the_compilers_own_refusal_has_the_same_name_and_other_failures_stay() -> None:
    refused: Any = _Refused("RESOURCE_EXHAUSTED: E1:\n16.02G exceeds 15.75G" + 1000 * " buffer")
    with pytest.raises(errors.CapacityError, match=r"^act .*E1: 16\.02G exceeds 15\.75G.{,400}; .*--x"):
        tracing.compile_within("act", refused, 0, None, "--x")
    failed: Any = _Refused("INTERNAL: a defect")
    with pytest.raises(jax.errors.JaxRuntimeError, match="a defect"):
        tracing.compile_within("act", failed, 0, None, "--x")


@pytest.mark.parametrize(
    ("platform", "stats", "limit"),
    [("tpu", {"bytes_limit": 5}, 5), ("tpu", None, None), ("cpu", {"bytes_limit": 5}, None)],
)
def test_only_accelerators_that_tell_have_a_limit(
    platform: str, stats: dict[str, int] | None, limit: int | None
) -> None:
    device: Any = types.SimpleNamespace(platform=platform, memory_stats=lambda: stats)
    assert tracing.limit_bytes(device) == limit


def test_a_compiler_without_an_analysis_is_not_asked_more() -> None:
    compiled = types.SimpleNamespace(memory_analysis=lambda: None)
    lowered: Any = types.SimpleNamespace(compile=lambda: compiled)
    assert tracing.compile_within("act", lowered, 0, 1, "--x") is compiled


def test_a_compiled_program_within_the_limit_runs() -> None:
    lowered = jax.jit(lambda x: x + 1).lower(np.zeros(3))
    assert tracing.compile_within("act", lowered, 0, GIB, "--x")(np.zeros(3)).tolist() == [1, 1, 1]
