"""Exports a saved agent as programs that need only JAX: StableHLO by `jax.export`, with parameters and a manifest.

All inputs and outputs are dictionaries of arrays by name, so a caller needs no type of this package. The leading axis
B of each is the batch, which has any size unless one is given.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import export as jax_export

from seedzero.acting.actors import acting_program, codecs, saved_agents
from seedzero.agents import agent_table, base
from seedzero.core import errors, json_object, packages, plain_files, types
from seedzero.device import acting, batches
from seedzero.envs import gym_masks, gym_spaces, pgx_rules
from seedzero.networks import observations
from seedzero.ops import unpacking
from seedzero.storage.checkpoints import durable


# Converts an environment's own observations and actions inside of exported programs, as `codecs` does outside.
class Values(NamedTuple):
    """A program's inputs and outputs in the form that the environment uses.

    inputs: name -> shape [1, ...] and dtype of each array of an observation, "observation" or "observation/PART";
      64-bit types become 32-bit ones, and integers become float32 if the agent takes them so.
    encode: {name: [B, ...]} -> the agent's [B, *observation_shape].
    decode: the agent's actions [B] or [B, D] -> a batch of the environment's action space.
    mask_size: number of values N in an action mask of the environment.
    legal: masks [B, N] bool -> the agent's [B, A] bool.
    """

    inputs: dict[str, jax.ShapeDtypeStruct]
    encode: Callable[[Mapping[str, jax.Array]], jax.Array]
    decode: Callable[[jax.Array], jax.Array]
    mask_size: int
    legal: Callable[[jax.Array], jax.Array]


def values_of(spec: types.EnvSpec) -> Values:
    """Returns a run's values. Raises ResumeError as `codecs.of` does, and UsageError for actions that need 64 bits."""
    codec = codecs.of(spec)
    found = gym_spaces.leaves("of this run", codec.learned_space)
    leaves = {"/".join([types.OBSERVATION, *map(str, leaf.path)]): leaf for leaf in found}
    shown = {name: _part(codec.observation_space, leaf.path) for name, leaf in leaves.items()}
    moved = {name for name, leaf in leaves.items() if shown[name].shape != _part(codec.learned_space, leaf.path).shape}

    def encode(inputs: Mapping[str, jax.Array]) -> jax.Array:
        arrays: dict[str, jax.Array] = {}
        for name, leaf in leaves.items():
            batch: Any = jnp.moveaxis(inputs[name], 1, -1) if name in moved else inputs[name]
            arrays[leaf.spec.name] = jnp.asarray(leaf.encode(batch)).reshape(batch.shape[0], *leaf.spec.shape)
        if spec.packed:
            return unpacking.pack(spec.packed, arrays)
        (array,) = arrays.values()
        return array.reshape(array.shape[0], *spec.observation_shape).astype(spec.observation_dtype)

    inputs = {
        name: jax.ShapeDtypeStruct((1, *(space.shape or ())), _input_dtype(space, leaves[name]))
        for name, space in shown.items()
    }
    sizes = gym_spaces.action_sizes(codec.action_space) or [spec.num_actions]
    return Values(inputs, encode, _decoder(spec, codec), sum(sizes), lambda mask: gym_masks.joint(mask, sizes))


def _part(space: Any, path: tuple[Any, ...]) -> spaces.Space[Any]:
    for key in path:
        space = space[key]
    found: spaces.Space[Any] = space
    return found


def _input_dtype(space: spaces.Space[Any], leaf: gym_spaces.SpaceLeaf) -> np.dtype[Any]:
    is_wide = isinstance(space, spaces.Box) and space.dtype.kind in "iu" and space.dtype.itemsize == 8
    return np.dtype(leaf.spec.dtype) if is_wide else _dtype(space)


def _dtype(space: spaces.Space[Any]) -> np.dtype[Any]:
    return jax.dtypes.canonicalize_dtype(space.dtype)


