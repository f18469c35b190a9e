"""Frames that the host keeps: the same bits as in device memory, and never those that acting has overwritten."""

from __future__ import annotations

import functools
import threading
from typing import Any, cast

import device_world
import fake_agent
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import muzero
from seedzero.config import configs
from seedzero.core import errors, types
from seedzero.device import batches, host_frames, meshes
from seedzero.learner.loop import places
from seedzero.replay import ring_store, sampling, sources, windowing

LENGTH = 40


def _world(num_devices: int, *, on_host: bool, ahead: bool = False) -> device_world.World:
    values = {**device_world.EVERYTHING, "muzero.consistency_weight": 1.0, "reanalyse.batch_size": 8}
    agent = muzero.make(configs.override(configs.Config(), values), device_world.IMAGES, "cpu")
    given: dict[str, Any] = {"num_evaluate": 4, "slot_length": LENGTH, "batch_size": 16, "ahead": ahead}
    agent = fake_agent.refreshing_after(agent, 0)
    setup = fake_agent.make_setup(agent, num_devices, spec=device_world.IMAGES, **given)
    return device_world.World(setup, on_host=on_host)


def _live(world: device_world.World) -> list[Any]:
    """Acts, learns and reanalyses in turn, beyond the rings' ends; returns what came of it."""
    found, random = list[Any](), np.random.default_rng(0)
    for step in range(LENGTH + 8):
        found.append(world.show([2, 0, 5] if step % 3 else [3, 1, 0, 2, 4, 7], random))
        if step > 4:
            found += [*world.update().values(), *world.reanalyse().values()]
    return found


def _whole(world: device_world.World) -> Any:
    """Returns the rings with all frames, in one layout."""
    rings = world.strategy.whole(world.actor.rings)
    if world.strategy.holds_frames:  # in the layout of a device
        everywhere = np.indices(rings.observation.shape[:2])
        rings = rings._replace(observation=ring_store.get_frames(rings.observation, *map(jnp.asarray, everywhere)))
    return jax.tree.map(np.asarray, rings)


@pytest.mark.thorough
def test_acting_learning_and_refreshing_give_the_same_bits_wherever_the_frames_are() -> None:
    """On two devices; tests/e2e/deterministic_run_test.py has the same for one."""
    device, host = (_world(2, on_host=on_host) for on_host in (False, True))
    assert _live(host) == _live(device)
    jax.tree.map(
        np.testing.assert_array_equal, (_whole(host), host.train.params), (_whole(device), device.train.params)
    )
    assert host.actor.rings.observation is None and _whole(host).observation.any()


def test_a_run_goes_on_behind_the_rows_that_came_back() -> None:
    before, after = (host_frames.HostFrames(_NUMBERED, _ONE, 4, meshes.sharded(meshes.make(1))) for _ in range(2))

    def write(frames: host_frames.HostFrames, *slots: int, number: int) -> None:
        batch = batches.padding(_NUMBERED, _ONE, 2)
        batch.slot[: len(slots)] = batch.ring[: len(slots)] = slots
        batch.observation[:] = number
        frames.write(batch)

    for number in range(1, 6):
        write(before, 0, *[1] * (number % 2), number=number)
    assert before.array[..., 0].tolist() == [[5, 2, 3, 4], [1, 3, 5, 0]]
    after.array[:] = before.array
    after.resume(np.array([5, 3]))
    for frames in (before, after):
        write(frames, 1, 0, number=6)
    assert before.array[..., 0].tolist() == after.array[..., 0].tolist() == [[5, 6, 3, 4], [1, 3, 5, 6]]


