"""Arrays on their way between meshes keep their rows, whatever the numbers of devices."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest

from seedzero.device import meshes, transfer


def _meshes(num_here: int, num_there: int) -> tuple[jax.sharding.Mesh, jax.sharding.Mesh]:
    devices = np.array(jax.devices())
    return tuple(  # type: ignore[return-value]
        jax.sharding.Mesh(part, (meshes.AXIS,))
        for part in (devices[:num_here], devices[num_here : num_here + num_there])
    )


@pytest.mark.parametrize(
    ("num_here", "num_there", "num_pieces"), [(1, 1, (1, 1)), (2, 2, (1, 1)), (1, 3, (3, 1)), (3, 1, (1, 3))]
)
def test_rows_come_in_their_order_to_the_devices_of_the_other_mesh(
    num_here: int, num_there: int, num_pieces: tuple[int, int]
) -> None:
    here, there = _meshes(num_here, num_there)
    assert (transfer.num_pieces(here, there), transfer.num_pieces(there, here)) == num_pieces
    rows = 2 * math.lcm(num_here, num_there)
    tree = {"frames": np.arange(rows * 6).reshape(rows, 2, 3), "number": np.arange(rows)}
    sharded = meshes.SHARDED
    cut = meshes.over_devices(lambda x: transfer.cut(x, num_pieces[0]), here, sharded, sharded)
    moved = transfer.move(cut(jax.device_put(tree, meshes.sharded(here))), there)
    assert len(moved) == num_pieces[1]
    joined = meshes.over_devices(transfer.join, there, sharded, sharded)(moved)
    jax.tree.map(np.testing.assert_array_equal, joined, tree)
    assert joined["number"].sharding.device_set == set(there.devices.flat)


@pytest.mark.parametrize(("num_here", "num_there"), [(2, 2), (1, 3), (3, 1)])
def test_shapes_are_those_of_what_is_moved(num_here: int, num_there: int) -> None:
    here, there = _meshes(num_here, num_there)
    pieces = tuple(
        jax.device_put(np.zeros((num_here, 2)), meshes.sharded(here)) for _ in range(transfer.num_pieces(here, there))
    )
    expected = meshes.placed(transfer.move(pieces, there), meshes.sharded(there))
    assert transfer.shapes(pieces, there) == expected
