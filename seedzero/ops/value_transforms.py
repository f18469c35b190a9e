"""Values and rewards as categorical distributions over a transformed support.

MuZero (Schrittwieser et al. 2020), appendix F: a scalar x is squashed by h(x), and h(x) is split between the two
nearest of evenly spaced bins.
"hyperbolic": h(x) = sign(x)(sqrt(|x| + 1) - 1) + eps x (Pohlen et al. 2018, proposition A.2).
"symlog": h(x) = sign(x) log(|x| + 1) (Hafner et al. 2023, equation 9).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

EPSILON = 1e-3


def signed_hyperbolic(x: jax.Array) -> jax.Array:
    """Returns h(x), elementwise.

    Computing sqrt(|x| + 1) - 1 would round away small numbers in float32; this form avoids it.
    """
    return x / (jnp.sqrt(jnp.abs(x) + 1.0) + 1.0) + EPSILON * x


def inverse_signed_hyperbolic(y: jax.Array) -> jax.Array:
    """Returns the x with h(x) = y, elementwise.

    With t = sqrt(|x| + 1) - 1: eps t^2 + (1 + 2 eps) t = |y| and |x| = t (t + 2). This form avoids a difference of
    nearly equal numbers, so that 0 gives exactly 0.
    """
    size, b = jnp.abs(y), 1.0 + 2.0 * EPSILON
    t = 2.0 * size / (b + jnp.sqrt(b * b + 4.0 * EPSILON * size))
    return jnp.sign(y) * t * (t + 2.0)


def symlog(x: jax.Array) -> jax.Array:
    """Returns sign(x) log(|x| + 1), elementwise."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(y: jax.Array) -> jax.Array:
    """Returns the x with symlog(x) = y, elementwise."""
    return jnp.sign(y) * jnp.expm1(jnp.abs(y))


_TRANSFORMS: Mapping[str, tuple[Callable[[jax.Array], jax.Array], Callable[[jax.Array], jax.Array]]] = {
    "hyperbolic": (signed_hyperbolic, inverse_signed_hyperbolic),
    "symlog": (symlog, symexp),
}


def two_hot(x: jax.Array, num_bins: int, limit: float, transform: str = "hyperbolic") -> jax.Array:
    """Returns probabilities [..., num_bins] over the support whose mean is h(x), for untransformed x [...].

    The bins are evenly spaced over [-limit, limit]; an h(x) beyond puts all mass on the outermost one.
    """
    position = (jnp.clip(_TRANSFORMS[transform][0](x), -limit, limit) + limit) * ((num_bins - 1) / (2.0 * limit))
    distance = jnp.abs(position[..., None] - jnp.arange(num_bins, dtype=position.dtype))
    return jnp.maximum(1.0 - distance, 0.0)


def exceeds(x: jax.Array, limit: float, transform: str = "hyperbolic") -> jax.Array:
    """Returns whether `two_hot` clips untransformed numbers x [...] to an outermost bin, [...] bool."""
    return jnp.abs(_TRANSFORMS[transform][0](x)) > limit


def expectation(logits: jax.Array, limit: float, transform: str = "hyperbolic") -> jax.Array:
    """Returns the untransformed scalars [...] that logits [..., num_bins] predict.

    Bins are summed in pairs of opposite sign, so that a symmetric distribution gives exactly 0.
    """
    num_bins = logits.shape[-1]
    half = num_bins // 2
    probs = jax.nn.softmax(logits, axis=-1)
    positive = jnp.linspace(-limit, limit, num_bins, dtype=logits.dtype)[num_bins - half :]
    mean = jnp.sum((probs[..., num_bins - half :] - probs[..., :half][..., ::-1]) * positive, axis=-1)
    return _TRANSFORMS[transform][1](mean)
