"""The agent interface, as every agent of the table keeps it: shapes, determinism, masks, updates, refusals."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import agent_cases  # beside this file: see conftest.py
import golden
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import table as agents
from seedzero.api import conformance
from seedzero.config import config as configs
from seedzero.config import options
from seedzero.core import errors, types
from seedzero.networks import inputs as network_inputs
from seedzero.ops import statistics

_MUZERO: Mapping[str, options.Value] = {
    "run.agent": "muzero",
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "search.num_simulations": 3,
    "muzero.unroll_steps": 2,
    "muzero.n_step": 2,
}
_VTRACE: Mapping[str, options.Value] = {
    "run.agent": "vtrace",
    "vtrace.width": 8,
    "vtrace.unroll_length": 4,
    "vtrace.batch_size": 4,
}
_APEX: Mapping[str, options.Value] = {"run.agent": "apex", "apex.width": 8}
_R2D2: Mapping[str, options.Value] = {
    "run.agent": "r2d2",
    "r2d2.width": 8,
    "r2d2.lstm_width": 6,
    "r2d2.burn_in": 2,
    "r2d2.sequence_length": 4,
    "r2d2.period": 3,
    "r2d2.n_step": 2,
}
_PPO: Mapping[str, options.Value] = {
    "run.agent": "ppo",
    "ppo.width": 8,
    "ppo.unroll_length": 4,
    "ppo.batch_size": 4,
    "ppo.num_epochs": 2,
}
_SAC: Mapping[str, options.Value] = {"run.agent": "sac", "sac.width": 8}
VARIANTS: Mapping[str, Mapping[str, options.Value]] = {
    "muzero": _MUZERO,
    "muzero with everything": {
        **_MUZERO,
        "network.frame_stack": 3,
        "network.normalize_pixels": True,
        "muzero.target_network_updates": 5,
        "muzero.consistency_weight": 1.0,
        "muzero.value_prefix": True,
        "explore.epsilon": 0.3,
        "explore.first_steps": 6,
        "reanalyse.per_insert": 1.0,
        "replay.priority_alpha": 0.6,
    },
    "muzero with a policy gradient": {**_MUZERO, "muzero.policy_gradient_weight": 0.5},
    "vtrace": _VTRACE,
    "vtrace with everything": {
        **_VTRACE,
        "vtrace.frame_stack": 3,
        "vtrace.normalize_pixels": True,
        "vtrace.lstm_width": 6,
        "vtrace.clip_reward": 1.0,
        "vtrace.popart": True,
    },
    "apex": _APEX,
    "apex with everything": {
        **_APEX,
        "apex.frame_stack": 3,
        "apex.normalize_pixels": True,
        "apex.rescale_values": True,
        "apex.clip_reward": 1.0,
        "replay.priority_alpha": 0.6,
    },
    "r2d2": _R2D2,
    "r2d2 with everything": {
        **_R2D2,
        "r2d2.frame_stack": 3,
        "r2d2.normalize_pixels": True,
        "r2d2.clip_reward": 1.0,
        "replay.priority_alpha": 0.6,
    },
    "ppo": _PPO,
    "ppo with everything": {
        **_PPO,
        "ppo.frame_stack": 3,
        "ppo.normalize_pixels": True,
        "ppo.lstm_width": 6,
        "ppo.clip_value": 0.2,
        "ppo.clip_reward": 1.0,
        "ppo.decay_updates": 100,
        "ppo.decay_clip": True,
    },
    "sac": _SAC,
    "sac with everything": {**_SAC, "sac.frame_stack": 3, "sac.clip_norm": 1.0},
}
"""Each agent at its plainest, and with all that changes the shapes of what it stores, carries or looks at."""
_ARRAYS = [types.ArraySpec("image", (4, 5, 1), "uint8", 0, 1), types.ArraySpec("vector", (3,), "float32")]
_TEXT = types.ArraySpec("text", (12,), "uint8", 0, 255, text=True)
_VECTORS: Mapping[str, tuple[float, ...]] = {"action_low": (-2.0, 0.0), "action_high": (2.0, 1.0)}
SPECS: Mapping[str, types.EnvSpec] = {
    "vector": types.EnvSpec((3,), "float32", 4),
    "image and vector": types.EnvSpec.of_arrays(_ARRAYS, num_actions=3),
    "text": types.EnvSpec.of_arrays([*_ARRAYS, _TEXT], num_actions=3),
    "masked": types.EnvSpec((3,), "float32", 4, has_action_mask=True),
    "continuous": types.EnvSpec((3,), "float32", 0, **_VECTORS),
    "image and vector, continuous": types.EnvSpec.of_arrays(_ARRAYS, num_actions=0, **_VECTORS),
}
_SPECS_OF = {
    "vtrace with everything": ("text",),
    "ppo": ("masked", "continuous"),
    "ppo with everything": ("text",),
    "sac": ("continuous",),
    "sac with everything": ("image and vector, continuous",),
}
"""Sampled MuZero has tests of its own: `sampled_test.py`."""
_SLOW = ("muzero with a policy gradient",)  # muzero_policy_gradient_test.py acts and learns with it
CASES = [
    pytest.param(variant, spec, id=f"{variant}, {spec}", marks=pytest.mark.slow if variant in _SLOW else ())
    for variant in VARIANTS
    for spec in _SPECS_OF.get(variant, ("image and vector",) if variant.endswith("everything") else ("masked",))
]
"""Each agent at its plainest sees vectors with a mask; with everything it sees images beside vectors, and no mask."""
every_case = pytest.mark.parametrize(("variant", "spec_name"), CASES)


def _config(variant: str) -> configs.Config:
    return configs.override(configs.Config(), VARIANTS[variant])


@functools.cache
def _case(variant: str, spec_name: str) -> conformance.AgentCase:
    return conformance.case(agents.make, _config(variant), SPECS[spec_name])


def test_every_agent_of_the_table_is_here() -> None:
    assert {str(values["run.agent"]) for values in VARIANTS.values()} == set(agents.AGENTS)
    assert set(agents.AGENTS) == set(configs.agent_names())


@pytest.mark.parametrize("check", conformance.CHECKS)
@every_case
def test_an_agent_keeps_its_promises(variant: str, spec_name: str, check: str) -> None:
    conformance.CHECKS[check](_case(variant, spec_name))


@every_case
def test_a_single_reward_of_any_size_is_learned_or_refused_and_learning_goes_on(variant: str, spec_name: str) -> None:
    case = _case(variant, spec_name)
    for reward in (1e30, -3e38):
        huge = case.windows._replace(reward=case.windows.reward.at[0, 1].set(reward))
        before, _, metrics = case.update(case.state, huge, jax.random.key(1))
        assert metrics["num_rejected"] == 1 or np.isfinite(metrics["loss"])
        after, _, metrics = case.update(before, case.windows, jax.random.key(2))
        conformance._finite((before, after, metrics))
        assert metrics["num_rejected"] == 0 and not conformance.equal(after.params, before.params)


@every_case
def test_actor_critics_have_a_policy_and_a_search_is_refreshed_where_asked(variant: str, spec_name: str) -> None:
    case = _case(variant, spec_name)
    actor_critic = variant.startswith(("vtrace", "ppo")) and not case.spec.is_continuous
    assert (case.agent.policy is not None) == actor_critic
    is_refreshed = case.config.reanalyse.per_insert > 0 and variant.startswith("muzero")
    assert (case.agent.refresh is not None) == is_refreshed


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name.endswith("everything") and "sac" not in name])
def test_an_update_counts_the_pixels_that_it_saw(variant: str) -> None:
    case = _case(variant, "text" if variant.startswith(("vtrace", "ppo")) else "image and vector")

    def of_image(state: Any) -> statistics.Moments:
        found = getattr(state, "moments", None) or state.params[network_inputs.MOMENTS]
        moments: statistics.Moments = found["image"]
        return moments

    assert float(of_image(case.state).weight) == 0
    state, _, _ = case.update(case.state, case.windows, jax.random.key(1))
    moments = of_image(state)
    assert float(moments.weight) >= conformance.SLOTS
    assert np.any(moments.mean > 0) and np.all(moments.variance <= 0.25)  # of numbers 0 and 1


# Environments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", agents.AGENTS)
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
    config = _config(name)
    spec = dataclasses.replace(SPECS["vector"], **changes)
    has_actions = config.agent.PLAYS_CONTINUOUS if spec.is_continuous else config.agent.PLAYS_DISCRETE
    if spec.num_players <= config.agent.MAX_PLAYERS and has_actions:
        agent = agents.make(config, spec, "cpu")
        state = jax.eval_shape(agent.init, jax.random.key(0))
        inputs = agent_cases.inputs(jnp.ones((8, 3)), spec.num_actions)
        memory, key = agent.initial_memory(8), jax.random.key(0)
        _, outputs = jax.eval_shape(agent.act, agent.acting(state), memory, inputs, key)
        assert outputs.action.shape == (8, *spec.action_shape)
        return
    with pytest.raises(errors.ConfigError, match=rf"agent {name} .*{described}"):
        agents.make(config, spec, "cpu")


def test_a_refusal_names_an_agent_that_can(said: golden.Said) -> None:
    two = dataclasses.replace(SPECS["vector"], num_players=2)
    with pytest.raises(errors.ConfigError, match=r"vtrace .*--env=\S+ .*--agent=muzero") as raised:
        agents.make(_config("vtrace"), two, "cpu")
    said(raised.value)
    three = dataclasses.replace(two, num_players=3)
    with pytest.raises(errors.ConfigError, match=r"muzero .* 3 players"):
        agents.make(_config("muzero"), three, "cpu")
