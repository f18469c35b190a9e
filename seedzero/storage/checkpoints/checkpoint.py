"""Defines the parts of a checkpoint and their sizes in bytes, and restores the newest usable checkpoint."""

from __future__ import annotations

import pathlib
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from seedzero.config import sections
from seedzero.core import errors
from seedzero.replay import ring_store
from seedzero.storage.checkpoints import manifest, player_files, saved_files, segments, trees

STATE = "state"
OBSERVATION = "observation"
"""Parts besides the parameters: the training state, and the replay's observations, which are stored in segments."""

_REPLAY_PARTS = (saved_files.REPLAY, OBSERVATION)

_ON_DISK = {"stored": "extras"}
"""Arrays of the rings that have another name in checkpoints."""

_REPLAY_LIMIT_BYTES = 4 * 2**30
"""The largest replay that --checkpoint.replay=auto saves."""

MAX_COPY_BYTES = 2**30
"""Most bytes of copied replay rows that wait for the disk; a larger save waits until some are written."""


Like: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, trees.Tree]]
"""Maps the counters of a checkpoint to templates of its state's parts."""


class Needed(NamedTuple):
    """Bytes of a replay's observations (`frames`), of its other arrays, and of their copies that wait for the disk.

    They count all devices together, except `state_copies`, the training state on each device.
    """

    frames: int
    rest: int
    frame_copies: int
    rest_copies: int
    state_copies: int


class Newest(NamedTuple):
    """The newest checkpoint on the disk, on which the next save builds."""

    step: int | None = None  # updates done; None if there is no checkpoint
    ordinal: int = 0  # how many checkpoints the run has made so far
    replay: segments.SavedReplay | None = None  # its rows on the disk; None: the next save writes all rows
    unusable: frozenset[int] = frozenset()  # steps of checkpoints that are damaged, or that another host lacks


class Restored(NamedTuple):
    """A restored checkpoint, with `state` and `counters` as they were given to `save`."""

    step: int  # updates done
    state: dict[str, trees.Tree]
    counters: Mapping[str, Any]
    rings: ring_store.Replay | None  # None if it was not saved, or not asked for
    losses: list[str]  # a sentence about each damaged newer checkpoint, replay or frozen player
    newest: Newest  # for `Checkpointer.continue_from`: the next save builds on it
    frozen: Mapping[str, manifest.Files] = types.MappingProxyType({})  # the undamaged frozen players, by name
    state_sha256: str = ""  # as in `Manifest`


def saves_replay(config: sections.CheckpointConfig, rings_bytes: int) -> bool:
    """Returns whether checkpoints include a replay of this size."""
    return config.replay == "on" or (config.replay == "auto" and rings_bytes <= _REPLAY_LIMIT_BYTES)


def needed_bytes(state: Mapping[str, trees.Tree], rings: ring_store.Rings, *, is_saved: bool = True) -> Needed:
    """Returns the memory for the replay, and for copies while a checkpoint is written.

    `state` has the parts that `save` takes, of which shapes and dtypes are enough. `is_saved`: whether checkpoints
    include the replay.
    """
    frames, rest, state_bytes = map(trees.num_bytes, (rings.observation, all_but_observation(rings), parts_of(state)))
    if not is_saved:
        return Needed(frames, rest, 0, 0, state_bytes)
    copied = min(frames, MAX_COPY_BYTES + max(segments.CHUNK_BYTES, segments.row_bytes(rings.observation)))
    return Needed(frames, rest, copied, rest, state_bytes)


def by_player(states: Mapping[str, Mapping[str, trees.Tree]]) -> dict[str, trees.Tree]:
    """Returns the parts of all players' states by name; a single player's keep the names of a run without players.

    states: each player's parts by name.
    """
    alone = len(states) == 1
    return {
        part if alone else f"{saved_files.PLAYERS}/{player}/{part}": tree
        for player, parts in states.items()
        for part, tree in parts.items()
    }


def of_player(state: Mapping[str, trees.Tree], player: str) -> dict[str, trees.Tree]:
    """Returns one player's parts under the player's own names, from the result of `by_player`."""
    prefix = f"{saved_files.PLAYERS}/{player}/"
    if not any(name.startswith(f"{saved_files.PLAYERS}/") for name in state):
        return dict(state)
    return {name.removeprefix(prefix): tree for name, tree in state.items() if name.startswith(prefix)}


def parts_of(state: Mapping[str, trees.Tree]) -> dict[str, trees.Tree]:
    """Splits each player's state into two parts, each a directory of arrays: the parameters, and everything else."""
    parts: dict[str, dict[str, trees.Tree]] = {}
    for name, tree in state.items():
        player, _, part = name.rpartition("/")
        directory = saved_files.PARAMS if part == saved_files.PARAMS else STATE
        parts.setdefault(f"{player}/{directory}" if player else directory, {})[name] = tree
    return parts


def digest(state: Mapping[str, trees.Tree]) -> str:
    """Returns the manifest's `state_sha256` of a state, given as to `save` and copied by `trees.copy`."""
    return trees.digest(parts_of(state))


def described(rings: ring_store.Replay) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shape and dtype of all rings' observations as they are in files, by name."""
    first, *_ = found = [one.observation for one in ring_store.each(rings)]
    num_slots = sum(frames.shape[0] for frames in found)
    return {OBSERVATION: jax.ShapeDtypeStruct((num_slots, *first.shape[1:]), first.dtype)}


def all_but_observation(rings: ring_store.Rings) -> dict[str, Any]:
    """Returns all arrays of the rings but the observations, by name."""
    fields = rings._asdict()
    del fields["observation"], fields["mine"]  # the settings decide which player has which slots
    return {_ON_DISK.get(name, name): field for name, field in fields.items()}


