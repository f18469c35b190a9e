"""Boards become pictures of coloured cells."""

from __future__ import annotations

import numpy as np
import pytest

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


RED_AND_GRAY = np.array([[[255, 0, 0], [128, 128, 128]]], np.uint8)


@pytest.mark.parametrize(
    "value",
    [
        RED_AND_GRAY,
        RED_AND_GRAY / 255,
        (RED_AND_GRAY / 255).astype(np.float16),
        RED_AND_GRAY.astype(np.float64),
        RED_AND_GRAY.astype(np.uint16),
        RED_AND_GRAY.astype(np.int64),
        RED_AND_GRAY.tolist(),
        [np.zeros_like(RED_AND_GRAY), RED_AND_GRAY],
    ],
    ids=["uint8", "float64", "float16", "whole floats", "uint16", "int64", "nested list", "list of pictures"],
)
def test_a_picture_keeps_its_colours_in_every_form(value: object) -> None:
    picture = pictures.converted(value)
    assert picture.dtype == np.uint8
    np.testing.assert_array_equal(picture, RED_AND_GRAY)


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float32])
def test_zeros_and_ones_are_black_and_white(dtype: type) -> None:
    picture = pictures.converted(np.array([[[0, 1, 1]]], dtype))
    assert picture.tolist() == [[[0, 255, 255]]]


def test_bytes_of_0_and_1_are_nearly_black() -> None:
    assert pictures.converted(np.ones((1, 1, 3), np.uint8)).tolist() == [[[1, 1, 1]]]


@pytest.mark.parametrize("shape", [(1, 2), (1, 2, 1)])
def test_gray_pictures_get_three_channels(shape: tuple[int, ...]) -> None:
    picture = pictures.converted(np.array([7, 200], np.uint8).reshape(shape))
    assert picture.tolist() == [[[7, 7, 7], [200, 200, 200]]]


def test_opacity_shows_a_picture_on_white() -> None:
    values = np.array([[[10, 20, 30, 255], [10, 20, 30, 0], [0, 100, 200, 51]]], np.uint8)
    expected = [[[10, 20, 30], [255, 255, 255], [204, 224, 244]]]  # a fifth of the colour, four fifths of white
    assert pictures.converted(values).tolist() == expected
    assert pictures.converted(values / 255).tolist() == expected


@pytest.mark.parametrize(
    ("value", "description"),
    [
        (np.full((4, 4, 3), np.nan), "float64 from nan to nan"),
        (np.where(np.eye(4) > 0, np.inf, 0.0), "float64 from 0.0 to inf"),
        (np.linspace(-1, 1, 16).reshape(4, 4), "float64 from -1.0 to 1.0"),
        (np.linspace(0, 2, 16).reshape(4, 4), r"float64 from 0.0 to 2.0"),
        (np.full((4, 4, 3), 256, np.uint16), "uint16 from 256 to 256"),
        (np.zeros((3, 8, 8), np.uint8), r"shape \[3, 8, 8\]"),
        (np.zeros((2, 8, 8, 3), np.uint8), r"shape \[2, 8, 8, 3\]"),
        (np.zeros((0, 8, 3), np.uint8), r"shape \[0, 8, 3\]"),
        (np.zeros(8), r"shape \[8\]"),
        (np.zeros((8, 8, 3), complex), "ndarray, not an array .* of numbers"),
        ([[1], [2, 3]], "list, not an array"),
        ([], r"shape \[0\]"),
        (None, "NoneType, not an array"),
        ("a board in letters", "str, not an array"),
    ],
)
def test_a_picture_of_unknown_shape_or_scale_is_described(value: object, description: str) -> None:
    with pytest.raises(ValueError, match=description):
        pictures.converted(value)
