"""Steps of records thought over again: the recording's own numbers, its memory, and the nearest observations."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import policies
import pytest

import seedzero
from seedzero.acting.actors import agent_choice, saved_agents
from seedzero.acting.tables import recording, rethinking
from seedzero.config import configs, presets
from seedzero.core import errors, types
from seedzero.envs import registry
from seedzero.storage.checkpoints import player_files, run_dirs


def _recorded(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, env: str, *, mode: np.int8 = types.GREEDY, **changes: Any
) -> tuple[list[seedzero.Record], rethinking.Rethinker]:
    """Returns two episodes of a random agent, and its Rethinker, loaded from the run directory."""
    named = {name.replace("__", "."): value for name, value in changes.items()}
    preset = presets.get("catch" if env == "catch" else "tictactoe", str(named.get("run.agent", "muzero")))
    config = configs.override(preset, {"env.id": env, "env.random_opening": 0, **policies.SMALL, **named})
    made = registry.make(env, config.env, 1, role=types.Role.TRAIN)
    made.close()
    saved = policies.saved(made.spec, **changes)
    monkeypatch.setattr(
        saved_agents, "load", lambda _, config, spec: saved._replace(config=config, spec=spec, mode=mode)
    )
    with run_dirs.open_run_dir(path / "run", config, preset="catch", given={}) as opened:
        run_dirs.write_spec(opened.path, made.spec)
    recording.record(agent_choice.AgentChoice(opened.path, seed=3), path / "out", 2)
    found = [seedzero.read_record(file) for file in sorted((path / "out").iterdir())]
    return found, rethinking.load(agent_choice.AgentChoice(opened.path), found[0].header)


@pytest.mark.thorough
@pytest.mark.parametrize("changes", [{}, {"network__frame_stack": 3}], ids=["one frame", "three frames"])
def test_the_numbers_are_those_of_the_recording(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    episodes, again = _recorded(tmp_path, monkeypatch, "catch", mode=types.SAMPLE, **changes)
    assert episodes[1].header["first_call"] == episodes[0].num_steps == 9
    for record in episodes:
        for step in range(record.num_steps):
            thought = again.think(record, step)
            arrays = {name: array[step] for name, array in record.arrays.items() if name != "observation"}
            assert [choice.visits for choice in thought.choices] == arrays["visits"].tolist()
            assert thought.action == arrays["action"] and thought.step == 7
            for name in ("prior", "policy", "completed_q"):
                shown = [getattr(choice, name) for choice in thought.choices]
                np.testing.assert_allclose(shown, arrays[name], rtol=1e-5, atol=1e-6)
            for name in ("value", "network_value"):
                np.testing.assert_allclose(getattr(thought, name), arrays[name], rtol=1e-5, atol=1e-6)
            q_values = [choice.q_value or 0.0 for choice in thought.choices]
            np.testing.assert_allclose(q_values, arrays["q_value"], rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_a_frozen_player_thinks_in_place_of_a_checkpoint(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (record, _), again = _recorded(tmp_path, monkeypatch, "catch")
    path, name = tmp_path / "run", "main-0123456789ab"
    player_files.write(path / "checkpoints", name, 5, again._saved.params, {}, time=0.0)
    monkeypatch.undo()
    found = rethinking.load(agent_choice.AgentChoice(path, player=name), record.header).think(record, 2)
    assert (found.step, again.think(record, 2).step) == (5, 7)


@pytest.mark.thorough
def test_nodes_of_games_have_real_positions(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspiel")
    (record, _), again = _recorded(tmp_path, monkeypatch, "spiel:tic_tac_toe", mode=types.SAMPLE)
    thought = again.think(record, 3)
    assert thought.root is not None and thought.root.position is not None
    assert thought.root.position.count(".") == 6 and thought.name == record.arrays["move"][3]
    assert {node.is_legal for node in thought.nodes} <= {True, False}


@pytest.mark.thorough
def test_an_lstm_remembers_the_record_s_actions(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"run__agent": "vtrace", "network__lstm_width": 4}
    (record, _), again = _recorded(tmp_path, monkeypatch, "catch", mode=types.SAMPLE, **changes)
    policy = [[choice.policy for choice in again.think(record, step).choices] for step in range(record.num_steps)]
    np.testing.assert_allclose(policy, record.arrays["policy"], rtol=1e-5, atol=1e-6)
    other = {**record.arrays, "action": (record.arrays["action"] + 1) % 3}
    shown = again.think(dataclasses.replace(record, arrays=other), 4)
    assert not np.allclose([choice.policy for choice in shown.choices], policy[4], rtol=1e-3)
    assert again.nearest(record, 4, shown) == {}


@pytest.mark.thorough
def test_a_search_with_a_memory_begins_with_what_the_record_saw_and_did(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"muzero__memory": "lstm", "muzero__memory_width": 4}
    (record, _), again = _recorded(tmp_path, monkeypatch, "catch", mode=types.SAMPLE, **changes)
    for step in (0, 4, 8):
        thought = again.think(record, step)
        np.testing.assert_allclose(thought.value or 0.0, record.arrays["value"][step], rtol=1e-5, atol=1e-6)
        assert [choice.visits for choice in thought.choices] == record.arrays["visits"][step].tolist()
    other = {**record.arrays, "action": (record.arrays["action"] + 1) % 3}
    assert again.think(dataclasses.replace(record, arrays=other), 4).value != again.think(record, 4).value
    assert again.nearest(record, 4, again.think(record, 4)) == {}


@pytest.mark.thorough
def test_the_nearest_observation_is_so_by_latent_distance(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (record, _), again = _recorded(tmp_path, monkeypatch, "catch", network__frame_stack=2, search__num_simulations=12)
    thought = again.think(record, 4)
    found = again.nearest(record, 4, thought)
    assert found.keys() == {node.number for node in thought.nodes} and found[0].step == 4
    assert found[0].distance == pytest.approx(0, abs=1e-6)
    saved = again._saved
    model = saved.agent.model
    assert model is not None
    frames = record.arrays["observation"].astype(np.uint8)
    stacked = np.concatenate([frames[[0, *range(9)]], frames], axis=-1)
    known = np.asarray(jax.jit(model.represent)(saved.params, {types.OBSERVATION: stacked}))
    node = next(node for node in thought.nodes if node.depth == 2)
    assert node.parent is not None and node.action is not None
    state = known[4:5]
    for action in (thought.nodes[node.parent].action, node.action):
        state = np.asarray(model.dynamics(saved.params, state, jnp.array([action], jnp.int32))[0])
    distances = np.sqrt(np.square(known - state).reshape(10, -1).mean(axis=1))
    assert found[node.number].step == distances.argmin()
    assert found[node.number].distance == pytest.approx(distances.min(), rel=1e-4)
    monkeypatch.setattr(rethinking, "FRAMES_BEFORE", 1)
    monkeypatch.setattr(rethinking, "FRAMES_AFTER", 2)
    assert {nearest.step for nearest in again.nearest(record, 4, thought).values()} <= {3, 4, 5, 6}


def test_what_cannot_be_thought_over_is_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (record, _), again = _recorded(tmp_path, monkeypatch, "catch")
    with pytest.raises(errors.UsageError, match=r"step 9.*\b0\b.*\b8\b"):
        again.think(record, 9)
    spec = {**record.header["spec"], "num_actions": 4, "action_names": []}
    with pytest.raises(errors.UsageError, match="other observations"):
        again.think(dataclasses.replace(record, header={**record.header, "spec": spec}), 0)
    (record, _), again = _recorded(tmp_path / "apex", monkeypatch, "catch", run__agent="apex")
    with pytest.raises(errors.UsageError, match="agent apex has neither a search nor probabilities"):
        again.think(record, 0)


def test_a_hostile_header_is_not_believed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (record, _), again = _recorded(tmp_path, monkeypatch, "catch")
    wrong: dict[str, Any] = {
        "action_names": ["x", "x", {}],
        "seed": -1,
        "first_call": "x",
        "task": ["x"],
        "num_simulations": 10**9,
        "policy": ["x"],
    }
    shown = again.think(dataclasses.replace(record, header={**record.header, **wrong}), 2)
    assert shown.num_simulations == 3 and shown.name in ("left", "stay", "right")
    choice = agent_choice.AgentChoice(tmp_path / "run")
    loaded = rethinking.load(choice, wrong)
    assert loaded._saved.config.search.num_simulations == 3
    fewer = rethinking.load(choice, {**wrong, "num_simulations": 2})
    assert fewer._saved.config.search.num_simulations == 2
    assert rethinking.load(choice, wrong, 5)._saved.config.search == (
        dataclasses.replace(loaded._saved.config.search, num_simulations=5)
    )
