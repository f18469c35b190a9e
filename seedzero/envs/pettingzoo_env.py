"""Plays PettingZoo's environments with several agents, parallel or in turn (AEC). Each row is an agent.

Shape letters: E rows of one group, S agents of an environment, A actions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces
from gymnasium.vector import utils

from seedzero.config import families, sections
from seedzero.core import errors, packages, packing, types, user_code
from seedzero.envs import env_base, gym_env, gym_masks, gym_protocol, gym_spaces


# Drives PettingZoo's parallel environments, and those in turn (AEC), through a common interface.
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


def moves_of(name: str, env: Any) -> AgentMoves:
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


# Fits the spaces of an environment's agents to one network: they are equal, or padded to the largest.
_PART = "observation"
"""The part of a Dict of observations next to `action_mask`, by PettingZoo's convention."""


class Spaces(NamedTuple):
    """The spaces of an agent as its environment declares them."""

    observation: spaces.Space[Any]
    action: spaces.Space[Any]


class Seat(NamedTuple):
    """An agent among those that share a network."""

    agent: Any  # as the environment names it
    own: Spaces
    has_mask_part: bool  # whether its observations include an action mask
    padded: Callable[[Any], Any]  # from an observation to one in `Shared.space`
    cut: Callable[[Any], Any]  # from a row of what `Shared.decode` returns to the agent's action

    @property
    def sizes(self) -> list[int]:
        """The numbers of values of each whole number in an action; empty for continuous actions."""
        return gym_spaces.action_sizes(self.own.action)


class Shared(NamedTuple):
    """The spaces that one network uses for all agents."""

    spec: types.EnvSpec  # its `has_action_mask` does not take infos into account
    seats: tuple[Seat, ...]
    space: spaces.Space[Any]  # of observations
    encode: gym_spaces.Coder  # from a batch of `space` to [E, *observation_shape]
    decode: gym_spaces.Coder  # from actions [E] or [E, D] to a batch


def share(name: str, found: Mapping[Any, Spaces], *, masks: bool) -> Shared:
    """Returns the spaces that one network can use for all agents of environment `name`.

    found: those of each agent, in order. masks: whether parts `action_mask` of observations are masks. Raises
    EnvironmentFailure for an unsupported space, or if one network cannot share the agents' spaces.
    """
    own = list(found.values())
    is_alike = all(one == own[0] for one in own)
    seen = [one.observation if is_alike else _without_mask(one.observation, masks=masks) for one in own]
    observation, action = _largest(seen), _largest([one.action for one in own], are_actions=True)
    if observation is None or action is None:
        raise errors.EnvironmentFailure(
            f"environment {name!r} has agents whose spaces one network cannot share: {described(found)}; expected "
            "equal ones, or flat Boxes or Discrete, which are padded to the largest: fix it in your own wrapper"
        )
    spec, encode, decode = gym_spaces.read(name, observation, action, masks=masks)
    seats = tuple(
        _seat(agent, spaces, shown, observation, masks=masks)
        for (agent, spaces), shown in zip(found.items(), seen, strict=True)
    )
    names = tuple(map(str, found)) if len(found) > 1 else ()
    is_masked = any(seat.has_mask_part for seat in seats) or any(one.action != action for one in own)
    has_mask = bool(spec.num_actions) and is_masked
    spec = dataclasses.replace(spec, has_action_mask=has_mask, tasks=names, seats=names, fixed_seats=bool(names))
    return Shared(spec, seats, observation, encode, decode)


def described(found: Mapping[Any, Spaces]) -> str:
    """Describes the spaces of each group of agents with equal spaces."""
    groups: list[tuple[Spaces, list[str]]] = []
    for agent, own in found.items():
        members = next((names for spaces, names in groups if spaces == own), None)
        if members is None:
            groups.append((own, [str(agent)]))
        else:
            members.append(str(agent))
    return "; ".join(f"{', '.join(names)}: {own.observation} and actions {own.action}" for own, names in groups)


def _without_mask(space: Any, *, masks: bool) -> spaces.Space[Any]:
    """Returns a space of observations without the mask; if only PettingZoo's conventional part is left, that part."""
    if not (masks and gym_masks.is_part(space)):
        return space  # type: ignore[no-any-return]
    rest: Any = gym_masks.without(space)
    return rest[_PART] if set(rest) == {_PART} else rest  # type: ignore[no-any-return]


