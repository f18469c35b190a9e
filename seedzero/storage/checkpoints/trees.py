"""Stores pytrees of arrays as files: names their leaves, copies them on the device, saves and loads them.

A tree's directory is one key-value store (tensorstore's OCDBT) with a zarr array for each leaf, named after it.
Orbax would leak 30 to 200 kB of memory at each save: tensorstore 0.1.86 keeps the texts of every spec that is turned
into JSON (`to_json`), and Orbax does that for every array.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import math
import pathlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import tensorstore

from seedzero.core import errors

Tree: TypeAlias = Any
"""A pytree of arrays, which may be random keys."""
COMPRESSOR = {"id": "zstd", "level": 1}
"""Compression of all zarr arrays in checkpoints."""


@dataclasses.dataclass(frozen=True)
class TreeLeaf:
    """A leaf's keys from the root, and its array's shape and dtype (of a random key, those of its integers)."""

    path: Sequence[str]
    shape: Sequence[int]
    dtype: str

    @property
    def name(self) -> str:
        """The path as one text."""
        return "/".join(self.path)

    @property
    def num_bytes(self) -> int:
        """Size of the array in bytes."""
        return math.prod(self.shape) * jnp.dtype(self.dtype).itemsize


def describe(tree: Tree) -> tuple[TreeLeaf, ...]:
    """Describes the leaves in the order of `jax.tree.leaves`."""
    leaves = jax.tree_util.tree_flatten_with_path(_plain.eval_shape(tree))[0]
    name = functools.partial(jax.tree_util.keystr, simple=True)
    return tuple(
        TreeLeaf([name((key,)) for key in path], list(leaf.shape), jnp.dtype(leaf.dtype).name) for path, leaf in leaves
    )


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


@jax.jit  # jitted, because `jax.eval_shape` of a plain function would leak a little at every call
def _plain(tree: Tree) -> Tree:
    """Returns the tree with random keys turned into integers."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if hasattr(x, "dtype") and _is_key(x) else x, tree)


def copy(tree: Tree) -> Tree:
    """Copies a tree on its devices, with random keys as integers; the originals may be donated right afterwards."""
    leaves, structure = jax.tree.flatten(tree)  # flat, because a program is compiled again for other names of players
    by_devices = collections.defaultdict[frozenset[Any], list[int]](list)
    for index, leaf in enumerate(leaves):
        by_devices[frozenset(leaf.devices() if isinstance(leaf, jax.Array) else ())].append(index)
    # one program for each place, because a program runs on the devices of one place only
    for indices in by_devices.values():
        for index, copied in zip(indices, _copy([leaves[index] for index in indices]), strict=True):
            leaves[index] = copied
    return jax.tree.unflatten(structure, leaves)


@jax.jit
def _copy(leaves: list[Any]) -> list[Any]:
    return [jnp.copy(leaf) for leaf in _plain(leaves)]


def num_bytes(tree: Tree) -> int:
    """Returns the size of all leaves in bytes."""
    return sum(leaf.num_bytes for leaf in describe(tree))


