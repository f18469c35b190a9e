"""A new run starts from the parameters of another one, and from nothing else of it."""

from __future__ import annotations

import functools
import pathlib
import types
from collections.abc import Mapping
from typing import Any

import fake_gcs
import golden
import jax
import jax.numpy as jnp
import loop_world
import numpy as np
import pytest

from seedzero.agents import base
from seedzero.checkpoints import checkpoint, checkpoint_dir, origins, player_files, run_dirs, trees
from seedzero.config import configs, options
from seedzero.core import errors
from seedzero.device import meshes, setups, states
from seedzero.learner import first_states

FROZEN = "main-0123456789ab"
SETTINGS: dict[str, dict[str, options.Value]] = {
    "ppo": loop_world.PPO,
    "muzero": loop_world.MUZERO,
    "apex": {"run.agent": "apex", "network.width": 8, "network.kind": "mlp"},
}


@functools.cache
def _setup(agent: str, *changes: tuple[str, options.Value]) -> tuple[configs.Config, setups.Setup]:
    values = {**loop_world.SETTINGS, **SETTINGS[agent], **dict(changes)}
    config = configs.override(configs.of_agent(agent), values)
    return config, setups.make(config, loop_world.SPEC, meshes.make(1))


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
    return types.SimpleNamespace(config=config, hosts=None, report=(said if said is not None else []).append)


def _make(agent: str, text: str, said: list[str] | None = None, *changes: tuple[str, options.Value]) -> Any:
    config, setup = _setup(agent, *changes)
    return first_states.make(_saves(config, text, said), [setup], {"main": 0}, {"main": 3})["main"]


def _is_same(one: Any, other: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(*map(jax.tree.leaves, (one, other)), strict=True))


@pytest.mark.parametrize("agent", SETTINGS)
def test_parameters_and_statistics_are_the_other_run_s_and_the_rest_begins_anew(
    agent: str, tmp_path: pathlib.Path
) -> None:
    _, setup = _setup(agent)
    source, told = _trained(setup), list[str]()
    _write(tmp_path / "run", agent, {"main": source})
    made, new = _make(agent, str(tmp_path / "run"), told), states.init_train(setup, 3)
    acting = setup.agent.acting
    assert _is_same(acting(made), acting(source)) and not _is_same(acting(made), acting(new))
    assert all(_is_same(getattr(made, name), getattr(source, name)) for name in setup.agent.scales)
    assert _is_same(made.opt_state, new.opt_state) and int(made.num_updates) == 0
    if jax.tree.leaves(getattr(made, "target_params", ())):
        assert _is_same(made.target_params, made.params)
    assert told == [f"starts from update 30 of {tmp_path / 'run'}; optimizer and counters begin at 0"]


def test_a_player_of_a_league_is_named(tmp_path: pathlib.Path, said: golden.Said) -> None:
    _, setup = _setup("ppo")
    place = tmp_path / "run"
    players = {"main": _trained(setup), "main_exploiter": _trained(setup, seed=8)}
    _write(place, "ppo", players)
    for player, source in (("main_exploiter", "main_exploiter"), ("main", "main"), (FROZEN, "main"), ("", "main")):
        made = _make("ppo", f"{place}:{player}" if player else str(place))
        assert _is_same(setup.agent.acting(made), setup.agent.acting(players[source]))
    with said.raises(errors.ResumeError, "no player wolf"):
        _make("ppo", f"{place}:wolf")


def test_policies_without_a_first_one_are_named(tmp_path: pathlib.Path, said: golden.Said) -> None:
    train = _trained(_setup("ppo")[1])
    _write(tmp_path / "run", "ppo", {"sheep": train, "wolf": train})
    with said.raises(errors.ResumeError, "sheep, wolf"):
        _make("ppo", str(tmp_path / "run"))


def test_arrays_of_other_shapes_are_named_with_the_setting(tmp_path: pathlib.Path, said: golden.Said) -> None:
    _write(tmp_path / "run", "ppo", {"main": _trained(_setup("ppo")[1])})
    with said.raises(errors.ResumeError, "--network.width=8 there, 4 here"):
        _make("ppo", str(tmp_path / "run"), None, ("network.width", 4))


def test_another_agent_is_refused(tmp_path: pathlib.Path, said: golden.Said) -> None:
    _write(tmp_path / "run", "ppo", {"main": _trained(_setup("ppo")[1])})
    with said.raises(errors.ConfigError, "--agent=ppo"):
        _make("apex", str(tmp_path / "run"))


def test_statistics_that_the_other_run_lacks_begin_anew_with_a_message(tmp_path: pathlib.Path) -> None:
    without = ("reward.normalize", False)
    _write(tmp_path / "run", "ppo", {"main": _trained(_setup("ppo", without)[1])}, without)
    told: list[str] = []
    made = _make("ppo", str(tmp_path / "run"), told, ("reward.normalize", True))
    new = states.init_train(_setup("ppo", ("reward.normalize", True))[1], 3)
    assert _is_same(made.returns, new.returns)
    assert "returns" in told[1]


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


def test_hosts_behind_the_first_and_resumes_read_nothing(tmp_path: pathlib.Path) -> None:
    config, setup = _setup("ppo")
    new = states.init_train(setup, 3)
    for index, step in ((1, 0), (0, 30)):
        saves = _saves(config, str(tmp_path / "nowhere"))
        saves.hosts = types.SimpleNamespace(index=index, step=step)
        made = first_states.make(saves, [setup], {"main": 0}, {"main": 3})
        assert _is_same(made["main"], new)
    with pytest.raises(errors.ResumeError, match="nowhere"):
        saves.hosts.step = 0
        first_states.make(saves, [setup], {"main": 0}, {"main": 3})


def test_nothing_is_read_without_the_setting() -> None:
    assert origins.SETTING in configs.fields()
    assert _is_same(_make("ppo", ""), states.init_train(_setup("ppo")[1], 3))
