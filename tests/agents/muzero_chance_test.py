"""Chance in MuZero's model: codes of a coin and of a die, the losses against numpy, and what it goes with."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import muzero_cases as cases
import numpy as np
import pytest

from seedzero import search as mcts
from seedzero.agents import base, muzero, muzero_chance, muzero_loss, muzero_model, muzero_search
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.networks import muzero_net
from seedzero.replay import ring_store, windowing

NUM_CODES = 32
NUM_ROWS = 64
BOARD = types.EnvSpec((4,), "float32", 3, num_players=2, has_chance=True)
DIE = types.EnvSpec((6,), "float32", 3, 0.0, 1.0)


def make_config(**changes: options.Value) -> configs.Config:
    usual = dict(
        muzero__chance_codes=NUM_CODES, optimizer__learning_rate=0.003, network__width=32, network__head_width=32
    )
    return cases.make_config(**{**usual, **changes})


def throws(config: configs.Config, num_sides: int, reward_size: float, seed: int) -> windowing.Windows:
    """Throws of a die: each observation shows the side on top, whose number times a size is the next step's reward.

    Actions change nothing.
    """
    random = np.random.default_rng(seed)
    shape = (NUM_ROWS, config.muzero.unroll_steps + config.muzero.n_step + 1)
    side = random.integers(num_sides, size=shape)
    stored = {
        "action": random.integers(0, 3, shape).astype(np.int32),
        "policy": np.full((*shape, 3), 1 / 3, np.float32),
        "value": np.zeros(shape, np.float32),
    }
    shown = np.eye(6, dtype=np.float32)[side[:, : len(muzero_loss.offsets(config))]]
    reward = reward_size * np.roll(side, 1, axis=1).astype(np.float32)
    return agent_cases.windows(shown, reward=reward, stored=stored)


class Learned(NamedTuple):
    """A model of a die behind some updates."""

    parts: muzero_model.Parts
    params: base.Params
    loss_code: float
    codes_in_use: float

    def codes(self, num_sides: int) -> list[int]:
        """Returns the code of each side that follows the first one."""
        network, sides = self.parts.network, jnp.eye(6)[:num_sides]
        assert network.chance is not None
        hidden = network.represent(self.params, {types.OBSERVATION: sides})
        preference = network.chance.encode(self.params, jnp.broadcast_to(hidden[:1], hidden.shape), hidden)
        found: list[int] = jnp.argmax(preference, axis=-1).tolist()
        return found


def learn(config: configs.Config, num_sides: int, reward_size: float, *, looks: Sequence[int]) -> Iterator[Learned]:
    """Yields the model of a die behind these numbers of updates."""
    agent, parts = muzero.make(config, DIE, "cpu"), muzero_model.make_parts(config, DIE, "cpu")
    update = jax.jit(lambda state, windows, key: agent.update(state, windows, key, None))
    state = jax.jit(agent.init)(jax.random.key(0))
    # All outcomes begin with one code: whoever tells them apart has learned to.
    params, last = dict(state.params), state.params["encoder"]["Dense_1"]
    params["encoder"] = {**params["encoder"], "Dense_1": {**last, "kernel": jnp.zeros_like(last["kernel"])}}
    state = state._replace(params=params)
    for number in range(max(looks)):
        windows = throws(config, num_sides, reward_size, number)
        state, _, metrics = update(state, windows, jax.random.key(number))
        if number + 1 in looks:
            yield Learned(parts, state.params, float(metrics["loss_code"]), float(metrics["codes_in_use"]))


@pytest.mark.parametrize(("num_sides", "reward_size", "consistency_weight"), [(2, 0.0, 0.0), (6, 1.0, 2.0)])
def test_each_side_gets_a_code_and_codes_are_as_hard_to_predict_as_the_die(
    num_sides: int, reward_size: float, consistency_weight: float
) -> None:
    """All begin with one code, which is no surprise at all. The coin is seen, and never pays."""
    config = make_config(muzero__consistency_weight=consistency_weight)
    before, after = learn(config, num_sides, reward_size, looks=(1, 400))
    assert before.codes_in_use == pytest.approx(1.0)
    assert after.codes_in_use == pytest.approx(num_sides, rel=0.1)
    assert after.loss_code == pytest.approx(np.log(num_sides), abs=0.1)
    assert len(set(after.codes(num_sides))) == num_sides


def test_without_gradients_from_what_follows_all_sides_keep_one_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is what the test above must notice: codes that nothing drives are easy to predict, and say nothing."""
    encode = muzero_chance.encode

    def without_gradients(*args: Any) -> muzero_chance.Outcomes:
        return jax.lax.stop_gradient(encode(*args))

    monkeypatch.setattr(muzero_chance, "encode", without_gradients)
    (after,) = learn(make_config(muzero__consistency_weight=2.0), 6, 1.0, looks=(100,))
    assert after.codes_in_use == pytest.approx(1.0) and after.loss_code < 0.1


