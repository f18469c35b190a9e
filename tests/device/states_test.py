"""The state on the devices, and its parts in a checkpoint."""

from __future__ import annotations

from typing import Any, NamedTuple

import fake_agent
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import base
from seedzero.core import errors, types
from seedzero.device import acting, meshes, setups, states, strategies, tracing
from seedzero.replay import ring_store, sources


def _setup(num_devices: int = 2, **options: Any) -> setups.Setup:
    stored = {"state": sources.Stored((3,), np.dtype(np.float32), every=4)}
    agent = fake_agent.make(stack=3, stored=stored, **options)
    return fake_agent.make_setup(agent, num_devices, num_evaluate=2)


def _shapes(tree: Any) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)


@pytest.mark.parametrize("num_devices", [1, 2])
def test_abstract_states_are_the_shapes_of_the_initial_ones(num_devices: int) -> None:
    prioritization = sources.Prioritization(0.5, 0.4, 0.01)
    setup = _setup(num_devices, data=fake_agent.ONE_ROW._replace(prioritization=prioritization))
    actor = states.init_actor(setup)
    assert states.abstract_actor(setup) == _shapes(actor)
    assert states.abstract_train(setup) == _shapes(states.init_train(setup, 0))
    assert actor.rings.max_weight is not None and actor.rings.max_weight.shape == (num_devices,)


def test_all_programs_of_a_run_are_compiled_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = fake_agent.make_setup(fake_agent.make(), 1)
    tracer = tracing.ProgramTracer(
        setup, states.abstract_train(setup), states.abstract_actor(setup), strategies.Strategy().held
    )
    monkeypatch.setattr(meshes, "CPU_OPTIONS", {"xla_unknown": 1})
    for compiled in (
        lambda: states.init_train(setup, 0),
        lambda: states.init_actor(setup),
        lambda: tracer.act(setup.sizes[-1]).compile(),
    ):
        with pytest.raises(jax.errors.JaxRuntimeError, match="xla_unknown"):
            compiled()


def test_the_acting_state_has_rings_for_training_slots_and_memory_for_all() -> None:
    setup = _setup()
    actor = states.init_actor(setup)
    assert actor.rings.observation.shape == (4, 12, 1)
    assert actor.rings.stored["state"].shape == (4, 3, 3)
    assert actor.rings.stored["version"].shape == (4, 12)
    assert actor.rings.max_weight is None
    assert actor.carried.past[types.OBSERVATION].shape == (6, 1, 2) and actor.carried.memory.shape == (6,)
    for leaf in jax.tree.leaves(actor):
        assert leaf.sharding == meshes.sharded(setup.mesh) and not np.asarray(leaf).any()
    carried = states.init_carried(setup, begins=False)
    assert _shapes(carried) == _shapes(actor.carried)


@pytest.mark.thorough
@pytest.mark.parametrize("size", [2, 2000])
def test_environments_take_and_put_what_they_carry(size: int) -> None:
    """Large frames lie in rows of 128 numbers."""
    rng = np.random.default_rng(0)
    past = rng.integers(256, size=(5, size, 1, 2)).astype(np.uint8)
    frames = ring_store.zero_rows(5, 1, past.shape[1:], past.dtype)
    everyone, only = jnp.arange(5), jnp.zeros(5, jnp.int32)
    table = acting.Carried({"x": ring_store.put_rows(frames, everyone, only, jnp.asarray(past))}, jnp.arange(5.0))
    slot = jnp.asarray([3, 1, 7])
    taken = acting.take_carried(table, slot)
    np.testing.assert_array_equal(taken.past["x"][:2], past[[3, 1]])
    np.testing.assert_array_equal(taken.memory[:2], [3, 1])
    new = rng.integers(256, size=(3, size, 1, 2)).astype(np.uint8)
    table = acting.put_carried(table, slot, acting.Carried({"x": jnp.asarray(new)}, jnp.asarray([30.0, 10.0, 70.0])))
    past[[3, 1]] = new[:2]
    found = acting.take_carried(table, everyone)
    np.testing.assert_array_equal(found.past["x"], past)
    np.testing.assert_array_equal(found.memory, [0, 10, 2, 30, 4])


def test_frames_may_be_left_to_the_host() -> None:
    actor = states.init_actor(_setup(), holds_frames=False)
    assert actor.rings.observation is None and actor.rings.reward.shape == (4, 12)