@pytest.mark.thorough
def test_programs_draw_ahead_what_acting_does_not_overwrite() -> None:
    world, random = _world(1, on_host=True, ahead=True), np.random.default_rng(0)
    assert isinstance(world.strategy, host_frames.FramesWithHost)
    frames = world.strategy.frames
    may_read, num_compared, read = threading.Semaphore(0), 0, frames.read
    before = frames.array

    def read_later(windows: windowing.Windows) -> jax.Array:
        nonlocal num_compared
        if threading.current_thread() is not threading.main_thread():
            assert may_read.acquire(timeout=60)
        found = read(windows)
        slot, places = np.asarray(windows.slot), np.asarray(windows.places)
        np.testing.assert_array_equal(np.asarray(found), before[slot[:, None, None], places])
        num_compared += 1
        return found

    frames.read = read_later  # type: ignore[method-assign]
    for _ in range(2 * LENGTH):
        world.show([0, 1, 2, 3], random)
    for _ in range(8):
        before = frames.array.copy()
        world.update()  # and the next windows are drawn
        for _ in range(host_frames.HOST_LAG):
            world.show([0, 1, 2, 3], random)
        may_read.release()
        while not world.strategy.is_ready:
            assert world.ready.acquire(timeout=60)
    world.close()
    assert num_compared == 1 + 8


# Drawn ahead of the update: rows that tell their own number ------------------------------------------------------

_NUMBERED = types.EnvSpec((1,), "int32", 2)
_ONE = batches.Layout(1, 2, 0)
_STACK, _SHORT = 2, 2 * (2 + host_frames.HOST_LAG)


class _Numbered:
    """Rings as short as they may be; a row's frame is its number, and so is an array beside it on the device."""

    def __init__(self) -> None:
        self.frames = host_frames.HostFrames(_NUMBERED, _ONE, _SHORT, meshes.sharded(meshes.make(1)))
        stored = {"number": sources.Stored((), np.dtype(np.int32))}
        self.rings = ring_store.create(_NUMBERED, stored, 2, _SHORT, holds_frames=False)
        self.number = self.num_draws = 0
        self.may_read = threading.Semaphore(0)
        self.is_ready = threading.Semaphore(0)
        read = self.frames.read

        def read_when_allowed(windows: windowing.Windows) -> jax.Array:
            if threading.current_thread() is not threading.main_thread():
                assert self.may_read.acquire(timeout=60)
            return read(windows)

        self.frames.read = read_when_allowed  # type: ignore[method-assign]
        self.seen: list[np.ndarray] = []
        self._write = jax.jit(functools.partial(ring_store.write, stack=_STACK))
        self._sample = jax.jit(
            functools.partial(
                sampling.sample,
                batch_size=64,
                replay=sources.Replay(length=1, observe=(0,)),
                capacity=10_000,
                stack=_STACK,
                lag=host_frames.HOST_LAG,
            )
        )
        self.strategy = host_frames.FramesWithHost(self.frames, ahead=True, on_ready=self.is_ready.release)

    def _draw(
        self, seed: Any, rings: ring_store.Rings, num_updates: jax.Array, ahead: Any, num_inserts: Any
    ) -> windowing.Windows:
        self.num_draws += 1
        key = jax.random.key(int(num_updates) + int(ahead))
        windows: windowing.Windows = self._sample(rings, key, num_inserts=num_inserts)
        return windows

    def _learn(
        self, seed: Any, train: Any, rings: ring_store.Rings, windows: windowing.Windows, frames: jax.Array
    ) -> Any:
        number = np.asarray(windows.stored["number"])
        stack = np.asarray(frames)[:, 0, :, 0]
        np.testing.assert_array_equal(stack, np.stack([np.maximum(number[:, 0] - 1, 0), number[:, 0]], axis=1))
        self.seen.append(number)
        still_there = np.asarray(rings.stored["number"])[np.asarray(windows.slot), np.asarray(windows.time)]
        np.testing.assert_array_equal(still_there, number[:, 0])  # what priorities are written to
        return train, rings, jnp.zeros(())

    def act(self, times: int = 1) -> None:
        """Writes the next number into both slots."""
        for _ in range(times):
            batch = batches.padding(_NUMBERED, _ONE, 2)
            batch.slot[:] = batch.ring[:] = [0, 1]
            batch.observation[:] = self.number
            self.frames.write(batch)
            no, stored = jnp.zeros(2, bool), {"number": jnp.full(2, self.number, jnp.int32)}
            shown = jnp.asarray(batch.observation)
            row = ring_store.Row(shown, jnp.zeros(2), no, no, no | (self.number == 0), stored)
            self.rings = self._write(self.rings, jnp.arange(2), row, jnp.int32(self.number))
            self.number += 1

    def close(self) -> None:
        self.may_read.release()
        self.strategy.close()

    def learn(self) -> np.ndarray:
        """Returns the numbers of the rows that an update saw."""
        train: Any = type("Train", (), {"num_updates": jnp.int32(len(self.seen))})
        run = {"draw": self._draw, "learn": self._learn}
        self.strategy.run_update(run, (fake_agent.SEED, train, self.rings), jnp.int32(self.number), 0)
        return self.seen[-1]