def test_the_prediction_of_codes_teaches_the_encoder_nothing() -> None:
    """The commitment does, and so do rewards; neither reaches what was seen later."""
    config = make_config()
    parts = muzero_model.make_parts(config, DIE, "cpu")
    params = jax.jit(functools.partial(muzero_model.init, parts))(jax.random.key(0))
    windows = throws(config, 6, 1.0, 0)
    targets, taken = muzero_loss.make_targets(parts, params, windows), windows.valid[:, 1:3]
    root = parts.network.represent(params, windowing.observed(windows, 0))

    @jax.jit
    def gradients(params: base.Params) -> dict[str, base.Params]:
        def of_term(number: int) -> base.Params:
            def find(params: base.Params) -> jax.Array:
                outcomes = muzero_chance.encode(parts, params, windows, root, jax.random.key(0))
                action = windows.stored["action"][:, 0]
                after = [muzero_chance.step(parts, params, root, action, outcomes, taken[:, 0], k)[2] for k in (0, 1)]
                actions = windows.stored["action"][:, :2]
                terms = muzero_chance.terms(parts, params, jnp.stack(after, 1), outcomes, actions, targets, taken, 1.0)
                return jnp.sum(terms[number].errors)

            return jax.grad(find)(params)

        return {name: of_term(number) for number, name in enumerate(("outcome", "code", "commitment", "value"))}

    found = gradients(params)

    def size(term: str, module: str) -> float:
        return sum(float(jnp.sum(jnp.abs(leaf))) for leaf in jax.tree.leaves(found[term][module]))

    assert size("code", "encoder") == size("value", "encoder") == 0
    assert size("commitment", "encoder") > 0 and size("outcome", "encoder") > 0 and size("outcome", "outcome") > 0
    assert size("code", "code_head") > 0 and size("value", "afterstate_head") > 0
    assert all(size(term, "representation") == 0 for term in found)


class _Hand:
    """A model of numbers: an action makes a state s an afterstate s + action, code c makes that s + action + 10 c."""

    def __init__(self, config: configs.Config, spec: types.EnvSpec = cases.SPEC) -> None:
        def resolve(params: Any, afterstate: jax.Array, code: jax.Array) -> tuple[jax.Array, jax.Array]:
            number = code if code.ndim == 1 else code @ jnp.arange(float(NUM_CODES))
            rewards = cases.certain(jnp.full(len(code), 2.0))
            if spec.moves_again:
                rewards = jnp.concatenate([rewards, number[:, None] - 0.5], axis=1)
            return afterstate + 10.0 * number[:, None], rewards

        chance = muzero_net.ChanceFunctions(
            NUM_CODES,
            decide=lambda params, s, action: s + action[:, None],
            predict=lambda params, s: (s * jnp.arange(1.0, 1 + NUM_CODES), cases.certain(s[:, 0])),
            resolve=resolve,
            encode=lambda params, before, after: params["preference"] + jnp.zeros((len(before), 1)),
        )

        def predict(params: Any, s: jax.Array) -> tuple[jax.Array, jax.Array]:
            return jnp.zeros((len(s), 3)), cases.certain(s[:, 0] / 10)

        self.parts = cases.model(config, spec, predict=predict, chance=chance)
        self.params = {"preference": jnp.zeros(NUM_CODES).at[3].set(2.0).at[5].set(1.0)}


