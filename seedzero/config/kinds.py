"""Chooses kinds of networks by an environment's observations."""

from __future__ import annotations

import json
from collections.abc import Sequence

from seedzero.core import errors, types


def choose_kind(name: str, kind: str, spec: types.EnvSpec) -> str:
    """Returns a network's kind: as given, or for "auto" mlp for vectors, conv for small grids, resnet for images.

    `name` is that of the setting, for the error.

    Raises:
      ConfigError: convolutions are requested without a grid, or for grids of several sizes; or there are only texts.
    """
    if all(array.text for array in spec.arrays):
        raise errors.ConfigError("the observations are text alone; show an array of numbers beside it")
    shown = types.shown(spec.arrays)
    if kind == "auto":
        kind = {"vectors": "mlp", "small grids": "conv", "images": "resnet"}[shown]
    elif kind != "mlp" and shown == "vectors":
        shapes = _listed(spec.arrays)
        raise errors.ConfigError(
            f"{name}={kind} needs observations of shape [height, width] or "
            f"[height, width, channels], but they are {shapes}; use --{name}=mlp"
        )
    grids = [array for array in spec.arrays if is_image(kind, array)]
    if len({array.shape[:2] for array in grids}) > 1:
        fitting = [array.name for array in spec.arrays if array not in grids or array.shape[:2] == grids[0].shape[:2]]
        raise errors.ConfigError(
            f"the images of an observation must have one height and width, but they are {_listed(grids)}; "
            f"{_keep(fitting)}flatten all with --{name}=mlp"
        )
    return kind


def _keep(names: Sequence[str]) -> str:
    """Returns advice to keep only these arrays; "" for parts of nested spaces, which no wrapper can select."""
    if any("/" in name for name in names):
        return ""
    keys = [int(name) if name.isdecimal() else name for name in names]  # a Tuple's parts are numbers
    keep = json.dumps([{"FilterObservation": {"filter_keys": keys}}])
    return f"keep those of one size, as with --env.wrappers='{keep}', or "


def is_image(kind: str, array: types.ArraySpec) -> bool:
    """Returns whether a network of a kind takes an array as an image."""
    return kind != "mlp" and array.is_grid


def _listed(arrays: Sequence[types.ArraySpec]) -> str:
    """Returns the shapes of arrays, with names for several."""
    names = [f"{array.name} " if len(arrays) > 1 else "" for array in arrays]
    return ", ".join(f"{name}{list(array.shape)}" for name, array in zip(names, arrays, strict=True))
