"""States, replays and checkpointers for the tests of this folder."""

import contextlib
import errno
import os
import pathlib
import resource
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import plain_files, types
from seedzero.replay import ring_store, sources
from seedzero.storage.checkpoints import checkpoint, checkpointers, durable, manifest, saved_files, trees

LENGTH = 8


STORED = {"action": sources.Stored((), np.dtype(np.int32)), "policy": sources.Stored((3,), np.dtype(np.float32))}


class Optimizer(NamedTuple):
    mu: dict[str, jax.Array]
    nothing: tuple[()]


def make_state(seed: int = 0) -> dict[str, Any]:
    """A state with what is awkward to save: random keys, bfloat16, scalars, empty arrays and empty containers."""
    key = jax.random.key(seed)
    return {
        "params": {"dense": {"kernel": jax.random.normal(key, (4, 5)), "bias": jnp.arange(5, dtype=jnp.bfloat16)}},
        "train": (Optimizer({"a/b": jnp.full(3, jnp.nan)}, ()), jnp.int32(seed), jnp.zeros((0, 2))),
        "keys": {"one": key, "batch": jax.random.split(key, 3)},
    }


def make_rings(
    num_slots: int = 4, length: int = LENGTH, size: int = 6, *, prioritized: bool = False
) -> ring_store.Rings:
    spec = types.EnvSpec(observation_shape=(size,), observation_dtype="uint8", num_actions=3)
    create = jax.jit(lambda: ring_store.create(spec, STORED, num_slots, length, prioritized=prioritized))
    rings: ring_store.Rings = create()
    return rings


def filled(steps: int, seed: int = 0, **options: Any) -> ring_store.Rings:
    """Returns rings with random rows of so many steps; options: as of `make_rings`."""
    return go_on(make_rings(**options), np.random.default_rng(seed), steps)


write_rows = jax.jit(ring_store.write, static_argnames="stack", donate_argnums=0)


increment = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)


def go_on(rings: ring_store.Rings, rng: np.random.Generator, steps: int) -> ring_store.Rings:
    """Writes random rows; every call writes slot 0, others half of the time."""
    num_slots = rings.cursor.shape[0]
    for _ in range(steps):
        written = rng.random(num_slots) < 0.5
        written[0] = True
        row = ring_store.Row(
            observation=jnp.asarray(rng.integers(0, 256, (num_slots, *rings.observation.shape[2:])), jnp.uint8),
            reward=jnp.asarray(rng.random(num_slots), jnp.float32),
            terminated=jnp.asarray(rng.random(num_slots) < 0.2),
            truncated=jnp.zeros(num_slots, bool),
            first=jnp.zeros(num_slots, bool),
            stored={
                "action": jnp.asarray(rng.integers(0, 3, num_slots), jnp.int32),
                "policy": jnp.asarray(rng.random((num_slots, 3)), jnp.float32),
            },
        )
        slot = jnp.asarray(np.where(written, np.arange(num_slots), num_slots))
        rings = write_rows(rings, slot, row, jnp.int32(7), stack=2)
    return rings


def abstract(tree: Any) -> Any:
    """Returns shapes, dtypes and shardings, as a template to restore into."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)


def on_host(tree: Any) -> Any:
    """Returns copies as numpy arrays, random keys as integers."""
    return jax.tree.map(np.array, trees.copy(tree))


def assert_same(a: Any, b: Any) -> None:
    """Asserts equality bit for bit, with the same structure and dtypes; of arrays of JAX or numpy."""
    a, b = map(_as_numpy, (a, b))
    assert str(jax.tree.structure(a)) == str(jax.tree.structure(b))
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        assert x.tobytes() == y.tobytes()


def _as_numpy(tree: Any) -> Any:
    return tree if all(isinstance(x, np.ndarray) for x in jax.tree.leaves(tree)) else on_host(tree)


def full(*_: Any, **__: Any) -> Any:
    """Fails as a disk without space."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fill_disk(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Fails the last flush of every new directory of a kind."""
    flush_tree = durable.flush_tree
    monkeypatch.setattr(durable, "flush_tree", lambda path: (full if path.parent.name == kind else flush_tree)(path))


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """This process can open no file while entered."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Gate:
    """Has the calls of a function wait until it opens. begun: is set by the first call; calls: their arguments."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, passes: Callable[..., bool] = lambda *_: False
    ) -> None:
        """passes: of the arguments of a call; true: it does not wait."""
        self.begun, self._opened = threading.Event(), threading.Event()
        self._real, self._passes = getattr(owner, name), passes
        self.calls: list[tuple[Any, ...]] = []
        monkeypatch.setattr(owner, name, self._call)

    def open(self) -> None:
        self._opened.set()

    def _call(self, *args: Any, **options: Any) -> Any:
        self.begun.set()
        assert self._passes(*args) or self._opened.wait(60)
        self.calls.append(args)
        return self._real(*args, **options)


