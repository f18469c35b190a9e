"""What JAX's own settings and environment variables must be, before anything is compiled."""

from __future__ import annotations

import jax

from seedzero.core import errors

_NEEDED = {
    "jax_enable_x64": (False,),
    "jax_numpy_rank_promotion": ("allow", "warn"),
    "jax_numpy_dtype_promotion": ("standard",),
}
"""Setting -> values that agents compute with. `seedzero.search` alone takes all."""


def platform() -> str:
    """Returns the platform of JAX's devices. Raises UsageError for settings that no agent computes with.

    Raises ConfigError if JAX lacks the first of JAX_PLATFORMS.
    """
    for name, needed in _NEEDED.items():
        if (value := getattr(jax.config, name, needed[0])) not in needed:
            raise errors.UsageError(
                f"JAX's {name} is {value} here, and agents need {needed[0]}: unset {name.upper()}, or use the "
                "agent in a separate process"
            )
    asked = getattr(jax.config, "jax_platforms", "") or "cpu"  # JAX's types do not know it
    wanted, found = asked.partition(",")[0], "cpu"
    try:
        found = jax.default_backend()
    except (AssertionError, RuntimeError) as error:  # the first from a package that was built without it
        if wanted == "cpu":
            raise errors.ConfigError(f"JAX finds no device: {error}") from None
    if found == "cpu" != wanted:  # JAX silently ignores CUDA if it sees no GPU
        raise errors.ConfigError(
            f"JAX_PLATFORMS={asked} asks for {wanted}, and JAX finds none here; see to its "
            "driver and JAX's package for it, or set JAX_PLATFORMS=cpu"
        )
    return found