def digest(tree: Tree) -> str:
    """Returns a sha256 of names, shapes, dtypes and bits of a tree, sorted by name.

    tree: from `copy`, or of numpy arrays.
    """
    found = hashlib.sha256()
    leaves = {leaf.name: (leaf, value) for leaf, value in zip(describe(tree), jax.tree.leaves(tree), strict=True)}
    for name, (leaf, value) in sorted(leaves.items()):
        found.update(f"{name} {leaf.dtype}{list(leaf.shape)}\n".encode())
        found.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def save(directory: pathlib.Path, tree: Tree) -> None:
    """Writes a tree from `copy` into a new directory; an empty tree gets no directory.

    Raises CheckpointError if two leaves have the same name; OSError, ValueError or RuntimeError from disk or device.
    """
    names = [leaf.name for leaf in describe(tree)]
    repeated = [name for name, count in collections.Counter(names).items() if count > 1]
    if repeated:
        raise errors.CheckpointError(f"two arrays have the name {repeated[0]!r}; keys may not contain '/'")
    # Arrays without elements are only in the manifest.
    leaves = [(name, leaf) for name, leaf in zip(names, jax.tree.leaves(tree), strict=True) if leaf.size]
    if not leaves:
        return
    # In memory first: if it cannot open a file (EMFILE), the commit of tensorstore 0.1.86 to a disk never returns.
    memory = {"driver": "memory"}
    # shared, because otherwise each array would be a separate store with its own files
    context = tensorstore.Context()
    with tensorstore.Transaction(atomic=True) as transaction:
        for name, leaf in leaves:
            array = np.asarray(leaf)
            spec = {**_spec(memory, name), "metadata": {"chunks": array.shape, "compressor": COMPRESSOR}}
            create: dict[str, Any] = {"create": True, "dtype": array.dtype, "shape": array.shape}
            store = tensorstore.open(spec, context=context, transaction=transaction, **create).result()
            store.write(array).result()
    files = tensorstore.KvStore.open(memory, context=context).result()
    for key in files.list().result():
        path = directory / key.decode()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files.read(key).result().value)
        files.delete_range(tensorstore.KvStore.KeyRange(key, key + b"\0")).result()


def load(directory: pathlib.Path, leaves: Sequence[TreeLeaf]) -> list[np.ndarray]:
    """Returns the arrays of a saved tree in the order of `leaves`. Raises CheckpointError."""
    base = {"driver": "file", "path": f"{directory.resolve()}/"}
    context = tensorstore.Context()
    try:
        return [
            tensorstore.open(_spec(base, leaf.name), context=context, open=True).result().read().result()
            if leaf.num_bytes
            else np.zeros(leaf.shape, leaf.dtype)
            for leaf in leaves
        ]
    except (OSError, ValueError, RuntimeError) as error:
        raise errors.CheckpointError(f"{directory.name} cannot be read: {error}") from error


def _spec(base: dict[str, str], name: str) -> dict[str, Any]:
    kvstore = {"driver": "ocdbt", "base": base, "path": f"{name}/"}
    return {"driver": "zarr", "kvstore": kvstore, "store_data_equal_to_fill_value": True}


def check_fits(leaves: Sequence[TreeLeaf], template: Tree) -> None:
    """Raises ResumeError for a missing or superfluous array, or one whose shape or dtype is not the template's."""
    saved = {leaf.name: leaf for leaf in leaves}
    wanted = {leaf.name: leaf for leaf in describe(template)}
    for name in [*wanted, *saved]:
        if saved.get(name) != wanted.get(name):
            raise errors.ResumeError(
                f"the checkpoint's array {name!r} is {shape_text(saved.get(name))}, this configuration needs "
                f"{shape_text(wanted.get(name))}; resume with the configuration of the run, or start a new run "
                "directory"
            )


def shape_text(leaf: TreeLeaf | None) -> str:
    """Returns an array's dtype and shape for a message, or "absent" for None."""
    return "absent" if leaf is None else f"{leaf.dtype}{list(leaf.shape)}"


def place(arrays: Sequence[np.ndarray], template: Tree) -> Tree:
    """Returns the arrays as a tree like the template, with its shardings."""
    leaves, structure = jax.tree.flatten(template)
    return jax.tree.unflatten(structure, [_place(x, leaf) for x, leaf in zip(arrays, leaves, strict=True)])


def _place(array: np.ndarray, leaf: Any) -> jax.Array:
    # A copy, because memory shared with numpy cannot be donated.
    value: Any = array.copy()
    if _is_key(leaf):
        value = jax.random.wrap_key_data(jnp.asarray(value), impl=_key_impl(leaf))
    placed: jax.Array = jax.device_put(value, leaf.sharding)
    return placed


def _key_impl(leaf: Any) -> Any:
    """Returns the algorithm of random keys; `jax.random.key_impl` takes arrays and tracers, but not templates."""
    found: list[Any] = []
    jax.eval_shape(lambda key: found.append(jax.random.key_impl(key)), leaf)
    return found[0]
