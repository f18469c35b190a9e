"""Makes windows: a first row and its successors in the same ring.

If the host keeps the frames, windows name the places of their frames, and `with_frames` adds what the host read.

Shape letters: B batch, J positions of a window, P positions whose observations are needed, Q rows before a window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from seedzero.core import types
from seedzero.ops import unpacking
from seedzero.replay import ring_store, sources


class Before(NamedTuple):
    """The Q rows before each of B windows, oldest first.

    They are valid from the first row of the window's episode; earlier ones are arbitrary.
    """

    observation: Mapping[str, jax.Array]  # {name: [B, Q, ...]}, like `Windows.observation`
    reward: jax.Array  # [B, Q], received on the way to each row
    first: jax.Array  # [B, Q] bool, true: the first observation of an episode or session
    # {name: [B, ceil(Q / every), ...]} as the agent stored it; where `every` > 1, beginning with their first kept row
    stored: dict[str, jax.Array]


class Windows(NamedTuple):
    """B windows: a row (position 0) and the J - 1 rows after it."""

    # {name: [B, P, *shape with the last axis times the stack]}, frames from oldest to newest on the last axis; frames
    # from before the episode repeat its first one. Past the last valid position they repeat it. Empty until the frames
    # are read
    observation: Mapping[str, jax.Array]
    places: jax.Array  # [B, Q + P, stack] int32, where these frames, and those before, are in the slot's ring
    reward: jax.Array  # [B, J], received on the way to each position
    terminated: jax.Array  # [B, J] bool
    truncated: jax.Array  # [B, J] bool
    first: jax.Array  # [B, J] bool, true: the first observation of an episode or session
    # {name: [B, ceil(J / every), ...]} as the agent stored it; where `every` > 1, beginning with position 0
    stored: dict[str, jax.Array]
    # [B, J] bool, true: the position belongs to the window, that is, to the episode of position 0, or to its session
    # if windows cross episodes. Other arrays hold arbitrary rows where it is false
    valid: jax.Array
    # [B] factor of the window's loss; 0: padding, or nothing to sample. In uniform sampling it makes the mean over all
    # shards an unbiased one over all their steps, and is 1 on a single shard. By priority, it is multiplied by the
    # importance weight, whose largest over the batches of all shards is 1
    weight: jax.Array
    slot: jax.Array  # [B] int32, local
    time: jax.Array  # [B] int32, position 0's place in the ring
    # [B] bool, whether `weight` is above 0; None: read `weight`. Known before the shards have heard of each other
    counted: jax.Array | None = None
    before: Before | None = None  # None: the agent asked for none (`Replay.before`)

    @property
    def counts(self) -> jax.Array:
        """[B] bool, false: padding, or nothing to sample."""
        return self.weight > 0 if self.counted is None else self.counted


def at(
    rings: ring_store.Rings,
    slot: jax.Array,
    time: jax.Array,
    *,
    length: int,
    observe: tuple[int, ...],
    stack: int,
    crosses_episodes: bool = False,
    before: int = 0,
) -> Windows:
    """Returns the windows that begin at given rows, with weight 1 and without frames.

    Args:
      slot: [B] int32.
      time: [B] int32, places in the ring; their frame stacks must still be there.
      length: J, the number of positions.
      observe: [P] positions whose observations are returned.
      stack: frames in one observation.
      crosses_episodes: as in `sources.Replay`.
      before: Q, the number of rows before the window; those of the episode, and their frame stacks, must still be
        there.
    """
    ring_length = rings.weight.shape[1]
    steps = jnp.arange(length, dtype=jnp.int32)
    rows = (slot[:, None], (time[:, None] + steps) % ring_length)
    newer = (rings.cursor[slot] - 1 - time) % ring_length
    starts = rings.first[rows] & (steps > 0)
    if crosses_episodes:
        final = rings.terminated[rows] | rings.truncated[rows]
        starts &= ~jnp.roll(final, 1, axis=1)  # a first row after a last one is not a cut
    valid = jnp.cumsum(starts | (steps > newer[:, None]), axis=1) == 0
    last = jnp.sum(valid, axis=1, dtype=jnp.int32) - 1
    seen = time[:, None] + jnp.minimum(jnp.asarray(observe, jnp.int32), last[:, None])
    earlier = None
    if before:
        back = time[:, None] + jnp.arange(-before, 0, dtype=jnp.int32)
        seen, behind = jnp.concatenate([back, seen], axis=1), (slot[:, None], back % ring_length)
        kept = {name: _stored(ring, slot, time - before, before, ring_length) for name, ring in rings.stored.items()}
        earlier = Before({}, rings.reward[behind], rings.first[behind], kept)
    return Windows(
        observation={},
        places=_places(rings, slot[:, None, None], seen, stack),
        reward=rings.reward[rows],
        terminated=rings.terminated[rows],
        truncated=rings.truncated[rows],
        first=rings.first[rows],
        stored={name: _stored(ring, slot, time, length, ring_length) for name, ring in rings.stored.items()},
        valid=valid,
        weight=jnp.ones(slot.shape),
        slot=slot,
        time=time,
        before=earlier,
    )


def from_data(rings: ring_store.Rings, slot: jax.Array, time: jax.Array, data: sources.Data, stack: int) -> Windows:
    """Returns the windows at given rows in the agent's form; shapes are those of `at`."""
    return at(
        rings,
        slot,
        time,
        length=sources.num_positions(data),
        observe=sources.observed_positions(data),
        stack=stack,
        crosses_episodes=sources.crosses_episodes(data),
        before=sources.num_before(data),
    )


