"""Writes and reads Gymnasium's spaces as JSON text, so that a saved agent needs no environment to know its values.

The text has what is needed to encode values: kinds, shapes, dtypes and numbers of values. For a Box of observations,
only the smallest and the largest bound are kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from seedzero.core import json_object


class Pair(NamedTuple):
    """The spaces of an environment.

    Channels_first: its images of bytes are [C, H, W], but [H, W, C] in the learner.
    """

    observation: spaces.Space[Any]
    action: spaces.Space[Any]
    channels_first: bool = False


def write(pair: Pair) -> str:
    """Describes spaces as text, from which `gym_spaces.read` can work; equal spaces have equal texts."""
    shown, taken = _described(pair.observation, all_bounds=False), _described(pair.action, all_bounds=True)
    first = {"channels_first": True} if pair.channels_first else {}
    return json.dumps({"observation": shown, "action": taken, **first}, separators=(",", ":"))


def read(text: str, max_elements: int) -> Pair:
    """Reads spaces from a text; max_elements: in an array. Raises ValueError for other texts."""
    try:
        found = json_object.parse(text)
        shown, taken = _made(found["observation"], max_elements), _made(found["action"], max_elements)
        return Pair(shown, taken, bool(found.get("channels_first")))
    except (KeyError, TypeError, AttributeError, AssertionError, OverflowError, RecursionError) as error:
        raise ValueError(f"spaces are described by {text[:100]!r}: {type(error).__name__}: {error}") from None


def _described(space: spaces.Space[Any], *, all_bounds: bool) -> dict[str, Any]:
    if isinstance(space, spaces.Dict):
        parts = [[key(name), _described(part, all_bounds=all_bounds)] for name, part in space.spaces.items()]
        return {"kind": "Dict", "parts": parts}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "parts": [_described(part, all_bounds=all_bounds) for part in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": space.dtype.name}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, spaces.MultiDiscrete):
        sizes = {"sizes": _numbers(space.nvec), "starts": _numbers(space.start)}
        return {"kind": "MultiDiscrete", "shape": list(space.shape), "dtype": space.dtype.name, **sizes}
    assert isinstance(space, spaces.Box)
    low, high = (space.low, space.high) if all_bounds else (space.low.min(), space.high.max())
    bounds = {"low": _numbers(low), "high": _numbers(high)}
    return {"kind": "Box", "shape": list(space.shape), "dtype": space.dtype.name, **bounds}


def key(name: Any) -> str | int:
    """Returns a Dict's key as it is written: str and int unchanged, other types as text."""
    return name if isinstance(name, str | int) else str(name)


def _numbers(array: Any) -> Any:
    """Returns the numbers in C order, or a single number if all are equal; infinity is written as text."""
    values = np.asarray(array).reshape(-1).tolist()
    texts = [str(value) if isinstance(value, float) and math.isinf(value) else value for value in values]
    return texts[0] if len(set(texts)) == 1 else texts


def _made(facts: Mapping[str, Any], max_elements: int) -> spaces.Space[Any]:
    kind = facts["kind"]
    if kind == "Dict":
        return spaces.Dict([(name, _made(part, max_elements)) for name, part in facts["parts"]])
    if kind == "Tuple":
        return spaces.Tuple([_made(part, max_elements) for part in facts["parts"]])
    if kind == "Discrete":
        return spaces.Discrete(facts["n"], start=facts["start"], dtype=np.dtype(facts["dtype"]).type)
    shape = tuple(facts["shape"])
    if not all(isinstance(size, int) and size > 0 for size in shape) or math.prod(shape) > max_elements:
        raise ValueError(f"a space has the shape {list(shape)}; expected at most {max_elements} numbers")
    if kind == "MultiBinary":
        return spaces.MultiBinary(shape)
    dtype = np.dtype(facts["dtype"])
    if kind == "MultiDiscrete":
        sizes, starts = _array(facts["sizes"], shape, dtype), _array(facts["starts"], shape, dtype)
        return spaces.MultiDiscrete(sizes, dtype=dtype.type, start=starts)
    if kind == "Box":
        low, high = _array(facts["low"], shape, dtype), _array(facts["high"], shape, dtype)
        return spaces.Box(low, high, shape, dtype.type)
    raise ValueError(f"a space is of the kind {kind!r}; expected Box, Dict, Discrete, MultiBinary, ...")


def _array(numbers: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    as_numbers: Callable[[Any], Any] = lambda value: float(value) if isinstance(value, str) else value  # noqa: E731
    values = [as_numbers(value) for value in numbers] if isinstance(numbers, list) else as_numbers(numbers)
    flat = np.asarray(values, dtype)
    return np.full(shape, flat) if flat.ndim == 0 else flat.reshape(shape)
