"""A new run starts from the parameters of another one, and from nothing else of it."""

from __future__ import annotations

import functools
import pathlib
import shutil
import types as python_types
from collections.abc import Mapping
from typing import Any

import fake_gcs
import jax
import jax.numpy as jnp
import loop_world
import numpy as np
import pytest

from seedzero.agents import base
from seedzero.config import configs, options
from seedzero.core import errors, packing, types
from seedzero.device import meshes, setups, states
from seedzero.envs import pgx_rules
from seedzero.learner import first_players
from seedzero.networks import actor_critic
from seedzero.storage.checkpoints import checkpoint, checkpoint_dir, player_files, run_dirs, trees

FROZEN = "main-0123456789ab"
SETTINGS: dict[str, dict[str, options.Value]] = {
    "ppo": loop_world.PPO,
    "muzero": loop_world.MUZERO,
    "apex": {"run.agent": "apex", "network.width": 8, "network.kind": "mlp"},
    "r2d2": {"run.agent": "r2d2", "network.width": 8, "network.lstm_width": 4},
    "sac": {"run.agent": "sac", "network.width": 8},
    "alphazero": {"run.agent": "alphazero", "env.id": "pgx:jax_nim:NIM", "network.width": 8},
    "vtrace, popart": {**loop_world.VTRACE, "vtrace.popart": True},
    "ppo, central": {**loop_world.PPO, "network.normalize_observations": True, "reward.normalize": True},
    "ppo, central, plain": {**loop_world.PPO, "network.normalize_observations": False, "reward.normalize": False},
    "muzero, target": {**loop_world.MUZERO, "muzero.target_network_updates": 5, "muzero.consistency_weight": 1.0},
}
"""Settings of agents, and of options that keep parameters or statistics apart."""
CENTRAL = packing.add_training_only(loop_world.SPEC, types.ArraySpec("joint", (3,), "float32", training_only=True))
VECTORS = types.EnvSpec((3,), "float32", 0, action_low=(-2.0, 0.0), action_high=(2.0, 1.0))


@functools.cache
def _setup(agent: str, *changes: tuple[str, options.Value]) -> tuple[configs.Config, setups.Setup]:
    values = {**loop_world.SETTINGS, **SETTINGS[agent], **dict(changes)}
    config = configs.override(configs.of_agent(agent.partition(",")[0]), values)
    spec = {"sac": VECTORS}.get(agent, CENTRAL if "central" in agent else loop_world.SPEC)
    spec = pgx_rules.game("jax_nim:NIM").spec(has_state=True) if agent == "alphazero" else spec
    return config, setups.make(config, spec, meshes.make(1))


def _trained(setup: setups.Setup, seed: int = 7) -> base.TrainState:
    """Returns a train state of other numbers everywhere."""
    train = states.init_train(setup, seed)
    return jax.tree.map(lambda x: x + jnp.ones((), x.dtype), train)


def _write(path: pathlib.Path, agent: str, players: Mapping[str, Any], *changes: tuple[str, options.Value]) -> None:
    """Writes a run with a checkpoint of update 30, and a frozen player."""
    config, setup = _setup(agent, *changes)
    with run_dirs.open_run_dir(path, config, preset="catch", given={"run.agent": agent}) as opened:
        files = checkpoint_dir.CheckpointDir(opened.checkpoints, config.checkpoint, lambda: 0.0)
        parts = checkpoint.by_player({name: states.parts(setup.agent, train) for name, train in players.items()})
        files.write(30, checkpoint.parts_of(trees.copy(parts)), {"num_updates": 30}, (), None)
        given = states.snapshot(setup.agent, next(iter(players.values())))
        params, scales = jax.device_get((given.params, dict(given.scales)))
        player_files.write(opened.checkpoints, FROZEN, 20, params, {}, time=0.0, scales=scales)


def _saves(config: configs.Config, text: str, said: list[str] | None = None) -> Any:
    config = configs.override(config, {"run.init_from": text})
    return python_types.SimpleNamespace(config=config, hosts=None, report=(said if said is not None else []).append)


def _make(agent: str, text: str, said: list[str] | None = None, *changes: tuple[str, options.Value]) -> Any:
    config, setup = _setup(agent, *changes)
    return first_players.make_states(_saves(config, text, said), [setup], {"main": 0}, {"main": 3})["main"]


def _is_same(one: Any, other: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(*map(jax.tree.leaves, (one, other)), strict=True))


@pytest.mark.thorough
@pytest.mark.parametrize("agent", SETTINGS)
def test_parameters_and_statistics_are_the_other_run_s_and_the_rest_begins_anew(
    agent: str, tmp_path: pathlib.Path
) -> None:
    _, setup = _setup(agent)
    source, told = _trained(setup), list[str]()
    _write(tmp_path / "run", agent, {"main": source})
    made, new = _make(agent, str(tmp_path / "run"), told), states.init_train(setup, 3)
    assert jax.tree.structure(made) == jax.tree.structure(new)  # an update takes it
    begin = {"opt_state", "num_updates", "num_rejected", "bonus"}
    for name in made._fields:
        if name == "target_params" and jax.tree.structure(made.target_params) == jax.tree.structure(made.params):
            assert _is_same(made.target_params, made.params)
        else:
            assert _is_same(getattr(made, name), getattr(new if name in begin else source, name)), name
    assert not _is_same(made.params, new.params)
    assert told == [f"starts from update 30 of {tmp_path / 'run'}; optimizer and counters begin at 0"]


