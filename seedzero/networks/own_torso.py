"""Loads a user-defined torso: `--network.module=MODULE:FUNCTION`."""

from __future__ import annotations

import flax.linen as nn

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
