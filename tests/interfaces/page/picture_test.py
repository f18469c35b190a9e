"""Pictures of observations: their layout and pixels, by Node without a browser."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from typing import Any

import numpy as np
import pytest

from seedzero.interfaces.page import app

_SCRIPT = """
    import { decode, layout, pixels, range } from "./picture.js";
    const arrays = JSON.parse(process.argv[1]);
    const found = arrays.map((array) => {
      const form = layout(array);
      let data;
      try {
        data = decode(array);
      } catch (error) {
        return { error: error.message };
      }
      const isPicture = form.kind === "image" || form.kind === "planes";
      const count = form.channels === 3 && form.kind === "image" ? 3 : 1;
      const bounds = range(data, array);
      const shown = isPicture ? [...pixels(data, form, 0, count, bounds)].slice(0, 8) : [];
      return { ...form, numbers: [...data].slice(0, 4), bounds, pixels: shown };
    });
    console.log(JSON.stringify(found));
"""


def _array(values: np.ndarray, **others: Any) -> dict[str, Any]:
    content = base64.b64encode(values.tobytes()).decode()
    return {"name": "x", "dtype": str(values.dtype), "shape": values.shape, "base64": content, **others}


def _shown(*arrays: dict[str, Any]) -> list[dict[str, Any]]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    command = [node, "--input-type=module", "-e", _SCRIPT, json.dumps(arrays)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=app.STATIC)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_images_boards_vectors_and_texts_are_told_apart() -> None:
    image = np.zeros((40, 32, 3), np.uint8)
    image[0, 0] = (255, 128, 0)
    board = np.zeros((3, 3, 70), np.float32)
    board[0, 1, 0] = 1
    vector = np.array([1.5, -2, 0, 7, 9], np.float32)
    text = np.frombuffer(b"go left\0\0", np.uint8)
    found = _shown(_array(image, low=0, high=255), _array(board), _array(vector), _array(text, text=True))
    assert [one["kind"] for one in found] == ["image", "planes", "numbers", "text"]
    assert [one.get("planes") for one in found] == [1, 64, None, None]
    assert found[0]["pixels"] == [255, 128, 0, 255, 0, 0, 0, 255]
    assert found[1]["pixels"] == [0, 0, 0, 255, 255, 255, 255, 255]
    assert found[2]["numbers"] == [1.5, -2, 0, 7] and found[2]["bounds"] == [-2, 9]


def test_bounds_of_bytes_and_of_planes_of_bits_differ() -> None:
    bits, bytes_ = np.eye(4, dtype=np.uint8), np.full((4, 4), 200, np.uint8)
    found = _shown(_array(bits), _array(bytes_), _array(bits, low=0, high=1))
    assert [one["bounds"] for one in found] == [[0, 1], [0, 255], [0, 1]]
    assert [one["pixels"][0] for one in found] == [255, 200, 255]


def test_wrong_bytes_and_dtypes_are_errors() -> None:
    short = {**_array(np.zeros(4, np.float32)), "shape": [5]}
    found = _shown(short, {**_array(np.zeros(4, np.uint8)), "dtype": "object"})
    assert [one["error"] for one in found] == [
        "an observation of float32 [5] has 16 bytes",
        "an observation of object [4] has 4 bytes",
    ]
