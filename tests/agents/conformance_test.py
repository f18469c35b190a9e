"""The agent interface, as every agent of the table keeps it: shapes, determinism, masks, updates, refusals."""

from __future__ import annotations

import dataclasses
from typing import Any

import agent_cases  # beside this file: see conftest.py
import conformance_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import agent_table
from seedzero.api import conformance
from seedzero.config import configs
from seedzero.core import errors
from seedzero.networks import observations
from seedzero.ops import statistics

_SPECS_OF = {
    "vtrace with everything": ("text",),
    "ppo": ("masked", "continuous"),
    "ppo with everything": ("text",),
    "alphazero": ("rules",),
    "alphazero with everything": ("rules",),
    "sac": ("continuous",),
    "sac with everything": ("image and vector, continuous",),
}
"""Sampled MuZero has tests of its own: `sampled_test.py`."""
_SLOW = ("muzero with a policy gradient",)  # muzero_policy_gradient_test.py acts and learns with it
CASES = [
    pytest.param(variant, spec, id=f"{variant}, {spec}", marks=pytest.mark.slow if variant in _SLOW else ())
    for variant in cases.VARIANTS
    for spec in _SPECS_OF.get(variant, ("image and vector",) if variant.endswith("everything") else ("masked",))
]
every_case = pytest.mark.parametrize(("variant", "spec_name"), CASES)


@pytest.mark.thorough
@pytest.mark.parametrize("check", conformance.CHECKS)
@every_case
def test_an_agent_keeps_its_promises(variant: str, spec_name: str, check: str) -> None:
    conformance.CHECKS[check](cases.case(variant, spec_name))


_IN_EVERYTHING = ("muzero with a memory", "muzero with chance")


@pytest.mark.parametrize(
    ("variant", "spec_name"),
    [
        pytest.param(*of.values, id=of.id, marks=(*of.marks, pytest.mark.thorough))
        if of.values[0] in _IN_EVERYTHING
        else of
        for of in CASES
    ],
)
def test_a_single_reward_of_any_size_is_learned_or_refused_and_learning_goes_on(variant: str, spec_name: str) -> None:
    case = cases.case(variant, spec_name)
    for reward in (1e30, -3e38):
        huge = case.windows._replace(reward=case.windows.reward.at[0, 1].set(reward))
        before, _, metrics = case.update(case.state, huge, jax.random.key(1))
        assert metrics["num_rejected"] == 1 or np.isfinite(metrics["loss"])
        after, _, metrics = case.update(before, case.windows, jax.random.key(2))
        conformance._finite((before, after, metrics))
        assert metrics["num_rejected"] == 0 and not conformance.equal(after.params, before.params)


@every_case
def test_actor_critics_have_a_policy_and_a_search_is_refreshed_where_asked(variant: str, spec_name: str) -> None:
    case = cases.case(variant, spec_name)
    actor_critic = variant.startswith(("vtrace", "ppo")) and not case.spec.is_continuous
    assert (case.agent.policy is not None) == actor_critic
    is_refreshed = case.config.reanalyse.per_insert > 0 and variant.startswith("muzero")
    assert (case.agent.reanalyse is not None) == is_refreshed


@pytest.mark.parametrize(
    "variant", [name for name in cases.VARIANTS if name.endswith("everything") and name[:3] not in ("sac", "alp")]
)
def test_an_update_counts_the_pixels_that_it_saw(variant: str) -> None:
    case = cases.case(variant, "text" if variant.startswith(("vtrace", "ppo")) else "image and vector")

    def of_image(state: Any) -> statistics.Moments:
        found = getattr(state, "moments", None) or state.params[observations.MOMENTS]
        moments: statistics.Moments = found["image"]
        return moments

    assert float(of_image(case.state).weight) == 0
    state, _, _ = case.update(case.state, case.windows, jax.random.key(1))
    moments = of_image(state)
    assert float(moments.weight) >= conformance.SLOTS
    assert np.any(moments.mean > 0) and np.all(moments.variance <= 0.25)  # of numbers 0 and 1


# Environments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in configs.agent_names() if name != "alphazero"])  # it plays by rules
@pytest.mark.parametrize(
    ("changes", "described"),
    [
        ({"num_players": 2}, "2 players"),
        ({"num_players": 3}, "3 players"),
        ({"num_actions": 0, "action_low": (-1.0,), "action_high": (1.0,)}, "continuous actions"),
        ({}, "discrete actions"),
    ],
    ids=["two players", "three players", "continuous", "discrete"],
)
def test_unsuitable_environments_are_refused_by_name_and_others_are_played(
    name: str, changes: dict[str, Any], described: str
) -> None:
    config = cases.config(name)
    spec = dataclasses.replace(cases.SPECS["vector"], **changes)
    has_actions = config.agent.PLAYS_CONTINUOUS if spec.is_continuous else config.agent.PLAYS_DISCRETE
    if spec.num_players <= config.agent.MAX_PLAYERS and has_actions:
        agent = agent_table.make(config, spec, "cpu")
        if spec.num_players == 1:  # the cases above act there, and sampled_test.py with MuZero's continuous actions
            return
        state = jax.eval_shape(agent.init, jax.random.key(0))
        inputs = agent_cases.inputs(jnp.ones((8, 3)), spec.num_actions)
        memory, key = agent.initial_memory(8), jax.random.key(0)
        _, outputs = jax.eval_shape(agent.act, agent.acting(state), memory, inputs, key)
        assert outputs.action.shape == (8, *spec.action_shape)
        return
    with pytest.raises(errors.ConfigError, match=rf"agent {name} .*{described}"):
        agent_table.make(config, spec, "cpu")
