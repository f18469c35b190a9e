"""Compares the search with mctx, and with its network calls alone, for the same model, roots and settings.

- mctx: its Gumbel and PUCT policies, with one model call per simulation and one row per root.
- The network alone: as many calls of the same width as the search makes, in a chain, where each starts from the
  previous call's states. There is no tree and no choice of actions.

Models:
- free: predictions from a random table, by a hash of state and action. They cost almost nothing, so the tree itself is
  measured.
- small, middle: the residual networks of the `atari` preset, with random parameters.

The roots are precomputed, so that only the search is measured. Everything runs on one device.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero import search as mcts
from seedzero.agents import muzero_model, muzero_search
from seedzero.config import machines, muzero_config, presets
from seedzero.core import errors, packages, types
from seedzero.interfaces.benchmark import subjects
from seedzero.networks import observations

POLICIES = ("gumbel", "puct")
NETWORKS = ("free", "small", "middle")
BATCHES = (8, 32, 128, 512)
NETWORKS_ON_CPU, BATCHES_ON_CPU = NETWORKS[:2], BATCHES[:3]
"""Defaults on a CPU, on which the others take minutes."""

CONSIDERED = {16: 8, 50: 16}
"""Simulations -> initial actions of Gumbel's Sequential Halving. PUCT considers all actions; its rows have 0."""

NUM_ACTIONS = 18
DISCOUNT = 0.997
FRAME_SHAPE = (96, 96, 1)
TABLE_ROWS = 4096
ROOTS_AT_ONCE = 8
"""Observations in one call of the representation, so that all batches use one program."""

NUM_KEYS = 32
"""Number of different trees that a program searches in turn."""


class Case(NamedTuple):
    """The settings of a row. considered: 0 for PUCT."""

    policy: str
    network: str
    batch: int
    simulations: int
    considered: int


class SearchModel(NamedTuple):
    """Parameters in the compute dtype; number of rows -> that many different roots; and the recurrent function."""

    params: Any
    roots: Callable[[int], mcts.Root]
    step: mcts.RecurrentFn | mcts.ChanceFn


def run(
    *,
    policy: Sequence[str] = (),
    network: Sequence[str] = (),
    batch: Sequence[int] = (),
    considered: Mapping[int, int] = CONSIDERED,
    seconds: float = 6.0,
    report: Callable[[subjects.Row], None] = lambda row: None,
) -> dict[str, Any]:
    """Returns facts about the machine, and a row for each combination of the arguments.

    In the rows, ratio_to_mctx exceeds 1 if the search is faster than mctx; ratio_to_network is the search's time as a
    multiple of the network's.

    Args:
      policy: one of POLICIES; empty: all.
      network: one of NETWORKS; empty: all, or NETWORKS_ON_CPU on a CPU.
      batch: number of roots; empty: BATCHES, or BATCHES_ON_CPU on a CPU.
      considered: simulations -> Gumbel's considered actions.
      seconds: time to measure; slow searches take longer.
      report: called with each measured row.

    Raises:
      UsageError: mctx isn't installed.
    """
    mctx_version = _import_mctx().__version__
    device = jax.devices()[0]
    on_cpu = device.platform == "cpu"
    cases = [
        Case(policy_, network_, size, simulations, width if policy_ == "gumbel" else 0)
        for network_ in network or (NETWORKS_ON_CPU if on_cpu else NETWORKS)
        for policy_ in policy or POLICIES
        for size in batch or (BATCHES_ON_CPU if on_cpu else BATCHES)
        for simulations, width in considered.items()
    ]
    rows = []
    for (network_, _, size), group in itertools.groupby(cases, key=lambda x: (x.network, x.policy, x.batch)):
        model = _model(network_)
        for case, programs in _compile(list(group), model, model.roots(size)).items():
            rows.append(_row(case, subjects.interleave(programs, seconds=seconds / len(cases))))
            report(rows[-1])
    return {
        "platform": device.platform,
        "device": device.device_kind,
        "cores": machines.num_cores(),
        "jax": jax.__version__,
        "mctx": mctx_version,
        "rows": rows,
    }


