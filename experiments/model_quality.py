"""Measures what MuZero's model of a MinAtar game knows about the very next step.

    python experiments/model_quality.py RUN_DIR [--states=3000] [--step=N|best|last]

In states of random play each action is tried in a copy of the game. Where some actions end the game and others don't,
and where some earn a reward and others don't, the Q values of the model (its reward plus the discounted value of the
state that it imagines) should tell them apart. The share of pairs that they rank right is 0.5 for a model that knows
nothing, and 1 at best; a tie counts half. The games here have no sticky actions and grow no harder, unlike those that
agents learn from.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import pathlib
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.acting.actors import agent_choice, saved_agents
from seedzero.core import errors
from seedzero.storage.checkpoints import run_dirs

_PREFIX = "gym:MinAtar/"


class Choices(NamedTuple):
    """States, and what each action leads to. ends: [N, A] bool; reward: [N, A] float."""

    observation: np.ndarray
    ends: np.ndarray
    reward: np.ndarray


def make_game(env_id: str) -> Any:
    """Returns the game of an environment's id, without sticky actions.

    Raises:
      UsageError: it is not one of MinAtar's.
    """
    name, _, version = env_id.removeprefix(_PREFIX).rpartition("-v")
    if not env_id.startswith(_PREFIX) or version != "1":
        raise errors.UsageError(f"a run with {env_id}; expected {_PREFIX}GAME-v1")
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
    return importlib.import_module(f"minatar.environments.{snake}").Env(ramping=False)


_MOST_STEPS = 500_000


def choices(game: Any, num_states: int, seed: int) -> Choices:
    """Returns states of random play in which the actions differ in ends or rewards.

    Raises:
      UsageError: half a million steps had none, as in Freeway.
    """
    game.random = np.random.RandomState(seed)
    game.reset()
    found = list(_differing(game, num_states, seed))
    if not found:
        raise errors.UsageError(f"random play met no state whose actions differ in {_MOST_STEPS} steps")
    return Choices(*(np.array(part) for part in zip(*found, strict=True)))


def _differing(game: Any, num_states: int, seed: int) -> Iterator[tuple[np.ndarray, list[bool], list[float]]]:
    actions, choose = game.minimal_action_set(), random.Random(seed)
    for _ in range(_MOST_STEPS):
        tried = []
        for action in actions:
            after = copy.deepcopy(game)
            reward, ended = after.act(action)
            tried.append((bool(ended), float(reward)))
        if len(set(tried)) > 1:
            ends, rewards = zip(*tried, strict=True)
            yield np.array(game.state(), bool), list(ends), list(rewards)
            num_states -= 1
            if not num_states:
                return
        if game.act(choose.choice(actions))[1]:
            game.reset()


def share_ranked(q: np.ndarray, better: np.ndarray, worse: np.ndarray) -> tuple[float, int]:
    """Returns the share of pairs (better, worse) that q ranks right, a mean over states, and the number of states.

    Args:
      q, better, worse: [N, A].
    """
    shares = [
        np.mean(np.sign(row[high][:, None] - row[low][None]) + 1) / 2
        for row, high, low in zip(q, better, worse, strict=True)
        if high.any() and low.any()
    ]
    return float(np.mean(shares)) if shares else float("nan"), len(shares)


def q_values(saved: saved_agents.SavedAgent, observation: np.ndarray, num_actions: int) -> np.ndarray:
    """Returns the model's Q values [N, A] of observations [N, H, W, C]."""
    model = saved.agent.model
    if model is None:
        raise errors.UsageError("the run's agent has no model; expected one of muzero")

    @jax.jit
    def compute(params: Any, observation: jax.Array) -> jax.Array:
        hidden = model.represent(params, {"observation": observation})

        def of_action(action: jax.Array) -> jax.Array:
            after, reward = model.dynamics(params, hidden, jnp.full(len(observation), action))
            return reward + model.discount * model.predict(params, after)[1]

        return jnp.stack([of_action(jnp.int32(action)) for action in range(num_actions)], axis=1)

    return np.asarray(compute(saved.params, jnp.asarray(observation)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=pathlib.Path)
    parser.add_argument("--states", type=int, default=3_000)
    parser.add_argument("--step", default="last")
    arguments = parser.parse_args()
    try:
        config = run_dirs.read_saved(arguments.run_dir).config
        game = make_game(config.env.id)
        if config.network.frame_stack > 1:
            raise errors.UsageError(f"a run with --network.frame_stack={config.network.frame_stack}; expected 1")
        spec = run_dirs.read_spec(arguments.run_dir)
        if spec is None:
            raise errors.UsageError(f"{arguments.run_dir} has no checkpoint yet")
        step = int(arguments.step) if arguments.step.isdecimal() else arguments.step
        saved = saved_agents.load(agent_choice.AgentChoice(arguments.run_dir, step), config, spec)
        states = choices(game, arguments.states, seed=0)
        q = q_values(saved, states.observation, states.ends.shape[1])
    except errors.Error as error:
        raise SystemExit(f"model_quality.py: error: {error}") from None
    earns = states.reward > 0
    for name, better, worse in (
        ("going on above ends", ~states.ends & ~earns, states.ends & ~earns),
        ("rewards above nothing", earns & ~states.ends, ~earns & ~states.ends),
    ):
        share, number = share_ranked(q, better, worse)
        print(f"{name}: {share:.2f} of pairs ranked right, in {number} states")


if __name__ == "__main__":
    main()
