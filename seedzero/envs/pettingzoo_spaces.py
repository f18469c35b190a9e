"""Fits the spaces of an environment's agents to one network: they are equal, or padded to the largest.

Shape letters: E rows of one group, N numbers of an observation, A actions and D numbers of an action of the network.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from seedzero.core import errors, types
from seedzero.envs import gym_masks, gym_spaces

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