def _seat(agent: Any, own: Spaces, seen: Any, shared: Any, *, masks: bool) -> Seat:
    """seen: its space of observations without padding. shared: the padded one."""
    takes_part = isinstance(own.observation, spaces.Dict) and not isinstance(seen, spaces.Dict)

    def padded(observation: Any) -> Any:
        value = observation[_PART] if takes_part else observation
        if seen == shared or not isinstance(seen, spaces.Box):
            return value
        full = np.zeros(shared.shape, shared.dtype)
        full[: len(value)] = value
        return full

    def cut(action: Any) -> Any:
        if not isinstance(own.action, spaces.Box) or own.action.shape == np.shape(action):
            return action
        return action[: own.action.shape[0]].astype(own.action.dtype)

    return Seat(agent, own, masks and gym_masks.is_part(own.observation), padded, cut)


def _largest(found: Sequence[Any], *, are_actions: bool = False) -> spaces.Space[Any] | None:
    """Returns the space that holds all given spaces, with padding, or None if there is none.

    are_actions: whether each number of continuous actions must have the same bounds in all of them.
    """
    first = found[0]
    if all(space == first for space in found):
        return first  # type: ignore[no-any-return]
    if all(isinstance(space, spaces.Discrete) and space.start == first.start for space in found):
        return max(found, key=lambda space: space.n)  # type: ignore[no-any-return]
    if not all(isinstance(space, spaces.Box) and len(space.shape) == 1 for space in found):
        return None
    size = max(space.shape[0] for space in found)
    dtype = np.result_type(*(space.dtype for space in found))
    bounds = []
    for name, joined in (("low", np.fmin), ("high", np.fmax)):
        rows = np.full((len(found), size), np.nan)
        for row, space in zip(rows, found, strict=True):
            row[: space.shape[0]] = getattr(space, name)
        if are_actions and (np.nanmin(rows, axis=0) != np.nanmax(rows, axis=0)).any():
            return None
        bounds.append(
            joined.reduce(rows if are_actions else np.nan_to_num(rows, nan=0.0, posinf=np.inf, neginf=-np.inf))
        )
    return spaces.Box(*(bound.astype(dtype) for bound in bounds), dtype=dtype.type)


# Adds the joint observation of an environment's agents, for a value that only training uses.
NAME = "joint_observation"
"""Name of the array, which only training sees."""


