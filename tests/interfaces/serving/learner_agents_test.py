"""Players of a learner over the wire: those of its run directory, bit for bit, and newer ones as they come."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any, cast

import jax
import numpy as np
import pytest
import saved_league

from seedzero.acting.actors import agent_choice, saved_agents
from seedzero.config import sections
from seedzero.core import errors
from seedzero.interfaces.serving import followers
from seedzero.storage.checkpoints import trees
from seedzero.transport import messages, model_pool, security, servers

TOKEN = "0123456789abcdef"
SETTINGS = sections.TransportConfig(listen="127.0.0.1:0")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A run of Kuhn poker with a league's two frozen players."""
    return saved_league.make_seats(tmp_path_factory.mktemp("run"))


class Pool:
    """Gives the players of a run directory; main's version is the test's."""

    def __init__(self, run: pathlib.Path) -> None:
        self.run, self.version, self.damage = run, 90, 0.0
        self.config, self.spec = ((run / name).read_text() for name in ("config.json", "spec.json"))

    def offer(self) -> model_pool.PoolOffer:
        return model_pool.PoolOffer(
            self.config, self.spec, {"main": self.version}, (saved_league.OLD, saved_league.NEW)
        )

    def parameters(self, player: str) -> model_pool.Parameters:
        choice = agent_choice.AgentChoice(self.run, "last", None if player == "main" else player)
        saved = saved_agents.load(choice, *saved_agents.read(choice))
        params = jax.tree.map(np.array, saved.params)
        digest, arrays = trees.digest(params), jax.tree.leaves(params)
        arrays[0] += np.float32(self.damage)
        version = self.version if player == "main" else saved.update
        return model_pool.Parameters(version, digest, arrays)


@contextlib.contextmanager
def _pooling(run: pathlib.Path) -> Iterator[tuple[Pool, security.ClientSecurity]]:
    pool, nobody = Pool(run), cast(messages.Handler, None)
    server = servers.Server(nobody, SETTINGS, secured=security.ServerSecurity("the workers' own"), pool=(pool, TOKEN))
    address = server.start()
    try:
        yield pool, security.for_client(address, token=TOKEN)
    finally:
        server.stop(finished=False, reason="the test is over")


def _leaves(saved: saved_agents.SavedAgent) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(saved.params)]


def test_players_are_those_of_the_run_directory(run: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with _pooling(run) as (_, secured):
        choice = agent_choice.AgentChoice(tmp_path)
        there = followers.load_from_learner(secured, choice, (followers.ALL,)).players
        assert list(followers.load_from_learner(secured, choice, ()).players) == ["main"]
    here = followers.load(agent_choice.AgentChoice(run), (followers.ALL,)).players
    assert sorted(there) == sorted(here) and next(iter(there)) == "main"
    for name, saved in there.items():
        assert (saved.update, saved.mode) == (here[name].update, here[name].mode)
        assert all(np.array_equal(*pair) for pair in zip(_leaves(saved), _leaves(here[name]), strict=True))


def test_newer_parameters_and_new_players_come_once(run: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with _pooling(run) as (pool, secured):
        choice = agent_choice.AgentChoice(tmp_path)
        agents: Any = followers.load_from_learner(secured, choice, (saved_league.OLD, "main"))
        known = {name: saved.update for name, saved in agents.players.items()}
        assert known == {saved_league.OLD: 30, "main": 90} and list(agents.newer(known)) == []
        pool.version = 91
        assert [(name, saved.update) for name, saved in agents.newer(known)] == [("main", 91)]
        assert [name for name, _ in dataclasses.replace(agents, names=(followers.ALL,)).newer(known)] == [
            "main",
            saved_league.NEW,
        ]
        pool.version = 80  # the learner went back to a checkpoint
        with pytest.raises(errors.CheckpointError, match="has main of update 80"):
            list(agents.newer(known))


def test_faults_are_named(run: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with _pooling(run) as (pool, secured):
        choice = agent_choice.AgentChoice(tmp_path)
        with pytest.raises(errors.UsageError, match=r"--player=nobody: .* has main, main-\w+, main-"):
            followers.load_from_learner(secured, choice, ("main", "nobody"))
        with pytest.raises(errors.UsageError, match="does not search"):
            followers.load_from_learner(secured, dataclasses.replace(choice, simulations=4), ())
        agents = followers.load_from_learner(secured, choice, ())
        pool.damage = 1.0
        with pytest.raises(errors.CheckpointError, match=r"player main .*damaged"):
            agents.fetch("main")
        pool.config = pool.config.replace('"id": "', '"id": "another')
        with pytest.raises(errors.SpecMismatch, match="another run now; start this server again"):
            list(agents.newer({"main": 90}))
        pool.spec = "{}"
        with pytest.raises(errors.SpecMismatch, match="trains another run now; start this server again"):
            list(agents.newer({"main": 90}))


def test_a_learner_without_players_is_named(
    run: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _pooling(run) as (_, secured):
        monkeypatch.setattr(Pool, "offer", lambda pool: model_pool.PoolOffer(pool.config, pool.spec, {}, ()))
        with pytest.raises(errors.UsageError, match="no players to serve; try again later"):
            followers.load_from_learner(secured, agent_choice.AgentChoice(tmp_path), ())
