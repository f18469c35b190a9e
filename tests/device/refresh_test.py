"""Refreshing targets over 1, 2 and 4 devices, MuZero's against searches done by hand on the same observations."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import device_world
import fake_agent
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero import search as mcts
from seedzero.agents import base, muzero, muzero_model, muzero_search
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.device import acting, meshes, setups, states, steps
from seedzero.networks import muzero_net
from seedzero.replay import sources, windowing

SPEC = types.EnvSpec((2,), "float32", 3)
MASKED = dataclasses.replace(SPEC, has_action_mask=True)
NUM_TRAIN, LENGTH, BATCH, MIN_AGE = 4, 12, 16, 2
SETTINGS: dict[str, options.Value] = {
    **device_world.MUZERO,
    "search.num_considered": 2,
    "reanalyse.per_insert": 1.0,
    "reanalyse.batch_size": BATCH,
}


def _config(**changes: options.Value) -> configs.Config:
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    return configs.override(configs.Config(), {**SETTINGS, **dotted})


def _setup(config: configs.Config, spec: types.EnvSpec, num_devices: int) -> setups.Setup:
    agent = fake_agent.refreshing_after(muzero.make(config, spec, "cpu"), MIN_AGE)
    return fake_agent.make_setup(
        agent, num_devices, num_train=NUM_TRAIN, slot_length=LENGTH, batch_size=BATCH, sizes=(NUM_TRAIN,), spec=spec
    )


class _Host:
    """The function over some devices, and rings to call it with."""

    def __init__(self, num_devices: int, config: configs.Config, spec: types.EnvSpec) -> None:
        self.setup = _setup(config, spec, num_devices)
        params = jax.jit(self.setup.agent.init)(jax.random.key(0)).params
        random = np.random.default_rng(0)  # new heads give 0 for everything
        self.params = jax.tree.map(lambda x: np.asarray(x) + 0.3 * random.normal(size=x.shape).astype(x.dtype), params)
        self._refresh = steps.make_reanalyse(self.setup)

    def filled(self, mask: np.ndarray | None = None) -> Any:
        """Returns rings on the host with six rows in each, targets of versions 0 to 5: five can be sampled."""
        shapes = states.abstract_actor(self.setup).rings
        random = np.random.default_rng(1)
        rings = jax.tree.map(lambda x: random.uniform(0, 1, x.shape).astype(x.dtype), shapes)
        place = np.tile(np.arange(LENGTH), (NUM_TRAIN, 1))
        rings.stored["target_version"][:] = place
        if mask is not None:
            rings.stored["legal"][:] = mask
        return rings._replace(
            first=place == 0,
            weight=(place < 5).astype(np.float32),
            inserted_at=np.zeros_like(rings.inserted_at),
            cursor=np.full(NUM_TRAIN, 6, np.int32),
        )

    def reanalyse(self, rings: Any, version: int, num_reanalyses: int = 0) -> tuple[Any, dict[str, float]]:
        """Returns new rings on the host, and the metrics."""
        placed = jax.device_put(rings, meshes.sharded(self.setup.mesh))
        counters = steps.counters(0, version, num_reanalyses)
        after, metrics = self._refresh(fake_agent.SEED, self.params, placed, counters)
        return jax.tree.map(np.array, after), {name: float(value) for name, value in metrics.items()}


PUCT = _config(search__policy="puct", network__frame_stack=2)


@functools.cache
def _gumbel() -> _Host:
    return _Host(2, _config(), SPEC)


@functools.cache
def _search_by_hand() -> Any:
    """Returns the jitted PUCT search without noise, through the networks alone, of [B] observations and masks."""
    network = muzero_net.make(PUCT.network, MASKED, "cpu")
    parts = muzero_model.Parts(PUCT, MASKED, network, muzero_model.make_optimizer(PUCT.optimizer), lambda count: count)

    def find(params: Any, observation: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        hidden = network.represent(params, {types.OBSERVATION: observation})
        logits, value = network.predict(params, hidden)
        root = mcts.Root(logits, muzero_model.decode(parts, value), hidden)
        result = mcts.search(
            params,
            jax.random.key(99),
            root,
            muzero_search.recurrent_fn(parts),
            config=PUCT.search,
            explore=jnp.zeros(len(observation), bool),
            invalid_actions=~mask,
        )
        return result.action_weights, muzero_search.search_value(parts, root, result)

    return jax.jit(find)


@pytest.mark.parametrize("num_devices", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_refreshed_targets_are_those_of_a_search_by_hand_and_nothing_else_changes(num_devices: int) -> None:
    host = _Host(num_devices, PUCT, MASKED)
    mask = np.array([[True, False, True], [True, True, True], [False, True, True], [True, True, False]])
    before = host.filled(mask[:, None])
    after, metrics = host.reanalyse(before, version=6)
    written = after.stored["target_version"] == 6
    written[:, 6] = False  # a row that was never written
    # More than two updates old and sampleable: versions 0 to 3, at the same places of every ring.
    assert (written.sum(axis=0) > 0).tolist() == [True] * 4 + [False] * 8
    slot, time = np.nonzero(np.arange(LENGTH) < np.full((NUM_TRAIN, 1), 5))
    frames = [before.observation[slot, np.maximum(time - 1, 0)], before.observation[slot, time]]
    policies, values = _search_by_hand()(host.params, np.concatenate(frames, axis=-1), mask[slot])
    policy, value = before.stored["policy"].copy(), before.stored["value"].copy()
    unit = muzero_model.unit(host.params)
    policy[slot, time], value[slot, time] = policies, unit * values
    np.testing.assert_allclose(after.stored["policy"][written], policy[written], atol=1e-6)
    np.testing.assert_allclose(after.stored["value"][written], value[written], rtol=1e-5, atol=1e-5)
    old = {name: before.stored[name][written] for name in ("policy", "value", "target_version")}
    assert metrics == pytest.approx(
        {
            "refresh_age": np.mean(6 - old["target_version"]),
            "reanalyse_policy_change": np.mean(abs(policy[written] - old["policy"]).sum(axis=1)) / 2,
            "reanalyse_value_change": np.mean(abs(value[written] - old["value"])),
            "refreshed_share": written.sum() / BATCH,
        },
        rel=1e-4,
    )
    assert metrics["reanalyse_policy_change"] > 0.01
    for name in ("policy", "value", "target_version"):
        before.stored[name][written] = after.stored[name][written]
    jax.tree.map(np.testing.assert_array_equal, after, before)


@pytest.mark.thorough
def test_targets_that_are_young_are_left_alone() -> None:
    host = _gumbel()
    before = host.filled()
    after, metrics = host.reanalyse(before, version=MIN_AGE)  # the oldest targets are of version 0
    jax.tree.map(np.testing.assert_array_equal, after, before)
    assert set(metrics.values()) == {0.0}
    after, _ = host.reanalyse(before, version=MIN_AGE + 1)
    assert set(after.stored["target_version"][:, 0].tolist()) == {MIN_AGE + 1}


def test_calls_differ_by_their_number_alone() -> None:
    host = _gumbel()
    one, again, other = (host.reanalyse(host.filled(), version=9, num_reanalyses=number)[0] for number in (3, 3, 4))
    jax.tree.map(np.testing.assert_array_equal, one, again)
    both = (one.stored["target_version"] == 9) & (other.stored["target_version"] == 9) & (one.weight > 0)
    assert both.any() and not np.array_equal(one.stored["policy"][both], other.stored["policy"][both])


def test_every_device_draws_its_share_from_its_own_rings() -> None:
    host = _gumbel()
    rings = host.filled()
    rings.weight[:2] = 0.0  # the first device has nothing
    after, metrics = host.reanalyse(rings, version=100)
    reanalysed = (after.stored["target_version"] == 100).sum(axis=1)
    assert reanalysed[:2].tolist() == [0, 0] and (reanalysed[2:] > 0).all()
    assert metrics["refreshed_share"] == reanalysed.sum() / BATCH <= 0.5


# Windows of several positions --------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("num_devices", [1, 2])
def test_a_target_may_follow_from_several_positions(num_devices: int) -> None:
    """Here from the sum of the rewards on the way to the next three rows, as far as the episode goes."""

    def compute(params: Any, windows: windowing.Windows, key: jax.Array) -> Any:
        reward = jnp.where(windows.valid, windows.reward, 0.0)[:, 1:]
        target = jnp.sum(reward, axis=1) + 100 * windows.observation[types.OBSERVATION][:, 1, 0]
        return {"target": target}, {"change": jnp.abs(target - windows.stored["target"][:, 0])}

    reanalyse = base.Reanalyse(per_insert=1.0, batch_size=400, min_age=0, length=4, observe=(0, 3), compute=compute)
    setup = fake_agent.make_setup(fake_agent.make(reanalyse=reanalyse), num_devices)
    act, actor = acting.make_act(setup), states.init_actor(setup)
    params = states.init_train(setup, 0).params
    for number in range(7):
        batch, _ = fake_agent.batch(
            setup, [0, 1, 2, 3], reward=2.0**number, observation=number, terminated=number == 4, first=number == 0
        )
        actor, _ = act(fake_agent.SEED, params, actor, batch, steps.counters(0, 3, number))
    before = jax.tree.map(np.array, actor.rings)
    rings, metrics = steps.make_reanalyse(setup)(fake_agent.SEED, params, actor.rings, steps.counters(28, 10, 0))
    # Rows 0 to 3 see at most the rewards up to row 4, which ends the episode; row 5 that of row 6.
    expected = [2 + 4 + 8 + 300, 4 + 8 + 16 + 400, 8 + 16 + 400, 16 + 400, 0, 64 + 600, 0]
    after = jax.tree.map(np.array, rings)
    np.testing.assert_allclose(after.stored["target"][:, :7], [expected] * 4)
    version = after.stored["target_version"][:, :7].tolist()
    assert version == [[10, 10, 10, 10, 3, 10, 3]] * 4  # the last row of an episode and the newest are not steps
    assert float(metrics["refresh_age"]) == pytest.approx(7.0)
    # Each of the 20 rows was drawn, in 400 times, and written once.
    assert float(metrics["refreshed_share"]) == pytest.approx(20 / 400)
    assert float(metrics["change"]) == pytest.approx(np.mean([x for x in expected if x]), rel=1e-5)
    for name in ("target", "target_version"):
        before.stored[name][:] = after.stored[name]
    jax.tree.map(np.testing.assert_array_equal, after, before)


# The agent's part --------------------------------------------------------------------------------------------------


def _windows() -> windowing.Windows:
    """Returns 16 windows of one position, all alike."""
    row = np.zeros((16, 1), np.float32)
    no, slot = np.zeros((16, 1), bool), np.zeros(16, np.int32)
    stored: Any = {"policy": np.zeros((16, 1, 3), np.float32), "value": row}
    arrays: Any = (row, no, no, no, stored, ~no, np.ones(16, np.float32), slot, slot)
    return windowing.Windows({types.OBSERVATION: np.ones((16, 1, 2), np.float32)}, row, *arrays)


@pytest.mark.thorough
def test_gumbel_samples_its_actions_with_the_papers_noise_however_acting_explores() -> None:
    """With two of three actions considered the noise decides which; PUCT's search by hand, above, has none."""

    def found(**search: options.Value) -> np.ndarray:
        reanalyse = muzero.make(_config(**search), SPEC, "cpu").reanalyse
        assert reanalyse is not None
        targets, changes = jax.jit(reanalyse.compute)(_gumbel().params, _windows(), jax.random.key(0))
        assert set(targets) == {"policy", "value"}
        assert set(changes) == {"reanalyse_policy_change", "reanalyse_value_change"}
        return np.asarray(targets["policy"])

    paper, wide, narrow = found(), found(search__gumbel_scale=4.0), found(search__gumbel_scale=0.1)
    assert len(np.unique(paper, axis=0)) > 1
    np.testing.assert_array_equal(wide, paper)
    assert not np.array_equal(narrow, paper)


