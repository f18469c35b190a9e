"""Loads a user-defined torso: `--network.module=MODULE:FUNCTION`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import flax.linen as nn
from jax import lax

from seedzero.config import shared
from seedzero.core import errors, types, user_code


def load(settings: shared.NetworkConfig, spec: types.EnvSpec) -> nn.Module | None:
    """Returns the Flax module that the user's function makes from spec and settings, or None if none is named."""
    if not settings.module:
        return None
    torso = user_code.load(settings.module)(spec, settings)
    if not isinstance(torso, nn.Module):
        raise errors.ConfigError(
            f"--network.module={settings.module} returns {type(torso).__name__}; expected a flax.linen.Module"
        )
    return torso


def convolving(convolve: Callable[..., Any] | None) -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which plain `nn.Conv` of images compute by a function; None leaves them as they are.

    What the function does not do stays Flax's: dilations, groups, a precision, and layers with their own function.
    """

    def either(x: Any, kernel: Any, strides: Any, padding: Any, **more: Any) -> Any:
        dilations = {*more["lhs_dilation"], *more["rhs_dilation"]}
        is_plain = x.ndim == 4 and dilations == {1} and more["feature_group_count"] == 1 and more["precision"] is None
        return (convolve if convolve and is_plain else lax.conv_general_dilated)(x, kernel, strides, padding, **more)

    def intercept(call: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
        layer = context.module
        if type(layer) is nn.Conv and layer.conv_general_dilated is None and layer.conv_general_dilated_cls is None:
            object.__setattr__(layer, "conv_general_dilated", either)  # of this call alone: Flax copies layers
        return call(*args, **kwargs)

    return contextlib.nullcontext() if convolve is None else nn.intercept_methods(intercept)
