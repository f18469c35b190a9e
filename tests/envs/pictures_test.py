"""Boards become pictures of coloured cells."""

from __future__ import annotations

import numpy as np

from seedzero.envs import pictures


def test_a_cell_has_the_colour_of_its_last_plane_that_is_not_0() -> None:
    planes = np.zeros((2, 3, 12), np.float32)
    planes[0, 1, [0, 4]] = 0.5
    planes[1, 2, 4] = planes[0, 0, 0] = -1
    planes[1, 0, 10] = 1  # colours come again after ten planes
    picture = pictures.paint(planes)
    assert (picture.shape, picture.dtype) == ((64, 96, 3), np.uint8)
    cells = picture.reshape(2, 32, 3, 32, 3)
    assert (cells == cells[:, :1, :, :1]).all()
    colours = cells[:, 0, :, 0].tolist()
    black = [0, 0, 0]
    assert colours[0][1] == colours[1][2] not in (black, colours[0][0])
    assert colours[1][0] == colours[0][0] != black
    assert colours[0][2] == colours[1][1] == black