def test_the_losses_are_what_numpy_computes() -> None:
    hand, config = _Hand(make_config()), make_config()
    windows = cases.make_windows(config, 3)
    windows = windows._replace(valid=windows.valid.at[1, 2:].set(False))
    afterstates = np.random.default_rng(0).normal(size=(cases.BATCH, 2, 1)).astype(np.float32)
    targets = muzero_loss.make_targets(hand.parts, hand.params, windows)
    root = jnp.zeros((cases.BATCH, 4))
    outcomes = muzero_chance.encode(hand.parts, hand.params, windows, root, jax.random.key(0))
    taken = windows.valid[:, 1:3]
    actions = windows.stored["action"][:, :2]

    def terms(afterstates: Any) -> list[muzero_chance.Term]:
        return muzero_chance.terms(
            hand.parts, hand.params, jnp.asarray(afterstates), outcomes, actions, targets, taken, 2.0
        )

    outcome, code, commitment, value = terms(afterstates)
    seen = np.concatenate([root[:, None], agent_cases.shown(windows)[:, 1:]], axis=1)
    error = seen[:, :2] + np.asarray(actions)[..., None] + 30.0 - seen[:, 1:]  # 10 times code 3
    np.testing.assert_allclose(outcome.errors, np.mean(error**2, axis=-1), rtol=1e-5)
    logits = afterstates * np.arange(1, 1 + NUM_CODES)
    np.testing.assert_allclose(code.errors, np.log(np.exp(logits).sum(-1)) - logits[..., 3], rtol=1e-5)
    np.testing.assert_allclose(commitment.errors, (2 - 1) ** 2 + 1**2, rtol=1e-6)  # of codes 3 and 5
    # At its own value an error is the entropy of the bins that stand for it, elsewhere more.
    right = terms(targets.q_estimate[:, :2, None] / 2.0)[-1]
    assert (np.asarray(value.errors) > np.asarray(right.errors)).all() and float(right.errors.max()) < np.log(2) + 1e-3
    assert not value.mask[1, 1] and not code.mask[1, 1] and value.mask.sum() == 2 * cases.BATCH - 1
    assert value.weight == config.muzero.value_loss_weight and commitment.weight == muzero_chance.COMMITMENT_WEIGHT


def test_codes_are_the_encoder_s_and_behind_an_end_drawn_as_predicted() -> None:
    config, num_rows = make_config(), 4_000
    hand = _Hand(config)
    predicted = jnp.log(jnp.arange(1.0, 1 + NUM_CODES) / sum(range(1, 1 + NUM_CODES)))
    chance = hand.parts.network.chance
    assert chance is not None
    parts = cases.with_functions(hand.parts, chance=chance._replace(predict=lambda params, s: (predicted + 0 * s, s)))
    windows = agent_cases.windows(np.zeros((num_rows, 3, 1)), stored={"action": np.zeros((num_rows, 5), np.int32)})
    root, actions = jnp.zeros((num_rows, 1)), jnp.ones((num_rows, 2), jnp.int32)
    taken = jnp.broadcast_to(jnp.array([True, False]), (num_rows, 2))
    outcomes = muzero_chance.encode(parts, hand.params, windows, root, jax.random.key(3))
    found = muzero_loss.unroll(parts, hand.params, root, actions, taken, jax.random.key(0), outcomes)
    states, afterstates = np.asarray(found[3])[..., 0], np.asarray(found[4])[..., 0]
    assert (afterstates[:, 0] == 1).all() and (states[:, 1] == 31).all()  # of code 3
    drawn = np.round((states[:, 2] - afterstates[:, 1]) / 10).astype(int)
    np.testing.assert_allclose(np.bincount(drawn) / num_rows, np.exp(predicted), atol=0.03)


def test_codes_and_actions_behind_an_end_are_drawn_from_noise_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    noises: list[np.ndarray] = []

    def keeping(function: Any, noise_of: Any) -> Any:
        def run(*arguments: Any) -> Any:
            found = function(*arguments)
            noises.append(np.asarray(noise_of(found)))
            return found

        return run

    monkeypatch.setattr(muzero_chance, "encode", keeping(muzero_chance.encode, lambda outcomes: outcomes.noise))
    monkeypatch.setattr(muzero_loss, "_noise", keeping(muzero_loss._noise, lambda noise: noise))
    config = make_config(muzero__chance_codes=3)  # as many as actions
    parts = muzero_model.make_parts(config, DIE, "cpu")
    params = jax.jit(functools.partial(muzero_model.init, parts))(jax.random.key(0))
    cases.loss_and_metrics(parts, params, throws(config, 6, 1.0, 0))
    of_codes, of_actions = noises
    assert of_codes.shape == of_actions.shape and not (of_codes == of_actions).any()


def test_codes_in_use_are_the_perplexity_of_all() -> None:
    code = jax.nn.one_hot(jnp.array([[0, 0], [1, 2], [1, 3]]), NUM_CODES)
    every, first = np.ones((3, 2), bool), np.array([[True, True], [False, False], [False, False]])
    share = np.array([2, 2, 1, 1]) / 6
    np.testing.assert_allclose(muzero_chance.codes_in_use(code, every), np.exp(-share @ np.log(share)), rtol=1e-5)
    np.testing.assert_allclose(muzero_chance.codes_in_use(code, first), 1.0, rtol=1e-5)


