"""Windows whose targets an update searches anew before it learns from them."""

from __future__ import annotations

import agent_cases  # beside this file: see conftest.py
import jax
import muzero_cases as cases
import numpy as np
import pytest

from seedzero.agents import muzero, muzero_model
from seedzero.config import configs
from seedzero.core import types

NUM_POSITIONS = 3
"""Of the loss: the sampled one and two unrolled ones."""


def _config(share: float, target_updates: int = 0) -> configs.Config:
    changes = dict(reanalyse__fresh_share=share, muzero__target_network_updates=target_updates)
    return cases.make_config(optimizer__learning_rate=0.01, search__gumbel_scale=0.0, **changes)


@pytest.mark.thorough
@pytest.mark.parametrize(("share", "num_fresh"), [(0.3, 2), (0.0, 0)])
def test_the_share_of_windows_has_what_a_search_of_its_observations_finds(share: float, num_fresh: int) -> None:
    config = _config(share)
    parts = muzero_model.make_parts(config, cases.SPEC, "cpu")
    windows = cases.make_windows(config, 5)
    params = jax.jit(lambda key: jax.tree.map(lambda x: x + 0.1, muzero_model.init(parts, key)))(jax.random.key(0))
    fresh = jax.jit(lambda windows, key: muzero._freshen(parts, params, windows, key))(windows, jax.random.key(1))
    observation = np.asarray(windows.observation[types.OBSERVATION])[:num_fresh, :NUM_POSITIONS].reshape(-1, 4)
    if num_fresh:
        inputs = agent_cases.inputs(observation, action_mode=np.zeros(len(observation), bool))
        found = jax.jit(muzero.make(config, cases.SPEC, "cpu").act)(params, (), inputs, jax.random.key(2))[1].stored
    for name in ("policy", "value"):
        there, before = np.asarray(fresh.stored[name]), np.asarray(windows.stored[name])
        np.testing.assert_array_equal(there[num_fresh:], before[num_fresh:])
        np.testing.assert_array_equal(there[:, NUM_POSITIONS:], before[:, NUM_POSITIONS:])
        if num_fresh:
            flat = there[:num_fresh, :NUM_POSITIONS].reshape(found[name].shape)
            np.testing.assert_allclose(flat, found[name], rtol=1e-4, atol=1e-5)


def test_a_fresh_window_needs_the_observations_of_its_searches_and_bootstraps() -> None:
    assert muzero.make(_config(0.5), cases.SPEC, "cpu").data.observe == (0, 1, 2, 3, 4)
    assert muzero.make(_config(0.0), cases.SPEC, "cpu").data.observe == (0,)


@pytest.mark.thorough
def test_stale_policies_and_values_are_not_learned() -> None:
    """Two replays that differ in all that acting stored teach the same; only actions and rewards count."""
    config = _config(1.0, target_updates=2)
    windows = cases.make_windows(config, 5)
    stale = agent_cases.store(
        windows, policy=np.roll(windows.stored["policy"], 1, axis=-1), value=np.full((4, 5), 9.0, np.float32)
    )
    state = cases.init(config)
    one, other = (cases.update(config, state, each)[0].params for each in (windows, stale))
    assert agent_cases.equal(one, other) and not agent_cases.equal(one, state.params)