@pytest.mark.thorough
def test_rings_hold_more_only_where_positions_are_reanalysed() -> None:
    off, on = _config(reanalyse__per_insert=0.0), _config()

    def stored(config: configs.Config, spec: types.EnvSpec) -> set[str]:
        return set(states.abstract_actor(_setup(config, spec, 1)).rings.stored)

    usual = {"action", "policy", "value", "version"}
    assert stored(off, SPEC) == stored(off, MASKED) == usual
    assert stored(on, SPEC) == {*usual, "target_version"}
    assert stored(on, MASKED) == {*usual, "target_version", "legal"}
    assert muzero.make(off, SPEC, "cpu").reanalyse is None
    agent = muzero.make(on, MASKED, "cpu")
    assert agent.stored["legal"] == sources.Stored((3,), np.dtype(bool))
    mask = np.array([[True, False, True], [False, True, True]])
    inputs: Any = base.Inputs(
        observation={types.OBSERVATION: np.ones((2, 2), np.float32)},
        reward=np.zeros(2, np.float32),
        first=np.ones(2, bool),
        terminated=np.zeros(2, bool),
        action_mask=mask,
        action_mode=np.full(2, types.EXPLORE),
        slot=np.arange(2),
        num_slots=2,
        task=np.zeros(2, np.int32),
    )
    _, outputs = jax.jit(agent.act)(_gumbel().params, agent.initial_memory(2), inputs, jax.random.key(0))
    assert outputs.stored["legal"].tolist() == mask.tolist()