def _decoder(spec: types.EnvSpec, codec: codecs.Codec) -> Callable[[jax.Array], jax.Array]:
    space = codec.action_space
    dtype = _dtype(space)
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        _check_fits(space, np.array([start, start + int(space.n) - 1]), dtype)
        return lambda actions: (actions + start).astype(dtype)
    if isinstance(space, spaces.Box) and spec.is_continuous:
        low, high = (np.asarray(bound, dtype) for bound in (space.low, space.high))
        # After rounding to 32 bits they may be out of bounds.
        low = np.where(low < space.low, np.nextafter(low, dtype.type(np.inf)), low)
        high = np.where(high > space.high, np.nextafter(high, dtype.type(-np.inf)), high)
        return lambda actions: jnp.clip(actions.reshape(actions.shape[0], *low.shape), low, high).astype(dtype)
    exact = codec.to_actions(np.arange(spec.num_actions))
    _check_fits(space, exact, dtype)
    table = exact.astype(dtype)
    return lambda actions: jnp.asarray(table)[actions]


def _check_fits(space: spaces.Space[Any], values: np.ndarray, dtype: np.dtype[Any]) -> None:
    if not np.array_equal(values.astype(dtype), values):
        raise errors.UsageError(
            f"actions are of {space}, whose numbers need 64 bits; programs have {dtype}: use `seedzero.load`"
        )


MANIFEST, PARAMETERS = "manifest.json", "parameters.npz"
_FORMAT, _PROGRAM = "stablehlo", ".stablehlo"

Arrays: TypeAlias = dict[str, Any]
"""Arrays, or their shapes and dtypes, by name."""

_CALL = (
    "exported = jax.export.deserialize(bytearray(open(FILE, 'rb').read())); "
    f"outputs = exported.call(dict(numpy.load('{PARAMETERS}')), inputs)"
)


class _Program(NamedTuple):
    """A function (parameters, inputs) -> outputs. Each input has one row, except those named in `unbatched`."""

    description: str
    function: Callable[[Arrays, Arrays], Arrays]
    inputs: Arrays
    unbatched: frozenset[str] = frozenset()


def export(
    saved: saved_agents.SavedAgent, directory: pathlib.Path, *, platforms: Sequence[str], batch_size: int | None
) -> dict[str, Any]:
    """Writes an agent's programs into a directory, which is made if missing, and returns the manifest.

    Args:
      directory: an earlier export there is replaced as a whole, once the new one is complete.
      platforms: the platforms that programs are lowered for.
      batch_size: number of rows in all inputs; None: any number.

    Raises UsageError if the directory has other files or cannot be written, or if the package flatbuffers is missing.
    """
    directory = directory.resolve()  # so that a link to a directory is kept
    _check_replaceable(directory)
    # The agent computes in float32 if one of the platforms is a CPU, otherwise as configured.
    platform = "cpu" if "cpu" in platforms else {"tpu": "tpu"}.get(platforms[0], "gpu")
    config, spec = saved.config, saved.spec
    agent = agent_table.make(config, spec, platform)
    programs = _programs(agent, saved, lambda given: _pick("", saved.params, given))
    parameters = {name: np.asarray(leaf) for name, leaf in _named("", saved.params).items()}
    size: Any = batch_size or jax_export.symbolic_shape("B")[0]
    functions, contents = {}, {}
    for name, program in programs.items():
        exported, described = _lower(program, _shapes(parameters), size, platforms)
        contents[f"{name}{_PROGRAM}"] = exported
        facts = {"file": f"{name}{_PROGRAM}", "num_bytes": len(exported), "description": program.description}
        functions[name] = {**facts, **described}
    num_bytes = sum(array.nbytes for array in parameters.values())
    manifest = {
        "format": _FORMAT,
        "jax": jax.__version__,
        "agent": config.run.agent,
        "env": config.env.id,
        **saved.to_json(),
        "platforms": list(platforms),
        "batch_size": batch_size,
        "call": _CALL,
        "functions": functions,
        "parameters": {"file": PARAMETERS, "num_bytes": num_bytes, "arrays": _described(_shapes(parameters))},
        "actions": {"low": list(spec.action_low), "high": list(spec.action_high)}
        if spec.is_continuous
        else {"number": spec.num_actions},
        "discount": None if agent.model is None else agent.model.discount,
    }
    _write(directory, parameters, contents, manifest)
    return manifest