@pytest.mark.parametrize(
    ("spec", "signs"),
    [
        (types.EnvSpec((4,), "float32", 3), (1, 1)),
        (BOARD, (-1, -1)),
        (dataclasses.replace(BOARD, moves_again=True), (1, -1)),
    ],
    ids=["one player", "two in turn", "who may move again"],
)
def test_the_search_goes_through_afterstates_and_the_sign_is_that_of_the_code(
    spec: types.EnvSpec, signs: tuple[int, int]
) -> None:
    parts = _Hand(make_config(), spec).parts
    model = muzero_search.recurrent_fn(parts)
    assert isinstance(model, mcts.ChanceFn) and model.num_codes == NUM_CODES
    found, afterstate = model.decide({}, jnp.array([1, 2]), jnp.ones((2, 1)))
    np.testing.assert_allclose(afterstate, [[2], [3]])
    np.testing.assert_allclose(found.value, [2, 3], rtol=1e-3)  # of the player who moved
    prediction, states = model.resolve({}, jnp.array([0, 1]), afterstate)
    np.testing.assert_allclose(states, [[2], [13]])
    np.testing.assert_allclose(prediction.value, [0.2, 1.3], rtol=1e-2)
    np.testing.assert_allclose(prediction.discount, 0.5 * np.array(signs))


EVERYTHING: dict[str, options.Value] = {
    "network.frame_stack": 2,
    "muzero.consistency_weight": 1.0,
    "muzero.consistency_steps": 1,
    "muzero.predict_ends": True,
    "muzero.policy_gradient_weight": 0.5,
    "muzero.target_network_updates": 5,
    "muzero.off_policy_correction": True,
    "reanalyse.fresh_share": 0.5,
    "reanalyse.per_insert": 1.0,
}


@pytest.mark.parametrize(
    ("changes", "spec"),
    [
        (EVERYTHING, cases.SPEC),
        ({"search.policy": "puct"}, BOARD),
        ({"muzero.n_step": 3, "reanalyse.fresh_share": 1.0}, dataclasses.replace(BOARD, moves_again=True)),
        ({"league.freeze_every": 10, "league.opponent_model": True}, BOARD),
        ({"network.kind": "resnet", "network.resnet_size": "small"}, types.EnvSpec((32, 32, 1), "uint8", 3)),
    ],
    ids=["everything", "a board", "a board where one may move again", "a league", "images"],
)
def test_chance_is_learned_beside_other_targets_and_models(
    changes: dict[str, options.Value], spec: types.EnvSpec
) -> None:
    config = configs.override(make_config(), changes)
    agent = muzero.make(config, spec, "cpu")
    num_observations = len(muzero_loss.offsets(config))
    windows = cases.make_windows(config, num_observations)
    random, shape = np.random.default_rng(1), windows.valid.shape
    size = (cases.BATCH, num_observations, *spec.observation_shape[:-1], spec.observation_shape[-1] * agent.stack)
    windows = agent_cases.show(windows, random.integers(0, 2, size).astype(spec.observation_dtype))
    mover = random.integers(0, 2, shape).astype(np.int8)
    more = {"probability": np.full(shape, 0.5, np.float32), "mover": mover, ring_store.OWN: random.random(shape) < 0.7}
    windows = agent_cases.store(windows, **{name: x for name, x in more.items() if name in agent.stored})
    windows = windows._replace(valid=windows.valid.at[1, 2:].set(False))
    state = jax.jit(agent.init)(jax.random.key(0))
    update = jax.jit(lambda state, windows, key: agent.update(state, windows, key, None))
    after, _, metrics = update(state, windows, jax.random.key(1))
    assert all(np.isfinite(float(x)) for x in metrics.values())
    assert float(metrics["loss_code"]) == pytest.approx(np.log(NUM_CODES) * 7 / 8, rel=1e-4)  # of 8 steps 7 were seen
    assert int(after.num_updates) == 1 and float(metrics["loss_afterstate_value"]) > 0


def test_without_codes_nothing_of_them_is_made() -> None:
    config = make_config(muzero__chance_codes=0)
    parts = muzero_model.make_parts(config, cases.SPEC, "cpu")
    params = jax.eval_shape(parts.network.init, jax.random.key(0))
    assert not {"outcome", "code_head", "afterstate_head", "encoder"} & set(params) and parts.network.chance is None
    assert not isinstance(muzero_search.recurrent_fn(parts), mcts.ChanceFn)
    assert muzero_loss.offsets(config) == (0,) and muzero_loss.offsets(make_config()) == (0, 1, 2)