def by_place(small: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the small arrays of all places' rings as one tree, under the places' numbers if there are several."""
    return small[0] if len(small) == 1 else {str(number): arrays for number, arrays in enumerate(small)}


def restore(
    directory: pathlib.Path,
    like: Like | Mapping[str, trees.Tree] | None,
    rings_like: ring_store.Replay | None,
    step: saved_files.Step = "last",
    *,
    needs_replay: bool = False,
    places: Sequence[int] = (),
) -> Restored | None:
    """Restores a checkpoint found by `saved_files.find`, or returns None for an empty directory.

    A damaged replay is skipped: training continues from the newest parameters and fills a new replay. Damaged frozen
    players are skipped, too.

    Args:
      directory: directory of the checkpoints.
      like: the parts that `save` takes, or a function that returns them for the checkpoint's counters; shapes, dtypes
        and shardings are enough. None: the state is not read.
      rings_like: the same for the replay; None: it is not read.
      needs_replay: whether only a checkpoint with a whole replay and all frozen players is accepted.
      places: the present `ring_store.PLACES`, or () for a single place. A replay saved for other places is skipped.

    Raises CheckpointError if no checkpoint is usable, ResumeError if the checkpoint does not fit or lacks the state.
    """
    if not saved_files.finished(directory / saved_files.STEPS):
        return None
    path, found, skipped = saved_files.find(directory, step, "all" if needs_replay else "state")
    state: dict[str, trees.Tree] = {}
    if like is not None:
        saved_files.check_has_state(directory.parent, found)
        wanted = like(found.counters) if callable(like) else like
        state = saved_files.load(
            path, found, wanted, tuple(name for name in found.arrays if name not in _REPLAY_PARTS)
        )
    rings, replay, losses = None, None, list(skipped.values())
    was, now = list(found.counters.get(ring_store.PLACES, ())), list(places)
    if rings_like is not None and found.has_replay and was != now:
        losses.append(
            f"the replay of checkpoint {found.step} lies in {len(was) or 1} place(s) of devices, and now there are "
            f"{len(now) or 1}{' of other sizes' * (len(was) == len(now))}: the players are dealt again"
        )
    elif rings_like is not None and found.has_replay:
        try:
            saved_files.verified(directory, path, scope="replay")
            rings, replay = _load_replay(directory, path, found, rings_like)
        except errors.CheckpointError as error:
            losses.append(f"the replay of checkpoint {found.step} is lost: {error}")
    frozen, problems = player_files.usable(directory, found.frozen)
    newest = Newest(found.step, found.ordinal, replay, frozenset(skipped))
    losses += problems
    return Restored(found.step, state, found.counters, rings, losses, newest, frozen, found.state_sha256)


def _load_small(path: pathlib.Path, found: manifest.Manifest, like: ring_store.Replay) -> list[dict[str, Any]]:
    """Returns the small arrays of each place's rings. With one place, the number of devices may have changed."""
    first, *more = ring_store.each(like)
    if more:
        every = [all_but_observation(one) for one in (first, *more)]
        arrays = saved_files.load(path, found, by_place(every), (saved_files.REPLAY,))
        return [arrays[str(number)] for number in range(len(every))]
    return [_load_small_of_one(path, found, first)]


def _load_small_of_one(path: pathlib.Path, found: manifest.Manifest, like: ring_store.Rings) -> dict[str, Any]:
    wanted, largest = all_but_observation(like), like.max_weight
    saved = next((tuple(leaf.shape) for leaf in found.arrays[saved_files.REPLAY] if leaf.path == ["max_weight"]), None)
    if largest is None or saved is None or saved == largest.shape:
        return saved_files.load(path, found, wanted, (saved_files.REPLAY,))
    one = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    wanted["max_weight"] = jax.ShapeDtypeStruct(saved, largest.dtype, sharding=one)
    small = saved_files.load(path, found, wanted, (saved_files.REPLAY,))
    same = np.resize(np.asarray(small["max_weight"]), largest.shape)  # every device has the same value
    return {**small, "max_weight": jax.device_put(same, largest.sharding)}


def _load_replay(
    directory: pathlib.Path, path: pathlib.Path, found: manifest.Manifest, like: ring_store.Replay
) -> tuple[ring_store.Replay, segments.SavedReplay]:
    trees.check_fits(found.arrays[OBSERVATION], described(like))
    small, each = _load_small(path, found, like), ring_store.each(like)
    root = directory / saved_files.SEGMENTS
    saved = segments.SavedReplay(
        cursors(small),
        tuple(segments.read_index(root, name, checksums) for name, checksums in found.segments.items()),
    )
    if missing := segments.num_missing(saved, each[0].weight.shape[1]):
        raise errors.CheckpointError(f"its segments lack {missing} rows")  # otherwise these rows would be zeros
    in_memory = {on_disk: name for name, on_disk in _ON_DISK.items()}
    parts = segments.by_place(saved, [len(one["cursor"]) for one in small])
    rings = []
    for one, arrays, part in zip(each, small, parts, strict=True):
        named = {in_memory.get(name, name): arrays[name] for name in all_but_observation(one)}
        rings.append(ring_store.Rings(observation=segments.restore(root, part, one.observation), **named))
    return ring_store.together(rings), saved


def cursors(small: Sequence[dict[str, Any]]) -> np.ndarray:
    """Returns the cursors, [S] int64, of all places' rings in their order, from the rings' small arrays."""
    return np.concatenate([np.asarray(arrays["cursor"]).astype(np.int64) for arrays in small])
