"""Sums over devices in as few messages as possible.

Between processes each array of a sum is a message, which takes half a millisecond with gloo on loopback, and an update
has dozens. `joined` postpones sums until nothing else can be computed, and then sends all of them as one vector. Two
devices exchange it and add, because gloo's sum is several rounds of small messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

_ACROSS: Mapping[str, Callable[..., jax.Array]] = {"psum": jnp.sum, "pmax": jnp.max, "pmin": jnp.min}
"""Primitives that are sent together, each as a function over the values of all devices."""


def joined(function: Callable[..., Any], axis_name: str) -> Callable[..., Any]:
    """Returns a function with the same results that sums and takes extremes over a mapped axis in few messages.

    A message is a vector of all float32 arrays that are ready. Neither grouping nor exchanging changes the numbers.
    """

    def run(*arguments: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        return jax.tree.unflatten(jax.tree.structure(shapes), _run(closed, jax.tree.leaves(arguments), axis_name))

    return run


def _run(closed: core.ClosedJaxpr, arguments: Sequence[Any], axis_name: str) -> list[Any]:
    """Evaluates a traced function."""
    traced = closed.jaxpr
    values = dict(zip((*traced.constvars, *traced.invars), (*closed.consts, *arguments), strict=True))

    def read(atoms: Sequence[Any]) -> list[Any]:
        return [atom.val if isinstance(atom, core.Literal) else values[atom] for atom in atoms]

    waiting = list(traced.eqns)
    while waiting:
        sums, later = [], []
        unknown: set[Any] = set()
        for equation in waiting:
            if unknown.intersection(atom for atom in equation.invars if not isinstance(atom, core.Literal)):
                later.append(equation)
            elif _travels(equation, axis_name):
                sums.append(equation)
            else:
                values.update(
                    zip(equation.outvars, _evaluate(equation, read(equation.invars), axis_name), strict=True)
                )
                continue
            unknown.update(equation.outvars)
        values.update(_together(sums, [read(equation.invars) for equation in sums], axis_name))
        waiting = later
    return read(traced.outvars)


def _travels(equation: core.JaxprEqn, axis_name: str) -> bool:
    return (
        equation.primitive.name in _ACROSS
        and tuple(equation.params["axes"]) == (axis_name,)
        and equation.params["axis_index_groups"] is None
        and all(getattr(atom.aval, "dtype", None) == jnp.float32 for atom in equation.invars)
    )


def _evaluate(equation: core.JaxprEqn, arguments: list[Any], axis_name: str) -> list[Any]:
    """Evaluates an equation, in which the sums of a loop's steps are joined, too."""
    params = equation.primitive.get_bind_params(equation.params)
    if equation.primitive.name == "scan":
        body = params["jaxpr"]
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in body.in_avals]
        params = {**params, "jaxpr": jax.make_jaxpr(lambda *given: _run(body, given, axis_name))(*shapes)}
    with equation.ctx.manager:
        found = equation.primitive.bind(*arguments, **params)
    return list(found) if equation.primitive.multiple_results else [found]


def _together(
    equations: Sequence[core.JaxprEqn], arguments: Sequence[Sequence[Any]], axis_name: str
) -> dict[core.Var, Any]:
    """Returns the results of sums and extremes by variable."""
    sent = [  # (variable, primitive, array)
        (variable, equation.primitive.name, x)
        for equation, given in zip(equations, arguments, strict=True)
        for variable, x in zip(equation.outvars, given, strict=True)
    ]
    if not sent:
        return {}
    own = [(name, x) for _, name, x in sent]
    found = (_exchanged if jax.lax.axis_size(axis_name) == 2 else _summed)(own, axis_name)
    return dict(zip((variable for variable, _, _ in sent), found, strict=True))


def _exchanged(own: Sequence[tuple[str, jax.Array]], axis_name: str) -> list[jax.Array]:
    """Returns the results of two devices, which send their arrays to each other: a third of the messages of a sum."""
    vector = _vector([x for _, x in own])
    theirs = _parts(jax.lax.ppermute(vector, axis_name, [(0, 1), (1, 0)]), [x for _, x in own])
    is_first = jax.lax.axis_index(axis_name) == 0

    def extreme(name: str, x: jax.Array, other: jax.Array) -> jax.Array:
        # in the order of the devices, because 0.0 and -0.0 are equal
        return _ACROSS[name](jnp.where(is_first, jnp.stack([x, other]), jnp.stack([other, x])), axis=0)

    pairs = zip(own, theirs, strict=True)
    return [x + other if name == "psum" else extreme(name, x, other) for (name, x), other in pairs]


def _summed(own: Sequence[tuple[str, jax.Array]], axis_name: str) -> list[jax.Array]:
    """Returns the results by one sum; for an extreme, the values of all devices are sent."""
    num_devices, device = jax.lax.axis_size(axis_name), jax.lax.axis_index(axis_name)
    sent = [x if name == "psum" else jnp.zeros((num_devices, *x.shape), x.dtype).at[device].set(x) for name, x in own]
    found = _parts(jax.lax.psum(_vector(sent), axis_name), sent)
    return [
        part if name == "psum" else _ACROSS[name](part, axis=0) for (name, _), part in zip(own, found, strict=True)
    ]


def _vector(arrays: Sequence[jax.Array]) -> jax.Array:
    return jnp.concatenate([x.reshape(-1) for x in arrays])


def _parts(vector: jax.Array, like: Sequence[jax.Array]) -> list[jax.Array]:
    """Returns the arrays that a vector consists of."""
    ends = np.cumsum([x.size for x in like]).tolist()
    return [vector[end - x.size : end].reshape(x.shape) for end, x in zip(ends, like, strict=True)]