class Joint:
    """Adds the joint observation to a group's rows. spec: the group's spec with it."""

    def __init__(self, name: str, env: Any, spec: types.EnvSpec, num_rows: int) -> None:
        """Finds out how to join observations. env: a copy of the environment.

        Raises EnvironmentFailure if its agents' observations cannot be joined.
        """
        self._size = max(1, len(spec.seats))
        space = getattr(env, "state_space", None)
        space = space if isinstance(space, spaces.Box) else None
        self._has_state = space is not None
        if space is None and spec.packed:
            raise errors.EnvironmentFailure(
                f"environment {name!r} has observations of several arrays and no state_space, so there is no joint "
                "observation; give it a method state() and a Box state_space, or --ppo.central_value=false"
            )
        if space is not None:
            size, low, high = int(np.prod(space.shape)), float(np.min(space.low)), float(np.max(space.high))
        else:
            own = spec.arrays[0]
            size, low, high = self._size * int(np.prod(own.shape)), min(0.0, own.low), max(0.0, own.high)
        self._array = types.ArraySpec(NAME, (size,), "float32", low, high, training_only=True)
        self.spec = packing.add_training_only(spec, self._array)
        self._seen = np.zeros((num_rows, size // self._size if not self._has_state else 0), np.float32)
        # whether the row's last observation ended its episode, or there was none
        self._is_over = np.ones(num_rows, bool)

    def add(
        self, envs: Sequence[Any], observation: np.ndarray, shown: np.ndarray, final: np.ndarray, *, begins: bool
    ) -> np.ndarray:
        """Returns the bytes [E, ...] of observations with the joint one; agents that are out contribute zeros.

        envs: the copies of the rows. shown, final: [E] bool, for each row. begins: whether all episodes begin.
        """
        rows, number = len(observation), len(envs)
        if self._has_state:
            joint = np.stack([self._state(env) for env in envs])
        else:
            seen, is_over = self._seen[:rows], self._is_over[:rows]
            seen[is_over | begins] = 0.0
            seen[shown] = observation[shown].reshape(np.count_nonzero(shown), -1)
            is_over[:] = np.where(shown, final, is_over & (not begins))
            joint = seen.reshape(number, -1)
        packed = packing.pack((self._array,), {NAME: np.repeat(joint, rows // number, axis=0)})
        own = np.ascontiguousarray(observation).reshape(rows, -1).view(np.uint8)
        return np.concatenate([own, packed], axis=1)

    def _state(self, env: Any) -> np.ndarray:
        """Returns the environment's state as a vector. Raises Fault if its size is not the space's."""
        found = np.asarray(env.state(), np.float32).reshape(-1)
        if len(found) != self._array.shape[0]:
            raise gym_protocol.Fault(f"a state() of {len(found)} numbers; expected {self._array.shape[0]}")
        return found


_FUNCTION = "--env=pettingzoo:MODULE:FUNCTION"
_MADE_BY = ("parallel_env", "env")
"""Functions in PettingZoo's modules that make an environment; the first that exists is used."""


class PettingZoo:
    """E rows, the agents in copies of an environment: row g * S + s is agent s of copy g."""

    def __init__(
        self,
        name: str,
        make: Callable[[], Any],
        num_envs: int,
        *,
        masks: bool = True,
        joint: bool = False,
        moves: Callable[[str, Any], AgentMoves] = moves_of,
    ) -> None:
        """Makes as many copies as the rows need, at least one; the spec is complete after a reset.

        Args:
          name: for errors.
          masks: whether to use action masks.
          joint: whether to add the agents' joint observation.
          moves: returns an environment's `AgentMoves`.

        Raises EnvironmentFailure if an environment is not PettingZoo's or raises, or for unsupported spaces.
        """
        self._name, self._make, self._reads_masks, self.num_envs = name, make, masks, num_envs
        unmade = env_base.failures_of(f"environment {name!r} cannot be made, fix this first")
        with unmade, gym_env.quiet(), env_base.closed_on_error() as envs:
            envs.append(make())
            courses = [AgentCourse(moves(name, envs[0]))]
            self._spaces = _spaces_of(name, envs[0])
            size = len(self._spaces)
            for _ in range(size, num_envs, size):
                envs.append(make())
                self._check_alike(envs[-1])
                courses.append(AgentCourse(moves(name, envs[-1])))
            self.originals = [env.unwrapped for env in envs]
            env_base.check_distinct(name, self.originals)
            self._shared = share(name, self._spaces, masks=masks)
            spec, num_rows = self._shared.spec, size * len(envs)
            self._joint = Joint(name, envs[0], spec, num_rows) if joint else None
        self.spec, self._envs, self._courses = self._joint.spec if self._joint else spec, envs, courses
        self._places = {seat.agent: place for place, seat in enumerate(self._shared.seats)}
        self._checks = [gym_protocol.observation_check(seat.own.observation) for seat in self._shared.seats]
        self._has_mask: dict[Any, bool] = {}  # whether an agent shows masks, once it has had a row

    def reset(self, seeds: Sequence[int]) -> types.EnvStep:
        """Starts a new episode everywhere; the seed of a copy's first row determines all of its seeds.

        Raises EnvironmentFailure if the rows do not make whole copies, or an environment raises.
        """
        env_base.check_seeds(seeds, self.num_envs)
        size = len(self._places)
        env_base.check_whole(self.num_envs, size, f"environment {self._name!r} has {size} agents")
        return self._begin(self._courses, seeds[::size])

    def step(self, actions: np.ndarray) -> types.EnvStep:
        env_base.check_actions(actions, self.num_envs, self.spec)
        return self._step(self._courses, actions)

    def try_out(self) -> None:
        """Resets and steps the first copy; a reset must follow."""
        courses, size = self._courses[:1], len(self._places)
        mask = self._begin(courses, [0]).action_mask
        if self.spec.is_continuous:
            actions = np.tile(self.spec.action_bounds[0], (size, 1))
        else:
            actions = np.zeros(size, np.int32) if mask is None else mask.argmax(axis=1).astype(np.int32)
        self._step(courses, actions)

    def check_another(self) -> None:
        """Makes one more environment and raises EnvironmentFailure if its agents or spaces differ."""
        with env_base.failures_of(f"environment {self._name!r} cannot be made a second time"), gym_env.quiet():
            another = self._make()
            with env_base.closing(another):
                env_base.check_distinct(self._name, [*self.originals, another.unwrapped])
                self._check_alike(another)

    @property
    def different_spaces(self) -> str:
        """The agents' spaces in words, or "" if all are equal."""
        first, *others = self._spaces.values()
        return "" if all(own == first for own in others) else described(self._spaces)

    @property
    def frames_per_second(self) -> float | None:
        return gym_env.declared_speed(self._envs[0])

    def render(self) -> np.ndarray:
        return gym_env.rendered(self._name, self._envs[0])

    def close(self) -> None:
        env_base.close_all(self._envs)

    def _check_alike(self, env: Any) -> None:
        if (found := _spaces_of(self._name, env)) != self._spaces:
            before, now = map(described, (self._spaces, found))
            raise errors.EnvironmentFailure(
                f"environment {self._name!r} has other agents or spaces each time it is made, such as {before}, then "
                f"{now}; expected equal ones, because all share one network"
            )

    def _begin(self, courses: Sequence[AgentCourse], seeds: Sequence[int]) -> types.EnvStep:
        """Begins the first episode of each course; seeds: one for each."""
        with gym_env.quiet(), self._failures("reset"):
            seen = [course.begin(int(seed)) for course, seed in zip(courses, seeds, strict=True)]
        if self.spec.num_actions and self._reads_masks:
            has_mask = self._shared.spec.has_action_mask or courses[0].moves.shows_masks()
            self.spec = dataclasses.replace(self.spec, has_action_mask=has_mask)
        return self._rows(seen, "reset")

    def _step(self, courses: Sequence[AgentCourse], actions: np.ndarray) -> types.EnvStep:
        """Advances each course; actions: for all their rows."""
        taken, seats, size, seen = self._shared.decode(actions), self._shared.seats, len(self._places), []
        with self._failures("step"):
            for index, course in enumerate(courses):
                places = {agent: self._places[agent] for agent in course.moving}
                cut = {agent: seats[place].cut(taken[index * size + place]) for agent, place in places.items()}
                seen.append(course.step(cut))
        return self._rows(seen, "step")

    @contextlib.contextmanager
    def _failures(self, call: str) -> Iterator[None]:
        """Turns the environment's exceptions and faults into EnvironmentFailure."""
        with env_base.failures_of(f"environment {self._name!r} raised in {call}"):
            try:
                yield
            except gym_protocol.Fault as fault:
                raise errors.EnvironmentFailure(
                    f"environment {self._name!r} returned in {call} {fault}; fix it there, or in a wrapper that "
                    f"your own function returns: {_FUNCTION}"
                ) from None

    def _rows(self, seen: Sequence[Mapping[Any, AgentStep]], call: str) -> types.EnvStep:
        """Returns the rows of copies, each of which has shown some agents."""
        size, spec = len(self._places), self._shared.spec
        has_mask = self.spec.has_action_mask
        found = [
            (index * size + self._places.get(agent, 0), agent, each)
            for index, shown in enumerate(seen)
            for agent, each in shown.items()
        ]
        num_rows, rows = len(seen) * size, [row for row, _, _ in found]
        observation = np.zeros((num_rows, *spec.observation_shape), spec.observation_dtype)
        reward, shown = np.zeros(num_rows, np.float32), np.zeros(num_rows, bool)
        terminated, truncated = np.zeros(num_rows, bool), np.zeros(num_rows, bool)
        mask = np.zeros((num_rows, spec.num_actions), bool) if has_mask else None
        padded = []
        with self._failures(call):
            for row, agent, each in found:
                place = row % size
                try:
                    if agent not in self._places:
                        raise gym_protocol.Fault("an observation, but possible_agents lacks it")
                    self._checks[place](each.observation)
                    legal = self._legal(self._shared.seats[place], each)
                except gym_protocol.Fault as fault:
                    raise gym_protocol.Fault(f"for agent {agent!r} {fault}") from None
                if mask is not None:
                    mask[row, : len(legal)] = legal
                padded.append(self._shared.seats[place].padded(each.observation))
                shown[row], reward[row] = True, each.reward
                terminated[row], truncated[row] = each.terminated, each.truncated and not each.terminated
        space = self._shared.space
        empty: Any = utils.create_empty_array(space, len(padded))
        observation[rows] = self._shared.encode(utils.concatenate(space, padded, empty))
        if self._joint is not None:
            with self._failures("state"):
                ends, begins = terminated | truncated, call == "reset"
                observation = self._joint.add(self._envs[: len(seen)], observation, shown, ends, begins=begins)
        task = np.tile(np.arange(size, dtype=np.int32), len(seen)) if spec.seats else None
        return types.EnvStep(observation, reward, terminated, truncated, mask, task, shown if spec.seats else None)

    def _legal(self, seat: Seat, seen: AgentStep) -> np.ndarray:
        """Returns the mask of an agent's own actions.

        In a terminal state all actions of the network are legal. After a truncation, where agents still compare
        actions, it is the agent's mask, or all of its actions if it shows none.
        """
        if not self.spec.num_actions:
            return np.zeros(0, bool)
        found = seen.observation[gym_masks.KEY] if seat.has_mask_part else seen.info.get(gym_masks.KEY)
        if not self._reads_masks:
            found = None
        is_masked = self._has_mask.setdefault(seat.agent, found is not None)
        if seen.terminated:
            return np.ones(self.spec.num_actions, bool)
        is_wrong = (found is not None) != is_masked or (is_masked and not self.spec.has_action_mask)
        if is_wrong and not seen.truncated:
            raise gym_protocol.Fault(
                f"info[{gym_masks.KEY!r}] at times; expected it from the first reset on, or never ({gym_masks.IGNORE})"
            )
        if found is None:
            return np.ones(math.prod(seat.sizes), bool)
        try:
            mask = gym_masks.read(found, seat.sizes)
        except ValueError as error:
            raise gym_protocol.Fault(str(error)) from None
        if not mask.any() and not seen.truncated:
            raise gym_protocol.Fault(f"an {gym_masks.KEY} without a legal action, although its episode continues")
        return mask if mask.any() else ~mask


def make(name: str, settings: sections.EnvConfig, num_envs: int, *, render: bool = False) -> PettingZoo:
    """Returns E rows of the environment that a module or a user's function makes; raises as PettingZoo.

    name: MODULE, with a function `parallel_env` or `env` as PettingZoo's modules have, or MODULE:FUNCTION.
    """
    given = env_base.arguments(settings.kwargs, "arguments", '{"max_cycles": 100}')
    options = {**given, **(gym_env.drawing() if render else {})}
    with env_base.failures_of(f"environment 'pettingzoo:{name}' cannot be made, fix this first"), gym_env.quiet():
        function = _function(name)
    seen: dict[str, Any] = dict(masks=settings.action_mask, joint=settings.joint_observation)
    return PettingZoo(f"pettingzoo:{name}", lambda: function(**options), num_envs, **seen)


def check_id(name: str) -> None:
    """Raises ConfigError unless a name has the form MODULE or MODULE:FUNCTION; imports nothing."""
    user_code.check(name if ":" in name else f"{name}:{_MADE_BY[0]}")


def _function(name: str) -> Callable[..., Any]:
    """Returns the function that makes an environment. Raises EnvironmentFailure if it, or a package, is missing."""
    module = name.partition(":")[0]
    for offer in families.of("pettingzoo").offers:
        is_asked = offer.module == module.partition(".")[0] or offer.module == "pettingzoo"
        if is_asked and importlib.util.find_spec(offer.module) is None:
            raise errors.EnvironmentFailure(
                f"environment 'pettingzoo:{name}' needs {offer.module}, which is not installed here: "
                f"{packages.install_command(*offer.needs)}"
            )
    try:
        check_id(name)
        if ":" in name:
            return user_code.load(name)
        found = (user_code.find(f"{name}:{function}") for function in _MADE_BY)
        if (function := next(filter(callable, found), None)) is not None:
            return function
    except errors.ConfigError as error:
        raise errors.EnvironmentFailure(f"environment pettingzoo:{error}") from None
    raise errors.EnvironmentFailure(
        f"environment 'pettingzoo:{name}': module {module!r} has no function {' or '.join(map(repr, _MADE_BY))}, as "
        f"PettingZoo's modules have; give the name of another one, {_FUNCTION}"
    )


def _spaces_of(name: str, env: Any) -> dict[Any, Spaces]:
    """Returns the spaces of an environment's agents. Raises EnvironmentFailure if it does not list agents."""
    agents = list(getattr(env, "possible_agents", None) or ())
    if not agents:
        raise errors.EnvironmentFailure(
            f"environment {name!r} lists no possible_agents; expected the names of all agents that an episode may "
            "have, each of which gets a row: set it in __init__"
        )
    found = {agent: Spaces(env.observation_space(agent), env.action_space(agent)) for agent in agents}
    for agent, own in found.items():
        if not all(isinstance(space, spaces.Space) for space in own):
            raise errors.EnvironmentFailure(
                f"environment {name!r} has for agent {agent!r} the spaces {tuple(own)}; expected gymnasium's"
            )
    return found