def test_every_device_has_the_train_state_of_the_players_seed() -> None:
    agent = fake_agent.make()._replace(init=lambda key: {"number": jax.random.normal(key)})
    setup, numbers = fake_agent.make_setup(agent, 2), []
    for seed in (3, 3, 4):
        train = states.init_train(setup, seed)
        assert train["number"].sharding == meshes.replicated(setup.mesh)
        numbers.append(float(train["number"]))
    assert numbers[0] == numbers[1] == pytest.approx(float(jax.random.normal(jax.random.key(3)))) != numbers[2]


def test_an_agent_whose_acting_parameters_are_no_fields_takes_no_snapshot() -> None:
    setup = fake_agent.make_setup(fake_agent.make(acting=_counting))
    train = states.init_train(setup, 0)
    with pytest.raises(
        errors.ConfigError,
        match=r"`acting` returns dict; expected .*params or a NamedTuple of its params, .*--init_from",
    ):
        states.with_snapshot(setup, train, states.snapshot(setup.agent, train))


class _Separate(NamedTuple):
    """A train state whose target network is that of the critic alone, which acting does without."""

    actor: Any
    critic: Any
    target_params: Any


class _Actor(NamedTuple):
    actor: Any


class _Joint(NamedTuple):
    params: Any
    target_params: Any


@pytest.mark.parametrize(
    ("begin", "acting"),
    [
        (lambda weight: _Separate(weight, {"q": weight}, {"q": weight}), lambda state: _Actor(state.actor)),
        (lambda weight: _Joint({"actor": weight, "q": weight}, {"q": weight}), lambda state: state.params),
    ],
)
def test_a_target_network_of_fewer_parameters_does_not_take_those_of_acting(begin: Any, acting: Any) -> None:
    setup = fake_agent.make_setup(fake_agent.make(acting=acting)._replace(init=lambda key: begin(jnp.zeros(()))))
    given = states.snapshot(setup.agent, begin(jnp.ones(())))
    found = states.with_snapshot(setup, states.init_train(setup, 0), given)
    assert found.target_params == {"q": 0.0}
    assert jax.tree.leaves(setup.agent.acting(found)) == jax.tree.leaves(given.params)


# Parts of a checkpoint ---------------------------------------------------------------------------------------------


def _counting(state: base.TrainState) -> Any:
    """More than the parameters: acting also needs the updates done."""
    return {"params": state.params, "num_updates": state.num_updates}


def test_parts_are_the_fields_unless_acting_takes_more_which_can_then_be_read_alone() -> None:
    agent, counting = fake_agent.make(), fake_agent.make(acting=_counting)
    train = states.init_train(fake_agent.make_setup(agent), 0)
    parts = states.parts(agent, train)
    assert parts == train._asdict() and parts["params"] is train.params
    assert states.parts(counting, train) == {"params": _counting(train), "train": train._asdict()}


@pytest.mark.parametrize("acting", [lambda state: state.params, _counting, lambda state: (state.params["weight"],)])
@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_train_state_comes_back_from_its_parts(acting: Any, is_abstract: bool) -> None:
    setup = fake_agent.make_setup(fake_agent.make(acting=acting))
    train = states.init_train(setup, 0)
    train = train._replace(
        num_updates=train.num_updates + 5, params={"weight": jnp.ones(()) * 7, "bias": jnp.ones(())}
    )
    saved = jax.tree.map(np.asarray, states.parts(setup.agent, train))
    like = states.abstract_train(setup) if is_abstract else states.init_train(setup, 0)
    back = states.from_parts(setup.agent, like, saved)
    assert type(back) is type(train)
    jax.tree.map(np.testing.assert_array_equal, back, train)
    jax.tree.map(np.testing.assert_array_equal, setup.agent.acting(back), saved["params"])


@pytest.mark.parametrize("acting", [lambda state: state.params, _counting])
def test_the_parts_of_shapes_are_those_of_the_state(acting: Any) -> None:
    """A checkpoint is read into the shapes of its parts."""
    setup = fake_agent.make_setup(fake_agent.make(acting=acting))
    abstract = states.parts(setup.agent, states.abstract_train(setup))
    assert jax.tree.structure(abstract) == jax.tree.structure(states.parts(setup.agent, states.init_train(setup, 0)))
