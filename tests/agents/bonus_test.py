"""A bonus of the user's own on PPO's rewards."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import actor_critic_cases as cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import bonus, ppo
from seedzero.core import errors
from seedzero.replay import windowing

_CODE = """
import jax.numpy as jnp
from seedzero.agents import bonus

def make(spec):
    def add(state, windows, axis_name):
        state = state + windows.weight.sum()
        return state, jnp.full(windows.reward[:, 1:].shape, 0.5)
    return bonus.Bonus(lambda key: jnp.zeros(()), add)

def wrong(spec):
    return 5

def short(spec):
    return bonus.Bonus(lambda key: (), lambda state, windows, axis_name: (state, windows.reward))

def raising(spec):
    raise KeyError("lost")

def never(spec):
    def init(key):
        raise ValueError("no state")
    return bonus.Bonus(init, None)
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "own_bonus.py").write_text(_CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("own_bonus", None)


def _rewards(**changes: Any) -> np.ndarray:
    """Returns advantages with a trace decay of 0 and values of 0: the rewards as PPO learns from them."""
    config = cases.make_config("ppo", trace_decay=0.0, reward__scale=3.0, reward__clip=2.0, **changes)
    windows = cases.make_windows("ppo")
    windows = windows._replace(stored={**windows.stored, "value": np.zeros_like(windows.stored["value"])})
    parts = cases.linear_parts(config)
    given = None
    if config.ppo.bonus:
        made = bonus.load(config.ppo.bonus, cases.SPEC)
        assert made is not None
        _, given = made.add(made.init(jax.random.key(0)), windows, None)
    return np.asarray(ppo._steps(parts, (), windows, given).advantage).reshape(cases.BATCH, cases.LENGTH)


@pytest.mark.thorough
def test_the_place_decides_whether_a_bonus_is_scaled_and_clipped() -> None:
    windows = cases.make_windows("ppo")
    is_step = ~np.asarray(windows.terminated | windows.truncated)[:, :-1]
    reward, plain = np.asarray(windows.reward)[:, 1:], _rewards()
    after, before = _rewards(bonus="own_bonus:make"), _rewards(bonus="own_bonus:make", bonus_place="before")
    np.testing.assert_allclose(after[is_step], (plain + 0.5)[is_step], rtol=1e-6)
    np.testing.assert_allclose(before[is_step], np.clip(3.0 * (reward + 0.5), -2.0, 2.0)[is_step], rtol=1e-6)


@pytest.mark.thorough
def test_the_state_learns_is_kept_and_is_refused_with_the_update() -> None:
    config = cases.make_config("ppo", bonus="own_bonus:make", lstm_width=0)
    agent = ppo.make(config, cases.SPEC, "cpu")
    state = jax.jit(agent.init)(jax.random.key(0))
    assert jax.tree.leaves(state.bonus) == [0.0] and "bonus" not in type(agent.acting(state))._fields
    update = jax.jit(lambda state, windows: agent.update(state, windows, jax.random.key(1), None))
    windows: windowing.Windows = cases.make_windows("ppo")
    after, _, metrics = update(state, windows)
    assert after.bonus == 3.0 and metrics["bonus_mean"] == 0.5
    broken = windows._replace(reward=jnp.full_like(windows.reward, jnp.nan))
    refused, _, metrics = update(after, broken)
    assert refused.bonus == 3.0 and refused.num_rejected == 1 and metrics["num_rejected"] == 1


def test_without_a_bonus_nothing_is_imported() -> None:
    assert bonus.load("", cases.SPEC) is None and "own_bonus" not in sys.modules


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("wrong", r"own_bonus\.py:\d+\) returns int; expected seedzero\.agents\.bonus\.Bonus\(init, add\)"),
        ("short", r"own_bonus\.py:\d+\): the bonus has the shape \(3, 5\); expected \(3, 4\)"),
        ("raising", r"raised KeyError: 'lost', at .*own_bonus\.py:\d+; fix it"),
        ("never", r"raised ValueError: no state, at .*own_bonus\.py:\d+; fix it"),
    ],
)
def test_a_bonus_that_fails_is_named_with_its_line(name: str, told: str) -> None:
    with pytest.raises(errors.ConfigError, match=rf"--ppo.bonus=own_bonus:{name} .*{told}"):
        agent = ppo.make(cases.make_config("ppo", bonus=f"own_bonus:{name}"), cases.SPEC, "cpu")
        state = agent.init(jax.random.key(0))
        agent.update(state, cases.make_windows("ppo"), jax.random.key(1), None)
