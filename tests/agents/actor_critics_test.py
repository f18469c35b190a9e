"""What PPO and V-trace have in common: which steps count, padding, masks, acting, and what the queue holds."""

from __future__ import annotations

import functools
from typing import Any

import actor_critic_cases as cases  # beside this file: see conftest.py
import agent_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import agent_table, base, ppo, vtrace
from seedzero.config import options
from seedzero.core import types

NAMES = ("vtrace", "ppo")
every_agent = pytest.mark.parametrize("name", NAMES)
_LAST = (np.array([1, 2]), np.array([2, 1]))
"""Rows and positions of the unrolls' last observations of an episode."""


@pytest.mark.thorough
@every_agent
def test_what_follows_an_episodes_last_observation_is_no_step(name: str) -> None:
    """Neither the action there, nor its probability, nor the reward of the first row behind it counts."""
    config, windows = cases.make_config(name), cases.make_windows(name)
    gradient, expected = cases.gradient_and_metrics(config, windows)
    action, chance = windows.stored["action"], "logits" if name == "vtrace" else "log_prob"
    more = jnp.array([3.0, -3.0, 0.0]) if name == "vtrace" else 5.0
    changed = agent_cases.store(
        windows,
        action=action.at[_LAST].set((action[_LAST] + 1) % 3),
        **{chance: windows.stored[chance].at[_LAST].add(more)},
    )
    changed = changed._replace(reward=windows.reward.at[_LAST[0], _LAST[1] + 1].set(100.0))
    found, metrics = cases.gradient_and_metrics(config, changed)
    assert metrics == expected
    np.testing.assert_array_equal(found.w, gradient.w)


@every_agent
def test_values_count_beyond_truncations_and_not_beyond_terminal_ends(name: str) -> None:
    config, windows = cases.make_config(name), cases.make_windows(name)
    gradient, expected = cases.gradient_and_metrics(config, windows)

    def moved(b: int, t: int) -> Any:
        """PPO's values are stored, V-trace's follow from what it sees."""
        if name == "ppo":
            changed = agent_cases.store(windows, value=windows.stored["value"].at[b, t].add(1.0))
        else:
            changed = agent_cases.show(windows, agent_cases.shown(windows).at[b, t].add(1.0))
        return cases.gradient_and_metrics(config, changed)

    found, metrics = moved(1, 2)
    assert metrics["loss"] == expected["loss"]
    np.testing.assert_array_equal(found.v, gradient.v)
    assert moved(2, 1)[1]["loss"] != expected["loss"]


