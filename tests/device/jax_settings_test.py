"""JAX's own settings, which are refused by name before anything is compiled."""

from __future__ import annotations

import jax
import pytest

from seedzero.core import errors
from seedzero.device import jax_settings


@pytest.mark.parametrize(
    ("name", "value"),
    [("jax_enable_x64", True), ("jax_numpy_rank_promotion", "raise"), ("jax_numpy_dtype_promotion", "strict")],
)
def test_what_agents_do_not_compute_with_is_named(name: str, value: object) -> None:
    before = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        with pytest.raises(errors.UsageError, match=name):
            jax_settings.platform()
    finally:
        jax.config.update(name, before)
    assert jax_settings.platform() == "cpu"


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
            jax_settings.platform()
    finally:
        jax.config.update("jax_platforms", before)