@pytest.mark.thorough
def test_a_central_value_begins_anew_from_a_frozen_player_and_ends_with_it(tmp_path: pathlib.Path) -> None:
    _, setup = _setup("ppo, central")
    source, new = _trained(setup), states.init_train(setup, 3)
    _write(tmp_path / "run", "ppo, central", {"main": source})
    made = _make("ppo, central", f"{tmp_path / 'run'}:{FROZEN}")
    acting, name = setup.agent.acting, actor_critic.PARAMS
    assert _is_same(acting(made), acting(source)) and _is_same(made.params[name], new.params[name])
    changes = tuple(SETTINGS["ppo, central"].items())
    without = _make("ppo", str(tmp_path / "run"), None, *changes)  # whose acting has the same parameters
    assert _is_same(without.params, acting(source).params)


@pytest.mark.thorough
def test_a_damaged_newest_checkpoint_is_named(tmp_path: pathlib.Path) -> None:
    _, setup = _setup("ppo")
    source, told = _trained(setup), list[str]()
    _write(tmp_path / "run", "ppo", {"main": source})
    steps = tmp_path / "run" / "checkpoints" / "steps"
    shutil.copytree(steps / "000000000030", steps / "000000000040")  # whose manifest is of another update
    made = _make("ppo", str(tmp_path / "run"), told)
    assert _is_same(made.params, source.params) and "starts from update 30" in told[1]
    assert "checkpoint 40 is skipped: manifest.json is damaged: it is that of checkpoint 30, not 40" in told[0]


@pytest.mark.thorough
def test_a_player_of_a_league_is_named(tmp_path: pathlib.Path) -> None:
    _, setup = _setup("ppo")
    place = tmp_path / "run"
    players = {"main": _trained(setup), "main_exploiter": _trained(setup, seed=8)}
    _write(place, "ppo", players)
    for player, source in (("main_exploiter", "main_exploiter"), ("main", "main"), (FROZEN, "main"), ("", "main")):
        made = _make("ppo", f"{place}:{player}" if player else str(place))
        assert _is_same(setup.agent.acting(made), setup.agent.acting(players[source]))
    with pytest.raises(errors.ResumeError, match=r"no player wolf; .*one of main, main_exploiter"):
        _make("ppo", f"{place}:wolf")


@pytest.mark.thorough
def test_policies_without_a_first_one_are_named(tmp_path: pathlib.Path) -> None:
    train = _trained(_setup("ppo")[1])
    _write(tmp_path / "run", "ppo", {"sheep": train, "wolf": train})
    with pytest.raises(
        errors.ResumeError, match=r"policies have names; give --init_from=.*:PLAYER, one of sheep, wolf"
    ):
        _make("ppo", str(tmp_path / "run"))


@pytest.mark.thorough
def test_arrays_of_other_shapes_are_named_with_the_setting(tmp_path: pathlib.Path) -> None:
    _write(tmp_path / "run", "ppo", {"main": _trained(_setup("ppo")[1])})
    with pytest.raises(errors.ResumeError, match=r"\[8, 3\].*\[4, 3\].*--network\.width=8 there, 4 here"):
        _make("ppo", str(tmp_path / "run"), None, ("network.width", 4))


def test_another_agent_is_refused(tmp_path: pathlib.Path) -> None:
    _write(tmp_path / "run", "ppo", {"main": _trained(_setup("ppo")[1])})
    with pytest.raises(errors.ConfigError, match=r"--agent=ppo.*--agent=apex.*--agent=ppo.*--init_from"):
        _make("apex", str(tmp_path / "run"))


@pytest.mark.thorough
def test_statistics_that_the_other_run_lacks_begin_anew_with_a_message(tmp_path: pathlib.Path) -> None:
    without = ("reward.normalize", False)
    _write(tmp_path / "run", "ppo", {"main": _trained(_setup("ppo", without)[1])}, without)
    told: list[str] = []
    made = _make("ppo", str(tmp_path / "run"), told, ("reward.normalize", True))
    new = states.init_train(_setup("ppo", ("reward.normalize", True))[1], 3)
    assert _is_same(made.returns, new.returns)
    assert "returns" in told[1]


@pytest.mark.thorough
def test_a_run_in_a_bucket_is_fetched_without_its_replay(gcs: fake_gcs.FakeGcs, tmp_path: pathlib.Path) -> None:
    _, setup = _setup("muzero")
    source = _trained(setup)
    _write(tmp_path / "run", "muzero", {"main": source})
    for file in (tmp_path / "run").rglob("*"):
        if file.is_file():
            gcs.put("runs", f"team/one/{file.relative_to(tmp_path / 'run').as_posix()}", file.read_bytes())
    for player in ("", ":main", f":{FROZEN}"):
        made = _make("muzero", f"gs://runs/team/one{player}")
        assert _is_same(setup.agent.acting(made), setup.agent.acting(source))


@pytest.mark.thorough
def test_hosts_behind_the_first_and_resumes_read_nothing(tmp_path: pathlib.Path) -> None:
    config, setup = _setup("ppo")
    new = states.init_train(setup, 3)
    for index, step in ((1, 0), (0, 30)):
        saves = _saves(config, str(tmp_path / "nowhere"))
        saves.hosts = python_types.SimpleNamespace(index=index, step=step)
        made = first_players.make_states(saves, [setup], {"main": 0}, {"main": 3})
        assert _is_same(made["main"], new)
    with pytest.raises(errors.ResumeError, match="nowhere"):
        saves.hosts.step = 0
        first_players.make_states(saves, [setup], {"main": 0}, {"main": 3})


def test_nothing_is_read_without_the_setting() -> None:
    assert run_dirs.ORIGIN_SETTING in configs.fields()
    assert _is_same(_make("ppo", ""), states.init_train(_setup("ppo")[1], 3))