@pytest.mark.thorough
@pytest.mark.parametrize("fill", [3.0, np.inf, np.nan])
@every_agent
def test_padding_changes_nothing_whatever_is_in_it(name: str, fill: float) -> None:
    config, windows = cases.make_config(name), cases.make_windows(name)
    more = agent_cases.padded(windows, fill)
    more = more._replace(weight=more.weight * 4 / 3)  # the means of weights stay 1, as a queue gives them
    expected, metrics = cases.update(config, windows)
    found, padded_metrics = cases.update(config, more)
    assert int(found.num_rejected) == 0
    for key, value in metrics.items():
        np.testing.assert_allclose(padded_metrics[key], value, rtol=1e-4, atol=1e-6, err_msg=key)
    for one, other in zip(found.params, expected.params, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@every_agent
def test_a_batch_of_padding_alone_moves_nothing(name: str) -> None:
    """Not even PPO's second epoch, behind an update that left momentum."""
    config = cases.make_config(name, **({"num_epochs": 2} if name == "ppo" else {}))
    windows = cases.make_windows(name)
    trained, _ = cases.update(config, windows)
    after, metrics = cases.update(config, windows._replace(weight=jnp.zeros(3)), state=trained)
    if name == "ppo":
        assert agent_cases.equal(after.opt_state, trained.opt_state)
    assert agent_cases.equal(after.params, trained.params)
    assert metrics["loss"] == metrics["grad_norm"] == metrics["num_rejected"] == 0


# Acting -------------------------------------------------------------------------------------------------------------


@functools.cache
def _jitted(name: str, spec: types.EnvSpec) -> Any:
    parts = cases.linear_parts(cases.make_config(name), spec)

    def act(params: cases.Linear, inputs: base.Inputs, key: jax.Array) -> base.Outputs:
        if name == "vtrace":
            return vtrace._act(parts, params, (), inputs, key)[1]
        return ppo._act(parts, ppo.PpoActing(params, None), ppo.PpoMemory(), inputs, key)[1]

    return jax.jit(act)


@every_agent
def test_training_samples_from_the_policy_and_evaluation_takes_the_likeliest_action(name: str) -> None:
    observation = np.tile(np.array([[1.0, -1.0]], np.float32), (4096, 1))
    inputs = agent_cases.inputs(observation, action_mode=np.arange(4096) < 4000)
    outputs = _jitted(name, cases.SPEC)(cases.params(), inputs, jax.random.key(0))
    logits, action = np.array([1.1, -0.7, 0.6]), np.asarray(outputs.action)
    probability = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(np.bincount(action[:4000], minlength=3) / 4000, probability, atol=0.03)
    assert (action[4000:] == 0).all()
    np.testing.assert_array_equal(outputs.stored["action"], action)
    if name == "vtrace":
        np.testing.assert_allclose(outputs.stored["logits"][0], logits, rtol=1e-5)
    else:
        np.testing.assert_allclose(outputs.stored["log_prob"], np.log(probability)[action], rtol=1e-4)
        np.testing.assert_allclose(outputs.stored["value"], 1.1, rtol=1e-5)


@every_agent
def test_illegal_actions_are_never_chosen(name: str) -> None:
    # The illegal one has by far the largest logit.
    params = cases.params()._replace(w=np.array([[0.0, 0.0, 50.0], [0.0, 0.0, 50.0]], np.float32))
    mask = np.tile(np.array([[True, True, False], [False, True, False]]), (200, 1))
    inputs = agent_cases.inputs(np.ones((400, 2)), action_mask=mask, action_mode=np.arange(400) < 200)
    outputs = _jitted(name, cases.MASKED)(params, inputs, jax.random.key(0))
    action = np.asarray(outputs.action)
    assert (action[1::2] == 1).all() and set(action[:200:2].tolist()) == {0, 1} and (action[200::2] == 0).all()
    np.testing.assert_array_equal(outputs.stored["legal"], mask)


@pytest.mark.parametrize(
    ("name", "spec", "changes", "stored"),
    [
        ("vtrace", cases.SPEC, {}, {"logits"}),
        ("vtrace", cases.MASKED, {"lstm_width": 6}, {"logits", "legal", "state", "last_action"}),
        ("ppo", cases.MASKED, {}, {"log_prob", "value", "legal"}),
        ("ppo", cases.VECTORS, {"reward__normalize": True}, {"log_prob", "value", "return"}),
    ],
)
def test_the_queue_the_memory_and_what_is_stored_are_as_configured(
    name: str, spec: types.EnvSpec, changes: dict[str, options.Value], stored: set[str]
) -> None:
    more = {"unroll_length": 7, "batch_size": 6, "max_lag": 3, "wait_seconds": 2.5, "frame_stack": 2, **changes}
    agent = agent_table.make(cases.make_config(name, **more), spec, "cpu")
    assert (agent.data.length, agent.data.batch_size, agent.data.max_lag, agent.data.wait_seconds) == (7, 6, 3, 2.5)
    assert agent.stack == 2 and agent.reanalyse is None
    assert set(agent.stored) == {"action", *stored} and agent.stored["action"].shape == spec.action_shape
    shapes = {
        "lstm_width": [(5, 12), (5,)],  # state, last action
        "reward__normalize": [(5,)],
    }
    memory = jax.tree.leaves(agent.initial_memory(5))
    assert [x.shape for x in memory] == [shape for change in changes for shape in shapes[change]]
    assert not any(np.any(x) for x in memory)
