"""The encoder of texts: what it depends on, and its place in the actor-critic network."""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.config import kinds, shared
from seedzero.core import errors, packing, types
from seedzero.networks import actor_critic, text

SPEC = types.EnvSpec.of_arrays(
    [types.ArraySpec("numbers", (3,), "float32"), types.ArraySpec("task", (40,), "uint8", 0, 255, text=True)],
    num_actions=2,
)


@jax.jit
def _encoded(given: jax.Array) -> Any:
    model = text.Encoder(jnp.float32)
    return model.apply(model.init(jax.random.key(0), given), given)


def _encode(*texts: str) -> np.ndarray:
    return np.asarray(_encoded(packing.encode_texts(texts, 40)))


def test_other_words_and_another_order_are_other_features() -> None:
    found = _encode("red door", "blue door", "door red", "red door")
    assert found.shape == (4, text.LSTM_WIDTH)
    assert np.array_equal(found[0], found[3])
    assert not np.allclose(found[0], found[1]) and not np.allclose(found[0], found[2])


def test_the_last_word_ends_a_text_whatever_stands_beside_it_in_a_batch() -> None:
    alone, beside = _encode("red door"), _encode("red door", "a much longer text of words")
    np.testing.assert_allclose(beside[0], alone[0], rtol=1e-4, atol=1e-6)
    assert not _encode("").any()


def _network(**changes: Any) -> actor_critic.RecurrentNetwork[Any]:
    layers = shared.NetworkConfig(**{"kind": "auto", "width": 8, **changes})
    return actor_critic.actor_critic(layers, SPEC, "cpu")


@functools.cache
def _unroll(network: actor_critic.RecurrentNetwork[Any]) -> Any:
    def unroll(steps: actor_critic.Steps) -> Any:
        params, memory = network.init(jax.random.key(1)), network.initial_state(len(steps.reward))
        return network.unroll(params, memory, steps)[1]

    return jax.jit(unroll)


def _logits(network: actor_critic.RecurrentNetwork[Any], stack: int, *texts: str) -> np.ndarray:
    """Returns [B, 2]; with a stack, the texts are the frames of one environment, oldest first."""
    encoded = packing.encode_texts(texts, 40)
    shown = encoded.reshape(-1, 1, 40 * stack)
    num_rows = len(shown)
    observation = {"numbers": np.ones((num_rows, 1, 3 * stack), np.float32), "task": shown}
    none = np.zeros((num_rows, 1), np.float32)
    steps: Any = actor_critic.Steps(observation, none > 0, none, none.astype(np.int32))  # numpy's arrays

    return np.asarray(_unroll(network)(steps)[:, 0])


def test_policy_and_value_depend_on_the_text() -> None:
    found = _logits(_network(lstm_width=6), 1, "go left", "go right", "go left")
    assert np.array_equal(found[0], found[2]) and not np.array_equal(found[0], found[1])


def test_of_stacked_texts_the_newest_is_read() -> None:
    network = _network(frame_stack=2)
    assert np.array_equal(_logits(network, 2, "old", "go left"), _logits(network, 2, "older", "go left"))
    assert not np.array_equal(_logits(network, 2, "old", "go left"), _logits(network, 2, "old", "go right"))


def test_texts_alone_are_no_observation() -> None:
    alone = types.EnvSpec.of_arrays(SPEC.packed[1:], num_actions=2)
    with pytest.raises(errors.ConfigError, match="text alone; show an array of numbers"):
        kinds.choose_kind("network.kind", "auto", alone)


@pytest.mark.parametrize(("shape", "dtype"), [((4, 5), "uint8"), ((4,), "int32")])
def test_text_is_one_axis_of_bytes(shape: tuple[int, ...], dtype: str) -> None:
    with pytest.raises(
        errors.SpecMismatch, match=rf"'task': .*{re.escape(str(shape))} and dtype {dtype}; .*one axis of uint8"
    ):
        types.ArraySpec("task", shape, dtype, text=True)
