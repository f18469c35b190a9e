"""Trees as files: they are read as they were written, and writing keeps nothing in memory."""

import errno
import gc
import pathlib
import shutil
import threading
import tracemalloc

import checkpoint_harness as harness
import jax
import numpy as np
import pytest

from seedzero.storage.checkpoints import trees


def test_a_digest_tells_every_bit_name_shape_and_dtype_and_no_place() -> None:
    state = harness.on_host(harness.make_state(1))
    digest = trees.digest(state)
    assert trees.digest(trees.copy(harness.make_state(1))) == digest  # on the device
    leaves = zip(trees.describe(state), jax.tree.leaves(state), strict=True)
    assert trees.digest({leaf.name: value for leaf, value in reversed(list(leaves))}) == digest  # as files have it
    kernel = state["params"]["dense"]["kernel"]
    bits = kernel.view(np.uint32).copy()
    bits[3, 4] ^= 1
    for changed in (bits.view(np.float32), kernel.reshape(5, 4), kernel.view(np.uint32)):
        other = {**state, "params": {"dense": {**state["params"]["dense"], "kernel": changed}}}
        assert trees.digest(other) != digest
    assert trees.digest({**state, "parameters": state["params"]}) != digest
    zeros = [np.zeros(2, np.float32), -np.zeros(2, np.float32)]
    assert len({trees.digest({"x": x}) for x in zeros}) == 2
    assert len({trees.digest({"x": np.zeros(shape, np.float32)}) for shape in ((0,), (0, 2), ())}) == 3


@pytest.mark.thorough
def test_a_save_leaves_nothing_behind_in_memory(tmp_path: pathlib.Path) -> None:
    tree = trees.copy({str(index): np.zeros(4) for index in range(50)})
    num_saves, num_bytes = 4, []
    tracemalloc.start()
    try:
        for _ in range(6):
            for _ in range(num_saves):
                trees.save(tmp_path / "tree", tree)
                shutil.rmtree(tmp_path / "tree")
            gc.collect()
            num_bytes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    # Orbax left 40,000 bytes a save. The least growth counts: a cache may fill, or Python's tables grow, now and then.
    assert min(np.diff(num_bytes)) < 4000 * num_saves, num_bytes


def test_a_save_fails_at_once_while_no_file_can_be_opened(tmp_path: pathlib.Path) -> None:
    tree = trees.copy(harness.make_state())
    trees.save(tmp_path / "first", tree)  # threads and libraries are loaded
    raised: list[OSError] = []

    def save() -> None:
        try:
            trees.save(tmp_path / "second", tree)
        except OSError as error:
            raised.append(error)

    thread = threading.Thread(target=save, daemon=True)  # because tensorstore's own commit to a disk never returns
    with harness.no_descriptors():
        thread.start()
        thread.join(30)
    assert [error.errno for error in raised] == [errno.EMFILE]
    trees.save(tmp_path / "third", tree)
    harness.assert_same(
        trees.load(tmp_path / "third", trees.describe(tree)), trees.load(tmp_path / "first", trees.describe(tree))
    )


def test_copies_of_other_names_need_no_other_program() -> None:
    one = {"players/main/params": {"w": jax.numpy.ones(7)}, "players/main/key": jax.random.key(3)}
    copied = trees.copy(one)
    size = trees._copy._cache_size()
    other = trees.copy({name.replace("main", "main_1"): tree for name, tree in one.items()})
    assert trees._copy._cache_size() == size
    for name, tree in copied.items():
        assert all(map(np.array_equal, jax.tree.leaves(tree), jax.tree.leaves(other[name.replace("main", "main_1")])))


def test_a_tree_on_several_devices_is_copied_there() -> None:
    first, second = jax.devices()[:2]
    tree = {"a": jax.device_put(np.ones(2), first), "b": jax.device_put(np.zeros(3), second), "c": np.ones(1)}
    copied = trees.copy(tree)
    assert [copied[name].devices() for name in "ab"] == [{first}, {second}]
    assert copied["a"] is not tree["a"] and np.array_equal(copied["b"], np.zeros(3)) and copied["c"][0] == 1
