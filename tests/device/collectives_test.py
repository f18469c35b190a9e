"""gloo is told the host's own address; `across_test.py` has two processes that learn by it."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from jax._src import xla_bridge
from jax.extend import backend
from jaxlib import _jax

from seedzero.device import collectives


def test_gloo_gets_the_address_and_not_the_machines_name(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: dict[str, Any] = {}
    monkeypatch.setattr(backend, "register_backend_factory", lambda name, make, **_: registered.update({name: make}))
    monkeypatch.setattr(_jax, "make_gloo_tcp_collectives", lambda **given: given)
    monkeypatch.setattr(xla_bridge, "make_cpu_client", lambda collectives=None: collectives)
    before = jax.config.jax_cpu_collectives_implementation
    try:
        collectives.use_gloo("10.0.0.2")
    finally:
        jax.config.update("jax_cpu_collectives_implementation", before)
    assert registered["cpu"]()["hostname"] == "10.0.0.2"
