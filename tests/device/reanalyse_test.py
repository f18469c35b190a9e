"""Reanalysing over 1, 2 and 4 devices, against searches done by hand on the same observations."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero import search
from seedzero.agents import base, muzero, muzero_model, optimizers
from seedzero.config import config as config_lib
from seedzero.core import types
from seedzero.device import batch as batch_lib
from seedzero.device import steps
from seedzero.networks import muzero as networks

SPEC = types.EnvSpec((2,), "float32", 3)
MASKED = dataclasses.replace(SPEC, has_action_mask=True)
NUM_TRAIN, LENGTH, BATCH, MIN_AGE = 4, 12, 16, 2
SETTINGS: dict[str, config_lib.Value] = {
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "search.num_simulations": 2,
    "search.num_considered": 2,
    "muzero.unroll_steps": 1,
    "muzero.n_step": 1,
    "reanalyse.per_insert": 1.0,
}


def _config(**changes: config_lib.Value) -> config_lib.Config:
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    return config_lib.override(config_lib.Config(), {**SETTINGS, **dotted})


class _Host:
    """The function over some devices, and rings to call it with."""

    def __init__(self, num_devices: int, config: config_lib.Config, spec: types.EnvSpec) -> None:
        self.config, self.spec = config, spec
        self.agent = muzero.make(config, spec, "cpu")
        self.mesh = steps.make_mesh(num_devices)
        self.layout = batch_lib.Layout(num_devices, NUM_TRAIN, 0)
        params = jax.jit(self.agent.init)(jax.random.key(0)).params
        random = np.random.default_rng(0)  # new heads give 0 for everything
        self.params = jax.tree.map(lambda x: np.asarray(x) + 0.3 * random.normal(size=x.shape).astype(x.dtype), params)
        self._reanalyse = steps.make_reanalyse(
            self.agent, self.mesh, 0, batch_size=BATCH, capacity=1_000, min_age=MIN_AGE
        )

    def filled(self, mask: np.ndarray | None = None) -> Any:
        """Returns rings on the host with six rows in each, targets of versions 0 to 5: five can be sampled."""
        shapes = steps.abstract_actor(self.agent, self.spec, self.layout, LENGTH, self.mesh).rings
        random = np.random.default_rng(1)
        rings = jax.tree.map(lambda x: random.uniform(0, 1, x.shape).astype(x.dtype), shapes)
        place = np.tile(np.arange(LENGTH), (NUM_TRAIN, 1))
        rings.extras["target_version"][:] = place
        if mask is not None:
            rings.extras["legal"][:] = mask
        return rings._replace(
            first=place == 0,
            weight=(place < 5).astype(np.float32),
            inserted_at=np.zeros_like(rings.inserted_at),
            cursor=np.full(NUM_TRAIN, 6, np.int32),
        )

    def reanalyse(self, rings: Any, version: int, num_reanalyses: int = 0) -> tuple[Any, dict[str, float]]:
        """Returns new rings on the host, and the metrics."""
        placed = jax.device_put(rings, steps.sharded(self.mesh))
        counters = steps.reanalyse_counters(0, version, num_reanalyses)
        after, metrics = self._reanalyse(self.params, placed, counters)
        return jax.tree.map(np.array, after), {name: float(value) for name, value in metrics.items()}


PUCT = _config(search__policy="puct", network__frame_stack=2)


@functools.cache
def _gumbel() -> _Host:
    return _Host(2, _config(), SPEC)


@functools.cache
def _search_by_hand() -> Any:
    """Returns the jitted PUCT search without noise, through the networks alone, of [B] observations and masks."""
    network = networks.make(PUCT.network, MASKED, "cpu")
    parts = muzero_model.Parts(PUCT, MASKED, network, optimizers.make_optimizer(PUCT.optimizer), lambda count: count)

    def find(params: Any, observation: jax.Array, mask: jax.Array) -> search.Result:
        hidden = network.represent(params, observation)
        logits, value = network.predict(params, hidden)
        return search.search(
            params,
            jax.random.key(99),
            search.Root(logits, muzero_model.decode(parts, value), hidden),
            muzero._recurrent_fn(parts),
            config=PUCT.search,
            explore=jnp.zeros(len(observation), bool),
            invalid_actions=~mask,
        )

    return jax.jit(find)


@pytest.mark.parametrize("num_devices", [1, 4])
def test_renewed_targets_are_those_of_a_search_by_hand_and_nothing_else_changes(num_devices: int) -> None:
    host = _Host(num_devices, PUCT, MASKED)
    mask = np.array([[True, False, True], [True, True, True], [False, True, True], [True, True, False]])
    before = host.filled(mask[:, None])
    after, metrics = host.reanalyse(before, version=6)
    written = after.extras["target_version"] == 6
    written[:, 6] = False  # a row that was never written
    # More than two updates old and sampleable: versions 0 to 3, at the same places of every ring.
    assert (written.sum(axis=0) > 0).tolist() == [True] * 4 + [False] * 8
    slot, time = np.nonzero(np.arange(LENGTH) < np.full((NUM_TRAIN, 1), 5))
    frames = [before.observation[slot, np.maximum(time - 1, 0)], before.observation[slot, time]]
    found = _search_by_hand()(host.params, np.concatenate(frames, axis=-1), mask[slot])
    policy, value = before.extras["policy"].copy(), before.extras["value"].copy()
    policy[slot, time], value[slot, time] = found.action_weights, found.root_value
    np.testing.assert_allclose(after.extras["policy"][written], policy[written], atol=1e-6)
    np.testing.assert_allclose(after.extras["value"][written], value[written], atol=1e-5)
    old = {name: before.extras[name][written] for name in ("policy", "value", "target_version")}
    assert metrics == pytest.approx(
        {
            "reanalyse_age": np.mean(6 - old["target_version"]),
            "reanalyse_policy_change": np.mean(abs(policy[written] - old["policy"]).sum(axis=1)) / 2,
            "reanalyse_value_change": np.mean(abs(value[written] - old["value"])),
            "reanalyse_renewed": written.sum() / BATCH,
        },
        rel=1e-4,
    )
    assert metrics["reanalyse_policy_change"] > 0.01
    for name in ("policy", "value", "target_version"):
        before.extras[name][written] = after.extras[name][written]
    jax.tree.map(np.testing.assert_array_equal, after, before)


def test_targets_that_are_young_are_left_alone() -> None:
    host = _gumbel()
    before = host.filled()
    after, metrics = host.reanalyse(before, version=MIN_AGE)  # the oldest targets are of version 0
    jax.tree.map(np.testing.assert_array_equal, after, before)
    assert set(metrics.values()) == {0.0}
    after, _ = host.reanalyse(before, version=MIN_AGE + 1)
    assert set(after.extras["target_version"][:, 0].tolist()) == {MIN_AGE + 1}


def test_calls_differ_by_their_number_alone() -> None:
    host = _gumbel()
    one, again, other = (host.reanalyse(host.filled(), version=9, num_reanalyses=number)[0] for number in (3, 3, 4))
    jax.tree.map(np.testing.assert_array_equal, one, again)
    both = (one.extras["target_version"] == 9) & (other.extras["target_version"] == 9) & (one.weight > 0)
    assert both.any() and not np.array_equal(one.extras["policy"][both], other.extras["policy"][both])


def test_every_device_draws_its_share_from_its_own_rings() -> None:
    host = _gumbel()
    rings = host.filled()
    rings.weight[:2] = 0.0  # the first device has nothing
    after, metrics = host.reanalyse(rings, version=100)
    renewed = (after.extras["target_version"] == 100).sum(axis=1)
    assert renewed[:2].tolist() == [0, 0] and (renewed[2:] > 0).all()
    assert metrics["reanalyse_renewed"] == renewed.sum() / BATCH <= 0.5


# The agent's part --------------------------------------------------------------------------------------------------


def test_gumbel_samples_its_actions_with_the_papers_noise_however_acting_explores() -> None:
    """With two of three actions considered the noise decides which; PUCT's search by hand, above, has none."""

    def found(**search: config_lib.Value) -> np.ndarray:
        agent = muzero.make(_config(**search), SPEC, "cpu")
        assert agent.reanalyse is not None
        targets = jax.jit(agent.reanalyse)(_gumbel().params, jnp.ones((16, 2)), None, jax.random.key(0))
        assert set(targets) == {"policy", "value"}
        return np.asarray(targets["policy"])

    paper, wide, narrow = found(), found(search__gumbel_scale=4.0), found(search__gumbel_scale=0.1)
    assert len(np.unique(paper, axis=0)) > 1
    np.testing.assert_array_equal(wide, paper)
    assert not np.array_equal(narrow, paper)


