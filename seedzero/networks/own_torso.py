"""A torso of the user's own: `--network.module=MODULE:FUNCTION`."""

from __future__ import annotations

import flax.linen as nn

from seedzero.config import shared
from seedzero.core import errors, types, user_code


def load(settings: shared.NetworkConfig, spec: types.EnvSpec) -> nn.Module | None:
    """Returns the Flax module of the user's function, made from spec and settings; None: none is named."""
    if not settings.module:
        return None
    torso = user_code.load(settings.module)(spec, settings)
    if not isinstance(torso, nn.Module):
        raise errors.ConfigError(
            f"--network.module={settings.module} returns {type(torso).__name__}; expected a flax.linen.Module"
        )
    return torso