@pytest.mark.thorough
@pytest.mark.parametrize("num_acts", [1, host_frames.HOST_LAG, host_frames.HOST_LAG + 1, 3 * _SHORT])
def test_frames_read_after_more_acting_are_those_that_were_drawn(num_acts: int) -> None:
    world = _Numbered()
    world.act(_SHORT + 5)
    for _ in range(10):
        world.learn()  # draws the next windows, whose frames aren't read yet
        world.act(num_acts)
        world.may_read.release()
    world.strategy.close()
    # Too late they are drawn anew, from rows that are not about to be overwritten.
    assert world.num_draws == (10 + 1 if num_acts <= host_frames.HOST_LAG else 2 * 10)


def test_windows_are_those_of_their_update_whenever_they_were_drawn() -> None:
    seen = []
    for late in (0, host_frames.HOST_LAG + 1):
        world = _Numbered()
        world.act(_SHORT)
        world.learn()
        # As if each ring had got so many rows, which are the same ones here.
        world.frames.mark = functools.partial(np.subtract, world.frames.mark(), late)  # type: ignore[method-assign]
        world.may_read.release()
        world.learn()
        world.may_read.release()
        seen.append(world.learn())
        world.close()
    np.testing.assert_array_equal(*seen)


def test_windows_that_were_drawn_before_a_reset_are_not_learned_from() -> None:
    world, unused = _Numbered(), cast(Any, None)
    world.act(_SHORT)
    world.learn()
    place = places.Place(0, unused, unused, world.strategy, world.rings, unused)
    place.forget(None)
    world.rings = place.rings
    world.act(2)
    world.may_read.release()
    assert set(world.learn()[:, 0].tolist()) == {_SHORT - 1, _SHORT}
    world.close()


def test_calls_that_write_no_row_do_not_make_windows_late() -> None:
    world = _Numbered()
    world.act(_SHORT)
    world.learn()
    padding = batches.padding(_NUMBERED, _ONE, 2)
    for _ in range(2 * host_frames.HOST_LAG):
        world.frames.write(padding)
    assert not world.strategy.is_ready
    world.close()


def test_an_update_is_ready_once_its_frames_are_read() -> None:
    world = _Numbered()
    world.act(_SHORT)
    assert world.strategy.is_ready
    world.learn()
    assert not world.strategy.is_ready
    world.may_read.release()
    assert world.is_ready.acquire(timeout=60)
    assert world.strategy.is_ready
    world.learn()
    world.act(host_frames.HOST_LAG)
    assert not world.strategy.is_ready
    world.act()
    assert world.strategy.is_ready  # it waits for nothing: the windows are drawn anew
    world.close()


def test_an_error_of_the_reader_reaches_the_update() -> None:
    world = _Numbered()
    world.act(_SHORT)
    world.learn()
    world.frames.array = np.zeros((0, 0, 1), np.int32)
    world.may_read.release()
    with pytest.raises(IndexError):
        world.learn()
    world.strategy.close()


def test_rings_of_which_little_could_be_sampled_are_refused() -> None:
    host_frames.check_length(_SHORT, _STACK, ahead=True)
    host_frames.check_length(3, _STACK, ahead=False)
    with pytest.raises(
        errors.CapacityError, match=r" 35 rows, .* 36; .*--replay\.capacity.*--replay\.placement=device"
    ):
        host_frames.check_length(_SHORT - 1, _STACK, ahead=True)