def test_rings_hold_more_only_where_positions_are_reanalysed() -> None:
    off, on = _config(reanalyse__per_insert=0.0), _config()

    def extras(config: config_lib.Config, spec: types.EnvSpec) -> set[str]:
        agent = muzero.make(config, spec, "cpu")
        return set(
            steps.abstract_actor(agent, spec, batch_lib.Layout(1, 2, 0), LENGTH, steps.make_mesh(1)).rings.extras
        )

    usual = {"action", "policy", "value", "version"}
    assert extras(off, SPEC) == extras(off, MASKED) == usual
    assert extras(on, SPEC) == {*usual, "target_version"}
    assert extras(on, MASKED) == {*usual, "target_version", "legal"}
    assert muzero.make(off, SPEC, "cpu").reanalyse is None
    agent = muzero.make(on, MASKED, "cpu")
    assert agent.extras["legal"] == ((3,), np.dtype(bool))
    mask = np.array([[True, False, True], [False, True, True]])
    inputs: Any = base.ActInputs(np.ones((2, 2), np.float32), np.ones(2, bool), mask, np.ones(2, bool))
    _, outputs = jax.jit(agent.act)(_gumbel().params, agent.initial_memory(2), inputs, jax.random.key(0))
    assert outputs.extras["legal"].tolist() == mask.tolist()