def _import_mctx() -> Any:
    try:
        import mctx  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise errors.UsageError(
            f"the search is measured against mctx, which can't be loaded ({error}): "
            + packages.install_command("mctx")
        ) from None
    return mctx


def _row(case: Case, slices: subjects.Slices) -> subjects.Row:
    return {
        **case._asdict(),
        "actions": NUM_ACTIONS,
        "milliseconds": subjects.milliseconds(slices, "search"),
        **subjects.against(slices, "search", "mctx", "network"),
        "ratio_to_network": subjects.ratio(slices, "network", "search"),
        "tree_bytes": mcts.tree_bytes(case.batch, NUM_ACTIONS, _config(case)),
    }


def _config(case: Case) -> muzero_config.SearchSection:
    config = muzero_config.SearchSection(policy=case.policy, num_simulations=case.simulations)
    return dataclasses.replace(config, num_considered=case.considered) if case.considered else config


# Programs ---------------------------------------------------------------------------------------------------------


def _compile(cases: Sequence[Case], model: SearchModel, root: mcts.Root) -> dict[Case, dict[str, subjects.Program]]:
    """Compiles the programs of rows with the same roots on all cores; compiling takes longer than measuring."""
    # The largest are first, to balance the load.
    functions = {"search": _search, "mctx": _mctx, "network": _network}
    with futures.ThreadPoolExecutor(machines.num_cores()) as pool:
        jobs = {
            (case, name): pool.submit(_program, function, model, _config(case), root)
            for name, function in functions.items()
            for case in cases
        }
    return {case: {name: jobs[case, name].result() for name in functions} for case in cases}


def _program(
    function: Callable[..., Any], model: SearchModel, config: muzero_config.SearchSection, root: mcts.Root
) -> subjects.Program:
    """Returns a program that calls function(step, config, params, root, key) with a new key each time."""
    keys = list(jax.random.split(jax.random.key(0), NUM_KEYS))
    compiled = jax.jit(functools.partial(function, model.step, config)).lower(model.params, root, keys[0]).compile()
    calls = itertools.count()

    def call() -> Any:
        index = next(calls)
        # The first call is for compilation, which is done already.
        return compiled(model.params, root, keys[index % NUM_KEYS]) if index else ()

    return call


