"""Plays PettingZoo's environments with several agents, parallel or in turn (AEC). Each row is an agent.

Shape letters: E rows of one group, S agents of an environment, A actions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import utils

from seedzero.config import families, sections
from seedzero.core import errors, packages, types, user_code
from seedzero.envs import (
    env_base,
    gym_env,
    gym_masks,
    gym_protocol,
    pettingzoo_joint,
    pettingzoo_moves,
    pettingzoo_spaces,
)

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
        moves: Callable[[str, Any], pettingzoo_moves.AgentMoves] = pettingzoo_moves.of,
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
            courses = [pettingzoo_moves.AgentCourse(moves(name, envs[0]))]
            self._spaces = _spaces_of(name, envs[0])
            size = len(self._spaces)
            for _ in range(size, num_envs, size):
                envs.append(make())
                self._check_alike(envs[-1])
                courses.append(pettingzoo_moves.AgentCourse(moves(name, envs[-1])))
            self.originals = [env.unwrapped for env in envs]
            env_base.check_distinct(name, self.originals)
            self._shared = pettingzoo_spaces.share(name, self._spaces, masks=masks)
            spec, num_rows = self._shared.spec, size * len(envs)
            self._joint = pettingzoo_joint.Joint(name, envs[0], spec, num_rows) if joint else None
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
        return "" if all(own == first for own in others) else pettingzoo_spaces.described(self._spaces)

    @property
    def frames_per_second(self) -> float | None:
        return gym_env.declared_speed(self._envs[0])

    def render(self) -> np.ndarray:
        return gym_env.rendered(self._name, self._envs[0])

    def close(self) -> None:
        env_base.close_all(self._envs)

    def _check_alike(self, env: Any) -> None:
        if (found := _spaces_of(self._name, env)) != self._spaces:
            before, now = map(pettingzoo_spaces.described, (self._spaces, found))
            raise errors.EnvironmentFailure(
                f"environment {self._name!r} has other agents or spaces each time it is made, such as {before}, then "
                f"{now}; expected equal ones, because all share one network"
            )

    def _begin(self, courses: Sequence[pettingzoo_moves.AgentCourse], seeds: Sequence[int]) -> types.EnvStep:
        """Begins the first episode of each course; seeds: one for each."""
        with gym_env.quiet(), self._failures("reset"):
            seen = [course.begin(int(seed)) for course, seed in zip(courses, seeds, strict=True)]
        if self.spec.num_actions and self._reads_masks:
            has_mask = self._shared.spec.has_action_mask or courses[0].moves.shows_masks()
            self.spec = dataclasses.replace(self.spec, has_action_mask=has_mask)
        return self._rows(seen, "reset")

    def _step(self, courses: Sequence[pettingzoo_moves.AgentCourse], actions: np.ndarray) -> types.EnvStep:
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

    def _rows(self, seen: Sequence[Mapping[Any, pettingzoo_moves.AgentStep]], call: str) -> types.EnvStep:
        """Returns the rows of copies, each of which has shown some agents."""
        size, spec = len(self._places), self._shared.spec
        has_mask = self.spec.has_action_mask
        found = [
            (index * size + self._places[agent], agent, each)
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

    def _legal(self, seat: pettingzoo_spaces.Seat, seen: pettingzoo_moves.AgentStep) -> np.ndarray:
        """Returns the mask of an agent's own actions.

        For its last observation, all actions of the network are legal.
        """
        if not self.spec.num_actions:
            return np.zeros(0, bool)
        found = seen.observation[gym_masks.KEY] if seat.has_mask_part else seen.info.get(gym_masks.KEY)
        if not self._reads_masks:
            found = None
        is_masked = self._has_mask.setdefault(seat.agent, found is not None)
        if seen.is_last:
            return np.ones(self.spec.num_actions, bool)
        if (found is not None) != is_masked or (is_masked and not self.spec.has_action_mask):
            raise gym_protocol.Fault(
                f"info[{gym_masks.KEY!r}] at times; expected it from the first reset on, or never ({gym_masks.IGNORE})"
            )
        if found is None:
            return np.ones(math.prod(seat.sizes), bool)
        try:
            mask = gym_masks.read(found, seat.sizes)
        except ValueError as error:
            raise gym_protocol.Fault(str(error)) from None
        if not mask.any():
            raise gym_protocol.Fault(f"an {gym_masks.KEY} without a legal action, although its episode continues")
        return mask


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


def _spaces_of(name: str, env: Any) -> dict[Any, pettingzoo_spaces.Spaces]:
    """Returns the spaces of an environment's agents. Raises EnvironmentFailure if it does not list agents."""
    agents = list(getattr(env, "possible_agents", None) or ())
    if not agents:
        raise errors.EnvironmentFailure(
            f"environment {name!r} lists no possible_agents; expected the names of all agents that an episode may "
            "have, each of which gets a row: set it in __init__"
        )
    found = {
        agent: pettingzoo_spaces.Spaces(env.observation_space(agent), env.action_space(agent)) for agent in agents
    }
    for agent, own in found.items():
        if not all(isinstance(space, spaces.Space) for space in own):
            raise errors.EnvironmentFailure(
                f"environment {name!r} has for agent {agent!r} the spaces {tuple(own)}; expected gymnasium's"
            )
    return found
