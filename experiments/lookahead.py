"""Compares MuZero's model of 2048 with the game's rules: its rewards, and play by values one step ahead.

    python experiments/lookahead.py RUN_DIR [--games=32] [--outcomes=6] [--step=N|best|last]

Plays with the policy network alone, and with the action whose reward plus discounted value of the next state is
highest: once as the rules give both (a mean of some outcomes of chance), once as the model predicts them (after its
likeliest code). The network's values are the same, so the difference is what the model's errors cost. The share of
the variance of rewards that the model explains is of all legal actions in the states of the policy's games. For
OpenSpiel's games of one player with chance.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.acting.actors import agent_choice, saved_agents
from seedzero.core import errors
from seedzero.envs import spiel
from seedzero.storage.checkpoints import run_dirs

_PREFIX = "spiel:"


class Tried(NamedTuple):
    """What the rules make of M moves."""

    place: np.ndarray  # [M] int, of its state among those given
    action: np.ndarray  # [M] int
    reward: np.ndarray  # [M]
    after: np.ndarray  # [M, ...] observations
    over: np.ndarray  # [M] bool


class Model(NamedTuple):
    """A run's model. N states have observations [N, ...]."""

    logits: Callable[[np.ndarray], np.ndarray]  # [N, A] of the policy
    value: Callable[[np.ndarray], np.ndarray]  # [N]
    step: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # rewards, and values of the next states, [N, A]
    discount: float


def make_model(saved: saved_agents.SavedAgent) -> Model:
    """Returns a run's model. Raises UsageError if it has none."""
    model, params = saved.agent.model, saved.params
    if model is None:
        raise errors.UsageError("the run's agent has no model; expected one of muzero")

    @jax.jit
    def predict(observation: jax.Array) -> tuple[jax.Array, jax.Array]:
        return model.predict(params, model.represent(params, {"observation": observation}))

    @jax.jit
    def step(observation: jax.Array) -> tuple[jax.Array, jax.Array]:
        hidden = model.represent(params, {"observation": observation})

        def of_action(action: int) -> tuple[jax.Array, jax.Array]:
            after, reward = model.dynamics(params, hidden, jnp.full(len(observation), action))
            return reward, model.predict(params, after)[1]

        found = [of_action(action) for action in range(saved.spec.num_actions)]
        rewards, values = zip(*found, strict=True)
        return jnp.stack(rewards, axis=1), jnp.stack(values, axis=1)

    def of_all(compute: Callable[[Any], Any]) -> Callable[[np.ndarray], Any]:
        def call(observation: np.ndarray) -> Any:
            padded = np.zeros((2 ** int(np.ceil(np.log2(len(observation)))), *observation.shape[1:]), np.float32)
            padded[: len(observation)] = observation  # few sizes, because each is compiled
            return jax.tree.map(lambda x: np.asarray(x)[: len(observation)], compute(padded))

        return call

    predicted = of_all(predict)
    return Model(lambda x: predicted(x)[0], lambda x: predicted(x)[1], of_all(step), model.discount)


def try_all(game: Any, states: Sequence[Any], outcomes: int, generator: np.random.Generator) -> Tried:
    """Returns every legal move of each state, with so many outcomes of chance."""
    rows = []
    for place, state in enumerate(states):
        for action in np.flatnonzero(game.legal_mask(state)):
            for _ in range(outcomes):
                after = game.apply(state, int(action), generator)
                reward = game.returns(after)[0] - game.returns(state)[0]
                rows.append((place, action, reward, game.observe(after), game.is_terminal(after)))
    return Tried(*(np.array(column) for column in zip(*rows, strict=True)))


def q_by_rules(tried: Tried, value: np.ndarray, discount: float, shape: tuple[int, int]) -> np.ndarray:
    """Returns [N, A] mean returns of moves, minus infinity if illegal; value: [M] of the states after them."""
    total, number = np.zeros(shape), np.zeros(shape)
    np.add.at(total, (tried.place, tried.action), tried.reward + discount * np.where(tried.over, 0.0, value))
    np.add.at(number, (tried.place, tried.action), 1)
    return np.where(number > 0, total / np.maximum(number, 1), -np.inf)