def _search(
    step: mcts.RecurrentFn, config: muzero_config.SearchSection, params: Any, root: mcts.Root, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    explore = jnp.ones(root.value.shape, bool)
    found = mcts.search(params, key, root, step, config=config, explore=explore)
    return found.action, found.action_weights


def _mctx(
    step: mcts.RecurrentFn, config: muzero_config.SearchSection, params: Any, root: mcts.Root, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    mctx = _import_mctx()

    def recurrent_fn(params: Any, key: jax.Array, action: jax.Array, embedding: Any) -> Any:
        del key
        prediction, embedding = step(params, action, embedding)
        return mctx.RecurrentFnOutput(**prediction._asdict()), embedding

    policy, names = {
        "gumbel": (mctx.gumbel_muzero_policy, ("gumbel_scale",)),
        "puct": (
            mctx.muzero_policy,
            ("dirichlet_fraction", "dirichlet_alpha", "pb_c_init", "pb_c_base", "temperature"),
        ),
    }[config.policy]
    options = {name: getattr(config, name) for name in names}
    if config.policy == "gumbel":
        options["max_num_considered_actions"] = config.num_considered
    mctx_root = mctx.RootFnOutput(**root._asdict())
    output = policy(params, key, mctx_root, recurrent_fn, num_simulations=config.num_simulations, **options)
    return output.action, output.action_weights


def _network(
    step: mcts.RecurrentFn, config: muzero_config.SearchSection, params: Any, root: mcts.Root, key: jax.Array
) -> Any:
    """Returns all predictions; consecutive calls of the same width are one loop, as in a search."""
    del key
    batch_size, num_actions = root.prior_logits.shape

    def call(embedding: Any, action: jax.Array) -> tuple[Any, mcts.Prediction]:
        prediction, embedding = step(params, action, embedding)
        return embedding, prediction

    embedding, predictions = root.embedding, []
    for width, calls in itertools.groupby(mcts.sweep_widths(config, num_actions)):
        num_rows, num_calls = batch_size * width, len(list(calls))
        # If there are more rows than before, states repeat; if there are fewer, the first ones are kept.
        embedding = jax.tree.map(lambda leaf, n=num_rows: jnp.resize(leaf, (n, *leaf.shape[1:])), embedding)
        actions = jnp.arange(num_calls * num_rows, dtype=jnp.int32).reshape(num_calls, num_rows) % num_actions
        embedding, found = jax.lax.scan(call, embedding, actions)
        predictions.append(found)
    return predictions


# Models -----------------------------------------------------------------------------------------------------------


@functools.cache
def _model(network: str) -> SearchModel:
    return _table_model() if network == "free" else _resnet_model(network)


def _table_model() -> SearchModel:
    """States are uint32 [B]. A row of the table has a reward, a value and the logits of a prior."""

    def predict(table: jax.Array, state: jax.Array) -> mcts.Prediction:
        found = table[state % TABLE_ROWS]
        reward = found[:, 0]
        return mcts.Prediction(reward, jnp.full_like(reward, DISCOUNT), found[:, 2:], found[:, 1])

    def step(table: jax.Array, action: jax.Array, state: jax.Array) -> tuple[mcts.Prediction, jax.Array]:
        state = _hash(state, action)
        return predict(table, state), state

    def roots(num_rows: int) -> mcts.Root:
        state = _hash(jnp.arange(num_rows, dtype=jnp.uint32), jnp.int32(0))
        prediction = predict(table, state)
        return mcts.Root(prediction.prior_logits, prediction.value, state)

    table = jax.random.normal(jax.random.key(0), (TABLE_ROWS, 2 + NUM_ACTIONS))
    return SearchModel(table, roots, step)


def _hash(state: jax.Array, action: jax.Array) -> jax.Array:
    """Returns the next state, uint32, by mixing state and action with the last steps of MurmurHash3."""
    x = state * jnp.uint32(NUM_ACTIONS) + action.astype(jnp.uint32) + jnp.uint32(1)
    x = (x ^ x >> 16) * jnp.uint32(0x85EBCA6B)
    x = (x ^ x >> 13) * jnp.uint32(0xC2B2AE35)
    return jnp.asarray(x ^ x >> 16)


def _resnet_model(size: str) -> SearchModel:
    atari = presets.get("atari")
    config = dataclasses.replace(atari, network=dataclasses.replace(atari.network, resnet_size=size))
    spec = types.EnvSpec(observation_shape=FRAME_SHAPE, observation_dtype="uint8", num_actions=NUM_ACTIONS)
    parts = muzero_model.make_parts(config, spec, jax.default_backend())
    model, network = muzero_search.model_functions(parts), parts.network

    @jax.jit
    def represent(params: Any, observation: jax.Array) -> mcts.Root:
        embedding = model.represent(params, {types.OBSERVATION: observation})
        return mcts.Root(*model.predict(params, embedding), embedding)

    def roots(num_rows: int) -> mcts.Root:
        shape = (num_rows, *observations.stack_shape(spec.observation_shape, config.network.frame_stack))
        observation = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
        parts = np.split(observation, range(ROOTS_AT_ONCE, num_rows, ROOTS_AT_ONCE))
        found = [represent(params, part) for part in parts]
        joined: mcts.Root = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *found)
        return joined

    params = jax.device_put(network.cast(_random_params(jax.eval_shape(network.init, jax.random.key(0)))))
    return SearchModel(params, roots, muzero_search.recurrent_fn(parts))


def _random_params(shapes: Any) -> Any:
    """Returns random parameters, also in the heads, because new heads predict the same for every state.

    They are drawn by numpy, because compiling the networks' own initialization takes longer than measuring a row.
    """
    rng = np.random.default_rng(1)

    def draw(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> Any:
        scale = {"kernel": math.prod(leaf.shape[:-1]) ** -0.5, "bias": 0.0, "scale": 0.0}[path[-1].key]
        return (scale * rng.standard_normal(leaf.shape) + (path[-1].key == "scale")).astype(np.float32)

    return jax.tree.map_with_path(draw, shapes)
