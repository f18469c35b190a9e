"""Outcomes of chance in a search; tests/agents/alphazero_test.py has their shares over searches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.search import outcomes


def test_more_simulations_draw_more_outcomes_and_fewer_than_they_are() -> None:
    found = [outcomes.num_outcomes(number) for number in (1, 4, 32, 64, 256, 1024)]
    assert found == [1, 4, 32, 45, 91, 181]


@pytest.mark.thorough
def test_keys_follow_from_the_searchs_key_the_row_and_the_outcomes_so_far() -> None:
    roots = np.concatenate([outcomes.root_keys(jax.random.key(seed), 3) for seed in (0, 1)])
    drawn, behind = outcomes.outcome_keys(jnp.asarray(roots).repeat(4, axis=0), jnp.tile(jnp.arange(4), 6))
    every = np.concatenate([roots, jax.random.key_data(drawn), behind])
    assert len(np.unique(every, axis=0)) == len(every) == 6 + 24 + 24
    again, _ = outcomes.outcome_keys(outcomes.root_keys(jax.random.key(1), 5)[2:3], jnp.array([3]))
    assert again[0] == drawn[-1]  # the number of rows beside it changes nothing
