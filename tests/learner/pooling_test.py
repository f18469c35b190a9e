"""The learner's model pool: copies of parameters, made by the loop between two calls, and frozen players' files."""

from __future__ import annotations

import pathlib
import threading
import types as python_types
from collections.abc import Iterator
from typing import Any, cast

import jax
import loop_world
import numpy as np
import pytest

from seedzero.checkpoints import player_files, run_dirs, trees
from seedzero.config import sections
from seedzero.core import errors
from seedzero.learner import pooling
from seedzero.transport import model_pool, security

SECONDS = 600.0
FROZEN = "main-0123456789ab"
TOKEN = "0123456789abcdef"


@pytest.fixture
def world() -> Iterator[loop_world.World]:
    yield loop_world.World(loop_world.make_device(loop_world.PPO))


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> run_dirs.RunDir:
    (tmp_path / "config.json").write_text('{"a": 1}')
    (tmp_path / "spec.json").write_text('{"b": 2}')
    (tmp_path / "checkpoints").mkdir()
    given: Any = python_types.SimpleNamespace(path=tmp_path, checkpoints=tmp_path / "checkpoints")
    return cast(run_dirs.RunDir, given)


def _newest(world: loop_world.World) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(world.places[0].setup.agent.acting(world.player.train))]


def _asked(world: loop_world.World, pool: pooling.LearnerPool, player: str) -> list[Any]:
    """Returns the answer or the error of another thread, whose question wakes the loop."""
    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(pool.parameters(player))
        except errors.Error as error:
            found.append(error)

    known, thread = world.inbox.news.number, threading.Thread(target=ask)
    thread.start()
    world.inbox.news.wait_beyond(known, SECONDS)
    world.loop.step()
    thread.join(SECONDS)
    return found


def test_a_copy_has_the_newest_parameters_and_stays_as_it_is(
    world: loop_world.World, directory: run_dirs.RunDir
) -> None:
    pool = pooling.LearnerPool(directory, lambda: world.loop)
    assert pool.offer() == model_pool.PoolOffer('{"a": 1}', '{"b": 2}', {"main": 0}, ())
    before = [x.copy() for x in _newest(world)]
    (first,) = _asked(world, pool, "main")
    session = world.join()
    world.play(session, 2 * loop_world.UNROLL)
    assert world.num_updates > 0 and pool.offer().learning == {"main": world.num_updates}
    (second,) = _asked(world, pool, "main")
    assert (first.version, second.version) == (0, world.num_updates) and first.digest != second.digest
    for arrays, expected in ((first.arrays, before), (second.arrays, _newest(world))):
        assert all(np.array_equal(one, other) for one, other in zip(arrays, expected, strict=True))
    assert second.digest == trees.digest(trees.copy(world.places[0].setup.agent.acting(world.player.train)))


def test_frozen_players_come_from_their_files(world: loop_world.World, directory: run_dirs.RunDir) -> None:
    pool, like = pooling.LearnerPool(directory, lambda: world.loop), world.player.params
    params = jax.tree.map(lambda x: np.full(x.shape, 0.5, x.dtype), like)
    player_files.write(directory.checkpoints, FROZEN, 30, params, {}, time=0.0)
    found = pool.parameters(FROZEN)
    assert pool.offer().frozen == (FROZEN,) and (found.version, found.digest) == (30, trees.digest(params))


def test_there_may_be_no_such_player_or_no_networks(
    world: loop_world.World, directory: run_dirs.RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pooling.LearnerPool(directory, lambda: world.loop)
    (error,) = _asked(world, pool, "nobody")
    assert isinstance(error, errors.UsageError) and "nobody" in str(error)
    with pytest.raises(errors.UsageError, match="no networks yet"):
        pooling.LearnerPool(directory, lambda: None).offer()
    monkeypatch.setattr(pooling, "_COPY_SECONDS", 0.0)  # the loop is in a long call
    with pytest.raises(errors.UsageError, match="try again"):
        pool.parameters("main")
    with monkeypatch.context() as patch:
        patch.setattr(world.player, "copy_params", lambda: pytest.fail("nobody waits for this copy any more"))
        world.loop.step()
    left = world.loop.copies.ask("main")
    world.loop.close()
    assert left.cancelled()
    with pytest.raises(errors.UsageError, match="this run is over"):
        world.loop.copies.ask("main")


def test_a_learner_without_a_worker_offers_nothing_yet(world: loop_world.World, directory: run_dirs.RunDir) -> None:
    (directory.path / "spec.json").unlink()
    with pytest.raises(errors.UsageError, match="no worker has joined the learner"):
        pooling.LearnerPool(directory, lambda: world.loop).offer()


def test_the_pool_has_a_token_of_its_own(tmp_path: pathlib.Path, directory: run_dirs.RunDir) -> None:
    (tmp_path / "token").write_text(TOKEN)
    settings, loop = sections.ServeConfig(str(tmp_path / "token")), lambda: None
    assert pooling.of_config(sections.ServeConfig(), directory, security.OPEN, loop) is None
    found = pooling.of_config(settings, directory, security.ServerSecurity("another one, for workers"), loop)
    assert found is not None and found[1] == TOKEN
    with pytest.raises(errors.UsageError, match=r"--serve\.token_file.*`openssl rand -hex 32`"):
        pooling.of_config(settings, directory, security.ServerSecurity(TOKEN), loop)
    with pytest.raises(errors.UsageError, match=r"--serve\.token_file"):
        pooling.of_config(sections.ServeConfig(str(tmp_path / "gone")), directory, security.OPEN, loop)