def _stored(ring: jax.Array, slot: jax.Array, time: jax.Array, length: int, ring_length: int) -> jax.Array:
    every = ring_length // ring.shape[1]
    steps = jnp.arange(0, length, every, dtype=jnp.int32)
    if every > 1:
        time = time + -time % every  # windows begin at kept rows, but the rows before them may begin anywhere
    return ring[slot[:, None], (time[:, None] + steps) % ring_length // every]


def read(rings: ring_store.Rings, windows: Windows, packed: Sequence[types.ArraySpec] = ()) -> Windows:
    """Adds frames from rings in device memory to the windows. packed: `EnvSpec.packed`."""
    return with_frames(
        windows, ring_store.get_frames(rings.observation, windows.slot[:, None, None], windows.places), packed
    )


def with_frames(windows: Windows, frames: jax.Array, packed: Sequence[types.ArraySpec] = ()) -> Windows:
    """Adds observations to windows, given the frames [B, Q + P, stack, *observation_shape] at their places."""
    seen = {name: _stacked(array) for name, array in unpacking.unpack(packed, frames).items()}
    if windows.before is None:
        return windows._replace(observation=seen)
    num_before = windows.before.first.shape[1]
    earlier = windows.before._replace(observation={name: array[:, :num_before] for name, array in seen.items()})
    return windows._replace(observation={name: array[:, num_before:] for name, array in seen.items()}, before=earlier)


def _stacked(frames: jax.Array) -> jax.Array:
    """Converts frames [B, P, stack, *shape] to observations, with the stack's frames on the last axis."""
    if frames.ndim == 3:
        return frames
    batch, positions, stack, *shape = frames.shape
    return jnp.moveaxis(frames, 2, -2).reshape(batch, positions, *shape[:-1], stack * shape[-1])


def observed(windows: Windows, positions: int | slice) -> dict[str, jax.Array]:
    """Returns the observations at one position, {name: [B, ...]}, or at several, {name: [B, P, ...]}."""
    return {name: array[:, positions] for name, array in windows.observation.items()}


def _places(rings: ring_store.Rings, slot: jax.Array, time: jax.Array, stack: int) -> jax.Array:
    """Returns the places [B, P, stack] int32 of the frames of observations at `time` [B, P], oldest first."""
    length = rings.weight.shape[1]
    if stack == 1:
        return time[..., None] % length
    starts = rings.first[slot, (time[..., None] - jnp.arange(stack - 1)) % length]
    inside = jnp.cumsum(starts, axis=-1) == 0
    # [B, P, stack] steps back: 0, 1, 2, ... up to the episode's first row, which then repeats.
    back = jnp.cumsum(jnp.concatenate([jnp.zeros_like(inside[..., :1]), inside], -1), -1, dtype=jnp.int32)
    return (time[..., None] - back[..., ::-1]) % length
