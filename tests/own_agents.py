"""Environments of several agents, a parallel one and one by turns: agents end early, by chance, as the seed says."""

from typing import ClassVar

import gymnasium
import numpy as np
import pettingzoo
from gymnasium import spaces
from pettingzoo.utils import conversions

NAMES = ("ant", "bee", "cat")


class Herd(pettingzoo.ParallelEnv):
    """An agent sees its age and its place; action 0 ends its episode one time in four, others one time in twenty.

    unequal: later agents see more numbers and have more actions. masks: infos forbid action 0 at odd ages. late: the
    last agent is born with the second step. limit: steps, whereupon all are truncated.
    """

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 5}
    names: ClassVar = NAMES

    def __init__(self, unequal=False, masks=False, late=False, limit=15, render_mode=None):
        self.possible_agents = list(self.names)
        self.render_mode = render_mode
        self._masks, self._late, self._limit = masks, late, limit
        self._actions = {name: 2 + unequal * number for number, name in enumerate(self.names)}

    def observation_space(self, agent):
        return spaces.Box(0, 100, (self._actions[agent],), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(self._actions[agent])

    def reset(self, seed=None, options=None):
        self._random, self._age = np.random.default_rng(seed), 0
        self.agents = list(self.names[:-1] if self._late else self.names)
        return self._shown(self.agents), self._infos(self.agents)

    def step(self, actions):
        assert set(actions) == set(self.agents)
        self._age += 1
        ends = {name: bool(self._random.random() < (0.05 if action else 0.25)) for name, action in actions.items()}
        born = [self.names[-1]] if self._late and self._age == 2 else []
        rewards = {name: 1.0 + action for name, action in actions.items()} | dict.fromkeys(born, 0.5)
        seen = [*actions, *born]
        cuts = dict.fromkeys(seen, self._age >= self._limit)
        self.agents = [name for name in seen if not (ends.get(name) or cuts[name])]
        return self._shown(seen), rewards, ends, cuts, self._infos(seen)

    def render(self):
        return np.full((8, 8, 3), self._age, np.uint8)

    def close(self):
        pass

    def _shown(self, agents):
        full = {name: np.full(self._actions[name], self.names.index(name), np.float32) for name in agents}
        for seen in full.values():
            seen[0] = self._age
        return full

    def _infos(self, agents):
        if not self._masks:
            return {name: {} for name in agents}
        legal = {name: np.ones(self._actions[name], np.int8) for name in agents}
        for mask in legal.values():
            mask[0] = self._age % 2 == 0
        return {name: {"action_mask": mask} for name, mask in legal.items()}


class Pack(Herd):
    """Four agents, of which the later ones live longer: they end their episodes less often."""

    names: ClassVar = (*NAMES, "dog")

    def step(self, actions):
        safe = {name: max(action, min(1, self.names.index(name))) for name, action in actions.items()}
        return super().step(safe)


class Teams(pettingzoo.ParallelEnv):
    """Two against two: who says the symbol that it sees gets a point for its side, which the other side loses.

    A match ends by time. weight: of a point of the left side. absent: agents that never move.
    """

    metadata: ClassVar = {"render_modes": []}
    possible_agents: ClassVar = ["left_0", "left_1", "right_0", "right_1"]

    def __init__(self, limit=4, weight=1.0, absent=()):
        self._limit, self._weight, self._absent = limit, weight, absent

    def observation_space(self, agent):
        return spaces.Box(0, 1, (3,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        self._random, self._age = np.random.default_rng(seed), 0
        self.agents = [name for name in self.possible_agents if name not in self._absent]
        return self._shown(), {name: {} for name in self.agents}

    def step(self, actions):
        hits = {name: float(action == self._symbols[name]) for name, action in actions.items()}
        left, right = (sum(hit for name, hit in hits.items() if name.startswith(side)) for side in ("left", "right"))
        gains = {"left": self._weight * (left - right), "right": right - left}
        self._age += 1
        seen, is_over = list(self.agents), self._age == self._limit
        self.agents = [] if is_over else seen
        rewards = {name: gains[name.partition("_")[0]] for name in seen}
        return (
            self._shown(),
            rewards,
            dict.fromkeys(seen, False),
            dict.fromkeys(seen, is_over),
            {name: {} for name in seen},
        )

    def close(self):
        pass

    def _shown(self):
        self._symbols = {name: int(self._random.integers(3)) for name in self.possible_agents}
        return {name: np.eye(3, dtype=np.float32)[symbol] for name, symbol in self._symbols.items()}


def teams_in_turn():
    """Returns Teams by turns."""
    return conversions.parallel_to_aec(Teams())


class Round(pettingzoo.AECEnv):
    """By turns agents say 0 or 1, never 2; who repeats the number shown is out with -1, and the last one gets 1."""

    metadata: ClassVar = {"render_modes": []}

    def __init__(self, limit=30):
        super().__init__()
        self.possible_agents = list(NAMES)
        self._limit = limit

    def observation_space(self, agent):
        mask = spaces.Box(0, 1, (3,), np.int8)
        return spaces.Dict(observation=spaces.Box(0, 1, (2,), np.float32), action_mask=mask)

    def action_space(self, agent):
        return spaces.Discrete(3)

    def observe(self, agent):
        shown = np.eye(2, dtype=np.float32)[self._number]
        return {"observation": shown, "action_mask": np.array([1, 1, 0], np.int8)}

    def reset(self, seed=None, options=None):
        self._random, self._num_turns = np.random.default_rng(seed), 0
        self.agents, self.agent_selection = list(NAMES), NAMES[0]
        self.rewards, self._cumulative_rewards = dict.fromkeys(NAMES, 0.0), dict.fromkeys(NAMES, 0.0)
        self.terminations, self.truncations = dict.fromkeys(NAMES, False), dict.fromkeys(NAMES, False)
        self.infos = {name: {} for name in NAMES}
        self._number = int(self._random.integers(2))

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        assert action in (0, 1)
        following = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self.rewards[agent] = -1.0 if action == self._number else 0.25
        self.terminations[agent] = action == self._number
        left = [name for name in self.agents if not self.terminations[name]]
        if len(left) == 1:
            self.rewards[left[0]] += 1.0
            self.terminations[left[0]] = True
        self._num_turns += 1
        if self._num_turns >= self._limit:
            self.truncations = dict.fromkeys(self.agents, True)
        self._number = int(self._random.integers(2))
        self._accumulate_rewards()
        self.agent_selection = following
        self._deads_step_first()


class Alone(Herd):
    """One agent."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.possible_agents = list(NAMES[:1])

    def reset(self, seed=None, options=None):
        super().reset(seed)
        self.agents = list(NAMES[:1])
        return self._shown(self.agents), self._infos(self.agents)


class Nameless(Herd):
    """It does not tell who may come."""

    def __init__(self):
        super().__init__()
        del self.possible_agents


def make_other():
    """Returns no environment of PettingZoo."""
    return gymnasium.make("CartPole-v1")


def make_mixed():
    """Returns an environment with agents that no network fits."""
    env = Herd()
    env.action_space = lambda agent: spaces.Discrete(2) if agent == "ant" else spaces.Box(-1, 1, (2,), np.float32)
    return env
