"""Drives PettingZoo's parallel environments, and those in turn (AEC), through a common interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from seedzero.core import errors
from seedzero.envs import gym_protocol


class AgentStep(NamedTuple):
    """An agent's observation, with its reward and ends."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]

    @property
    def is_last(self) -> bool:
        return self.terminated or self.truncated


class AgentMoves(Protocol):
    """An environment in which every agent that is shown moves next, unless its episode is over."""

    def reset(self, seed: int) -> dict[Any, AgentStep]:
        """Begins an episode; returns the observations of the agents that move first. Raises `gym_protocol.Fault`."""

    def step(self, actions: Mapping[Any, Any]) -> dict[Any, AgentStep]:
        """Takes an action for each agent that moves; returns the next movers, and the agents whose episodes end."""

    def shows_masks(self) -> bool:
        """Returns whether any agent's info has an action mask, after a reset."""


class ParallelMoves:
    """All living agents move at the same time."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._infos: Mapping[Any, Mapping[str, Any]] = {}
        self._kept: set[Any] = set()  # agents whose episodes are over, and which have not left `agents` since

    def reset(self, seed: int) -> dict[Any, AgentStep]:
        self._kept.clear()
        observations, self._infos = _values(self._env.reset(seed=seed), "observations", "infos")
        return {
            agent: AgentStep(_of(observations, "observation", agent), 0.0, False, False, self._info(agent))
            for agent in self._env.agents
        }

    def step(self, actions: Mapping[Any, Any]) -> dict[Any, AgentStep]:
        observations, rewards, terminations, truncations, self._infos = _values(
            self._env.step(dict(actions)), "observations", "rewards", "terminations", "truncations", "infos"
        )
        living, shown = list(self._env.agents), {}
        self._kept &= {*living}
        for agent in dict.fromkeys([*actions, *living]):
            if agent in self._kept:
                continue
            is_new = agent not in actions
            terminated, truncated = (
                gym_protocol.flag(name, flags.get(agent, False) if is_new else _of(flags, name, agent))
                for name, flags in (("termination", terminations), ("truncation", truncations))
            )
            reward = gym_protocol.number(rewards.get(agent, 0.0) if is_new else _of(rewards, "reward", agent))
            observation = _of(observations, "observation", agent)
            seen = AgentStep(observation, reward, terminated, truncated, self._info(agent))
            if agent not in living and not seen.is_last:
                raise gym_protocol.Fault(f"neither termination nor truncation of {agent!r}, which left `agents`")
            if seen.is_last and agent in living:
                self._kept.add(agent)
            shown[agent] = seen
        return shown

    def shows_masks(self) -> bool:
        return any("action_mask" in self._info(agent) for agent in self._infos)

    def _info(self, agent: Any) -> Mapping[str, Any]:
        return self._infos.get(agent) or {}


class TurnMoves:
    """One agent moves at a time: an agent-environment cycle (Terry et al. 2021, arXiv 2009.14471)."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._begun: set[Any] = set()  # living agents that have had a turn

    def reset(self, seed: int) -> dict[Any, AgentStep]:
        self._begun.clear()
        self._env.reset(seed=seed)
        return self._until_a_turn()

    def step(self, actions: Mapping[Any, Any]) -> dict[Any, AgentStep]:
        (action,) = actions.values()
        self._env.step(action)
        return self._until_a_turn()

    def shows_masks(self) -> bool:
        return any("action_mask" in (info or {}) for info in self._env.infos.values())

    def _until_a_turn(self) -> dict[Any, AgentStep]:
        """Returns the agent whose turn it is, if any, and all agents that died before it."""
        shown: dict[Any, AgentStep] = {}
        while self._env.agents:
            agent, num_living = self._env.agent_selection, len(self._env.agents)
            observation, reward, terminated, truncated, info = _values(
                self._env.last(), "observation", "reward", "terminated", "truncated", "info"
            )
            ends = gym_protocol.flag("terminated", terminated), gym_protocol.flag("truncated", truncated)
            seen = AgentStep(observation, gym_protocol.number(reward), *ends, info or {})
            if not seen.is_last:
                if agent in shown:
                    raise gym_protocol.Fault(
                        f"a turn of {agent!r} right after its end; expected another agent's first"
                    )
                self._begun.add(agent)
                return {**shown, agent: seen}
            shown[agent] = seen
            self._begun.discard(agent)
            self._env.step(None)
            if len(self._env.agents) >= num_living:
                raise gym_protocol.Fault(f"{agent!r}, whose episode is over, among `agents` after step(None)")
        if self._begun:
            names = ", ".join(sorted(map(repr, self._begun)))
            raise gym_protocol.Fault(f"an end of the episode without a last turn of {names}")
        return shown


class AgentCourse:
    """Plays the episodes of one environment in the form that rows of agents need.

    Attributes:
      moving: agents that move now; if there are none, the next step begins an episode.
    """

    def __init__(self, moves: AgentMoves) -> None:
        self.moves = moves
        self.moving: tuple[Any, ...] = ()
        self._generator = np.random.default_rng(0)
        # agent with a row and no end yet -> reward it is still owed, because a first row has none
        self._owed: dict[Any, float] = {}

    def begin(self, seed: int) -> dict[Any, AgentStep]:
        """Begins the first episode; the seed determines those of all episodes. See `step`."""
        self._generator, self.moving = np.random.default_rng(seed), ()
        return self.step({})

    def step(self, actions: Mapping[Any, Any]) -> dict[Any, AgentStep]:
        """Takes an action for each mover, or begins an episode; returns the agents that have a row now.

        An agent that ends without having had a turn gets no row; one that is back after its end begins an episode.
        Raises `gym_protocol.Fault`.
        """
        begins = not self.moving
        if begins:
            self._owed = {}
            seen = self.moves.reset(int(self._generator.integers(2**31)))
        else:
            seen = self.moves.step(actions)
        shown = {}
        for agent, each in seen.items():
            if agent in self._owed:
                reward, self._owed[agent] = each.reward + self._owed[agent], 0.0
            elif each.is_last:
                continue
            else:
                reward, self._owed[agent] = 0.0, each.reward
            if each.is_last:
                del self._owed[agent]
            shown[agent] = each._replace(reward=reward)
        self.moving = tuple(agent for agent, each in shown.items() if not each.is_last)
        if begins and not self.moving:
            raise gym_protocol.Fault("no living agent")
        return shown


def of(name: str, env: Any) -> AgentMoves:
    """Returns the moves of environment `name`. Raises EnvironmentFailure if it is not PettingZoo's."""
    from pettingzoo.utils import env as kinds

    if isinstance(env, kinds.ParallelEnv):
        return ParallelMoves(env)
    if isinstance(env, kinds.AECEnv):
        return TurnMoves(env)
    raise errors.EnvironmentFailure(
        f"environment {name!r} is {gym_protocol.described(env)}; expected PettingZoo's ParallelEnv or AECEnv, or give "
        "one of Gymnasium's by --env=python:MODULE:FUNCTION"
    )


def _values(found: Any, *names: str) -> tuple[Any, ...]:
    """Checks the number of returned values. Raises Fault for any other number."""
    if not (isinstance(found, tuple) and len(found) == len(names)):
        raise gym_protocol.Fault(f"{gym_protocol.described(found)}; expected ({', '.join(names)})")
    return found


def _of(values: Mapping[Any, Any], what: str, agent: Any) -> Any:
    """Returns an agent's value in a dict. Raises Fault if it has none."""
    if not isinstance(values, Mapping) or agent not in values:
        raise gym_protocol.Fault(f"no {what} of agent {agent!r}")
    return values[agent]
