"""Lets CPUs of several processes sum over each other's arrays by gloo."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
from jax.extend import backend


def use_gloo(address: str) -> None:
    """Sets the address at which other processes of a `jax.distributed` cluster reach this one for sums on CPUs.

    Call it after `jax.distributed.initialize` and before JAX is used. If JAX's internals have changed, gloo uses the
    address of the machine's name.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    with contextlib.suppress(ImportError, AttributeError):
        from jax._src import distributed, xla_bridge
        from jaxlib import _jax

        make_client, make_gloo = xla_bridge.make_cpu_client, _jax.make_gloo_tcp_collectives

        def make() -> Any:
            return make_client(make_gloo(distributed_client=distributed.global_state.client, hostname=address))

        backend.register_backend_factory("cpu", make, priority=0, fail_quietly=False)