def explained(predicted: np.ndarray, real: np.ndarray) -> float:
    """Returns the share of the variance of real numbers [N] that predicted ones explain; 1 at best."""
    return float(1 - np.mean(np.square(predicted - real)) / np.var(real))


def play(
    game: Any,
    choose: Callable[[list[Any]], np.ndarray],
    num_games: int,
    generator: np.random.Generator,
) -> tuple[np.ndarray, list[Any]]:
    """Returns the games' scores [num_games], and the states of their moves.

    choose: N states -> numbers [N, A], of which the highest legal one is played.
    """
    states, seen = [game.initial(generator) for _ in range(num_games)], []
    while live := [number for number, state in enumerate(states) if not game.is_terminal(state)]:
        now = [states[number] for number in live]
        seen += now
        for number, state, row in zip(live, now, choose(now), strict=True):
            action = int(np.argmax(np.where(game.legal_mask(state), row, -np.inf)))
            states[number] = game.apply(state, action, generator)
    return np.array([game.returns(state)[0] for state in states]), seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=pathlib.Path)
    parser.add_argument("--games", type=int, default=32)
    parser.add_argument("--outcomes", type=int, default=6)
    parser.add_argument("--step", default="last")
    arguments = parser.parse_args()
    generator = np.random.default_rng(0)
    try:
        config = run_dirs.read_saved(arguments.run_dir).config
        spec = run_dirs.read_spec(arguments.run_dir)
        if spec is None or not config.env.id.startswith(_PREFIX) or spec.num_players > 1 or not spec.has_chance:
            raise errors.UsageError(f"a run with {config.env.id}; expected one of {_PREFIX}2048 with a checkpoint")
        step = int(arguments.step) if arguments.step.isdecimal() else arguments.step
        model = make_model(saved_agents.load(agent_choice.AgentChoice(arguments.run_dir, step), config, spec))
        game = spiel.Game(config.env.id.removeprefix(_PREFIX))
    except errors.Error as error:
        raise SystemExit(f"lookahead.py: error: {error}") from None

    def seen(states: Sequence[Any]) -> np.ndarray:
        return np.stack([game.observe(state) for state in states])

    def by_rules(states: Sequence[Any]) -> np.ndarray:
        tried = try_all(game, states, arguments.outcomes, generator)
        return q_by_rules(tried, model.value(tried.after), model.discount, (len(states), game.num_actions))

    def by_model(states: Sequence[Any]) -> np.ndarray:
        reward, value = model.step(seen(states))
        return reward + model.discount * value

    ways = {"the policy network": lambda states: model.logits(seen(states)), "the model": by_model, "rules": by_rules}
    visited: list[Any] = []
    for name, choose in ways.items():
        scores, states = play(game, choose, arguments.games, generator)
        visited = visited or states
        error = np.std(scores, ddof=1) / np.sqrt(len(scores))
        print(f"{name}: {np.mean(scores):.0f} ± {error:.0f} in {len(scores)} games", flush=True)
    chosen = [visited[number] for number in generator.permutation(len(visited))[:500]]
    tried = try_all(game, chosen, 1, generator)
    rewards, values = model.step(seen(chosen))
    predicted = rewards[tried.place, tried.action]
    print(f"rewards: {explained(predicted, tried.reward):.2f} of the variance explained, in {len(chosen)} states")
    by = by_rules(chosen)
    legal = np.isfinite(by)
    best = np.argmax(np.where(legal, rewards + model.discount * values, -np.inf), axis=1)
    print(f"the model's best action is that of the rules in {np.mean(best == np.argmax(by, axis=1)):.2f} of states")


if __name__ == "__main__":
    main()