def changes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns a list that gets the flushes and renames from now on, in order."""
    order: list[str] = []
    flush, rename = durable.flush, pathlib.Path.rename

    def noted_flush(path: pathlib.Path) -> None:
        order.append(f"flush {path.name}")
        flush(path)

    def noted_rename(path: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
        order.append(f"rename to {to.name}")
        return rename(path, to)

    monkeypatch.setattr(durable, "flush", noted_flush)
    monkeypatch.setattr(pathlib.Path, "rename", noted_rename)
    return order


def unreadable_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails every reading of a manifest as a disk does that answers again later."""
    read = plain_files.read

    def fail(path: pathlib.Path) -> bytes:
        if path.name == manifest.NAME:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(path)

    monkeypatch.setattr(plain_files, "read", fail)


class Peers:
    """The other hosts: what they are told, and which parts they lack."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str]] = []
        self.missing = ""

    def settle(self, step: int, problem: str) -> str:
        self.told.append((step, problem))
        return self.missing or problem


class Disk:
    """A directory of checkpoints, and what its checkpointer reports."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.durable: list[int] = []
        self.errors: list[str] = []
        self._opened: list[checkpointers.Checkpointer] = []

    def open(self, **options: Any) -> checkpointers.Checkpointer:
        """Opens the directory as a new process would. options: of the checkpointer, or its settings."""
        own = {name: options.pop(name) for name in ("host", "peers", "max_copy_bytes") if name in options}
        self.close()
        self._opened = [
            checkpointers.Checkpointer(
                self.path,
                sections.CheckpointConfig(**options),
                on_durable=self.durable.append,
                on_error=self.errors.append,
                clock=lambda: 1.5,
                **own,
            )
        ]
        return self._opened[0]

    def close(self) -> None:
        for one in self._opened:
            one.close()

    def save(self, step: int, state: Any, counters: Any, rings: Any, frozen: Collection[str] = ()) -> None:
        """Saves, and waits for it."""
        self._opened[0].save(step, state, counters, rings, frozen)
        self._opened[0].wait()

    def steps(self) -> list[int]:
        return saved_files.finished(self.path / saved_files.STEPS)

    def step(self, number: int) -> pathlib.Path:
        """Returns the directory of a step's checkpoint."""
        return saved_files.step_directory(self.path, number)

    def segments(self) -> set[str]:
        return {path.name for path in (self.path / saved_files.SEGMENTS).iterdir()}


Steps = tuple[Any, Any, list[Any]]


def restore(checkpointer: checkpointers.Checkpointer, state: Any, rings: Any = None, step: Any = "last") -> Any:
    """Restores as a learner at its start; `rings` may be numpy's."""
    like = rings if rings is None or isinstance(rings.observation, np.ndarray) else abstract(rings)
    restored = checkpoint.restore(checkpointer._directory.path, abstract(state), like, step)
    if restored is not None:
        checkpointer.continue_from(restored)
    return restored


def files_below(directory: pathlib.Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def kept_by_the_host(rings: ring_store.Rings) -> ring_store.Rings:
    return rings._replace(observation=frames(rings))


def frames(rings: ring_store.Rings) -> np.ndarray:
    """Returns a copy of the frames [S, T, ...], wherever they are."""
    if isinstance(rings.observation, np.ndarray):
        return rings.observation.copy()
    num_slots, length = rings.observation.shape[:2]
    return np.array(ring_store.get_frames(rings.observation, *jnp.indices((num_slots, length))))