def _write(directory: pathlib.Path, parameters: Arrays, contents: dict[str, bytes], manifest: dict[str, Any]) -> None:
    try:
        if directory.parent.is_dir():
            durable.remove_marked_leftovers(directory)
        with durable.new_directory(directory, is_marked=True) as temporary:
            with (temporary / PARAMETERS).open("wb") as file:
                np.savez(file, **parameters)
            for name, content in contents.items():
                (temporary / name).write_bytes(content)
            (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise errors.UsageError(
            f"--out={directory} cannot be written: {error.strerror}; give another directory"
        ) from None


def _check_replaceable(directory: pathlib.Path) -> None:
    """Raises UsageError if the target has anything but an export, which replacing would delete."""
    try:
        content = plain_files.read(directory / MANIFEST) if (directory / MANIFEST).exists() else None
        is_export = content is None or json_object.parse(content).get("format") == _FORMAT
        names = [path.name for path in directory.iterdir()] if directory.exists() else []
    except NotADirectoryError:
        raise errors.UsageError(
            f"--out={directory} is a file; expected a directory, or a name for a new one"
        ) from None
    except (OSError, ValueError):
        is_export, names = False, [MANIFEST]
    own = (MANIFEST, PARAMETERS, durable.MARK)
    others = [name for name in names if name not in own and not name.endswith(_PROGRAM)]
    if others or not is_export:
        other = others[0] if others else MANIFEST
        raise errors.UsageError(
            f"--out={directory} has files that are no export's, such as {other}, and an export takes the place of the "
            "whole directory; give a new one"
        )


def _lower(program: _Program, parameters: Arrays, size: Any, platforms: Sequence[str]) -> tuple[bytes, dict[str, Any]]:
    """Returns a serialized program, and its inputs and outputs for the manifest."""
    inputs = {
        name: jax.ShapeDtypeStruct(x.shape if name in program.unbatched else (size, *x.shape[1:]), x.dtype)
        for name, x in program.inputs.items()
    }
    exported = jax_export.export(jax.jit(program.function), platforms=platforms)(parameters, inputs)
    outputs = jax.tree.unflatten(exported.out_tree, exported.out_avals)
    try:
        return bytes(exported.serialize()), {"inputs": _described(inputs), "outputs": _described(outputs)}
    except ImportError as error:
        command = packages.install_command("flatbuffers")
        raise errors.UsageError(f"an export needs flatbuffers ({error}): {command}") from None


def _programs(
    agent: base.Agent, saved: saved_agents.SavedAgent, unpack: Callable[[Arrays], base.Params]
) -> dict[str, _Program]:
    """Returns an agent's functions by name.

    agent: made for the platform. unpack: turns arrays by name into parameters.
    """
    programs = {"act": _act(agent, saved, unpack)}
    if agent.model is None:
        return programs
    model, spec = agent.model, saved.spec
    observation = jax.eval_shape(lambda: observations.zeros(spec, agent.stack, 1))
    params = jax.eval_shape(lambda: agent.acting(agent.init(jax.random.key(0))))
    embedding = jax.eval_shape(model.represent, params, observation)

    def embedded(inputs: Arrays) -> Any:
        return _pick("embedding", embedding, inputs)

    def represent(parameters: Arrays, inputs: Arrays) -> Arrays:
        return _named("embedding", model.represent(unpack(parameters), inputs))

    def predict(parameters: Arrays, inputs: Arrays) -> Arrays:
        logits, value = model.predict(unpack(parameters), embedded(inputs))
        return {"policy_logits": logits, "value": value}

    def dynamics(parameters: Arrays, inputs: Arrays) -> Arrays:
        after, reward = model.dynamics(unpack(parameters), embedded(inputs), inputs["action"])
        return {**_named("embedding", after), "reward": reward}

    action = jax.ShapeDtypeStruct((1, *spec.action_shape), np.dtype(np.float32 if spec.is_continuous else np.int32))
    hidden = _named("embedding", embedding)
    if not model.remembers:  # otherwise embeddings cover everything seen so far, which only `act` remembers
        programs["represent"] = _Program(
            "stacked observations, oldest frame first on the last axis -> embedding", represent, observation
        )
    return {
        **programs,
        "predict": _Program("embedding -> logits of the policy, value in rewards", predict, hidden),
        "dynamics": _Program(
            "embedding, action (of -1 to 1 if it is a vector) -> embedding of the next state, reward on the way",
            dynamics,
            {**hidden, "action": action},
        ),
    }


def _act(agent: base.Agent, saved: saved_agents.SavedAgent, unpack: Callable[[Arrays], base.Params]) -> _Program:
    """Returns the program from the newest frame to an action, with a row's memory as inputs and outputs."""
    spec = saved.spec
    carried = jax.eval_shape(lambda: acting.initial(agent, spec, 1))
    row: dict[str, Any] = {"reward": np.float32} if agent.reads_reward else {}
    row |= {"first": bool, "explore": bool}
    values = values_of(spec)
    inputs: Arrays = {
        **values.inputs,
        **{name: jax.ShapeDtypeStruct((1,), np.dtype(dtype)) for name, dtype in row.items()},
        "key": jax.ShapeDtypeStruct((2,), np.dtype(np.uint32)),
        **_named("state", carried),
    }
    if spec.has_action_mask:
        inputs["action_mask"] = jax.ShapeDtypeStruct((1, values.mask_size), np.dtype(bool))

    def act(parameters: Arrays, inputs: Arrays) -> Arrays:
        first = inputs["first"]
        every = jnp.ones((*first.shape, spec.num_actions), bool)
        seen = batches.Batch(
            observation=values.encode(inputs),
            reward=inputs.get("reward", jnp.zeros(first.shape)),
            first=first,
            action_mask=values.legal(inputs["action_mask"]) if spec.has_action_mask else every,
            action_mode=jnp.where(inputs["explore"], types.EXPLORE, saved.mode),
            slot=jnp.arange(first.shape[0], dtype=jnp.int32),
            num_updates=jnp.int32(saved.update),
        )
        key = jax.random.wrap_key_data(inputs["key"])
        state, params = _pick("state", carried, inputs), unpack(parameters)
        after, found = acting_program.look(agent, spec, params, state, seen, key)
        return {"action": values.decode(found["action"]), **_named("state", after)}

    explore, name = "explore: act with noise, from key, two new numbers each call", saved.config.env.id
    if saved.config.run.agent == "alphazero" and pgx_rules.game(name.partition(":")[2]).has_chance:
        explore = "key: two new numbers each call, from which the search draws chance; explore: act with noise"
    if saved.mode == types.SAMPLE:
        explore = "key: two new numbers each call, from which actions are drawn; explore: with the noise of training"
    return _Program(
        "newest observations -> actions, both as the environment has them. "
        f"first: an episode begins; {explore}; action_mask: true is legal, as the "
        "environment shows it; state: zeros at the start, then the last "
        "call's",
        act,
        inputs,
        frozenset({"key"}),
    )


def _named(prefix: str, tree: Any) -> Arrays:
    """Returns a tree's leaves by name: PREFIX, or PREFIX/KEY/..."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    paths = [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves]
    return {"/".join(filter(None, (prefix, path))): leaf for path, leaf in paths}


def _pick(prefix: str, like: Any, arrays: Arrays) -> Any:
    """Returns the tree whose leaves `_named` has named."""
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in _named(prefix, like)])


def _shapes(arrays: Mapping[str, np.ndarray]) -> Arrays:
    return {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in arrays.items()}


def _described(arrays: Arrays) -> dict[str, Any]:
    """Describes shapes and dtypes as JSON, where "B" is the batch."""
    return {
        name: {"shape": [size if isinstance(size, int) else "B" for size in x.shape], "dtype": str(x.dtype)}
        for name, x in arrays.items()
    }
