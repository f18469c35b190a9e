"""The parts of a learner: none is made before its needs."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import threading
import types as python_types
from collections.abc import Iterator
from typing import Any, cast

import jax
import loop_world
import numpy as np
import pytest

from seedzero.config import configs, options, sections
from seedzero.core import errors, opponents, types
from seedzero.device import batches
from seedzero.learner import learner_parts, run_memory, stages, together
from seedzero.learner.loop import evaluators, rosters
from seedzero.monitoring import background, metrics_log, progress_lines, views
from seedzero.monitoring.metrics import episodes
from seedzero.storage.checkpoints import player_files, run_dirs, trees
from seedzero.transport import links, messages, model_pool, security


@pytest.mark.parametrize("max_seconds", [0.0, 60.0])
def test_parts_are_made_for_a_run_directory_and_nothing_runs_yet(tmp_path: pathlib.Path, max_seconds: float) -> None:
    given = {"env.id": "catch", "training.num_devices": 1, "worker.envs_per_group": 4, "replay.num_slots": 8}
    config = configs.override(configs.Config(), {**given, "worker.num": 1, "run.max_seconds": max_seconds})
    screen = cast(background.Screen, python_types.SimpleNamespace(message=pytest.fail))
    with run_dirs.open_run_dir(tmp_path, config, preset="catch", given={}) as directory:
        parts = learner_parts.make(directory, screen, f"unix:{tmp_path}/learner.sock")
        status = parts.reception.status()
        parts.saves.checkpointer.close()
    assert status["workers"] == 0 and "worker" in status["stalled"]
    assert parts.stage.now is stages.Stage.PREPARED and not parts.server.has_started and parts.expected is None
    assert (parts.seconds_left() <= 60.0) == bool(max_seconds)


def test_steps_of_hosts_that_left_are_told_and_lessen_the_budget(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"env.id": "catch", "training.num_devices": 1, "worker.envs_per_group": 4, "replay.num_slots": 8}
    config = configs.override(configs.Config(), {**given, "run.max_env_steps": 100})
    said: list[str] = []
    screen = cast(background.Screen, python_types.SimpleNamespace(message=said.append))
    monkeypatch.setattr(together, "before_alone", lambda checkpoints: (9, 40))
    with run_dirs.open_run_dir(tmp_path, config, preset="catch", given={}) as directory:
        parts = learner_parts.make(directory, screen, f"unix:{tmp_path}/learner.sock")
        parts.saves.checkpointer.close()
    assert parts.saves.config.run.max_env_steps == 60 and parts.config.run.max_env_steps == 100
    assert said == ["hosts that have left this run made 40 of the steps of --max_env_steps"]


_Named = python_types.SimpleNamespace


class Told:
    """The receivers of an evaluation's report, with a checkpoint of update 2."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.said: list[str] = []
        self.saved: list[evaluators.Ended] = []
        self.filmed: list[int | None] = []
        self.noted: list[tuple[str, dict[str, Any], object]] = []
        self.written = object()

    def evaluated(self, ended: evaluators.Ended) -> None:
        view: Any = _Named(
            write_row=lambda row, gathered: self.rows.append((row, gathered)), screen=_Named(message=self.said.append)
        )
        saves: Any = _Named(durable_update=2, save_best=self._save_best)
        films: Any = _Named(evaluated=self.filmed.append)
        called: Any = _Named(note=lambda name, values, after: self.noted.append((name, values, after)))
        learner_parts.evaluated(view, saves, films, called, ended)

    def _save_best(self, ended: evaluators.Ended) -> Any:
        self.saved.append(ended)
        return self.written


def _ended(result: episodes.Scores, **options: bool) -> evaluators.Ended:
    running = cast(Any, python_types.SimpleNamespace(update=3, env_steps=40, policies=()))
    usual = {"is_best": False, "is_record": False, "cut_short": False}
    return evaluators.Ended(running, result, None, **{**usual, **options})


def test_a_row_of_an_evaluation_has_the_steps_of_its_parameters() -> None:
    told = Told()
    result = episodes.Scores(2, 1.0, 0.0, 1.0, 1.0, 5.0)
    told.evaluated(_ended(result)._replace(best_score=2.5))
    ((row, gathered),) = told.rows
    assert not gathered and told.filmed == [2]
    assert row["evaluation_best_score"] == 2.5
    assert (row["update"], row["env_steps"], row["kind"], row["evaluation_mean_return"]) == (3, 40, "evaluation", 1.0)
    assert told.saved == []
    ((name, noted, after),) = told.noted
    assert (after, name) == (None, "on_evaluation")
    assert (noted["update"], noted["env_steps"], noted["mean_return"]) == (3, 40, 1.0)
    assert noted["best_score"] == 2.5 and noted["is_best"] is False and noted["episodes"] == 2


@pytest.mark.parametrize(
    ("is_record", "unfinished"),
    [(False, 0), (True, 0), (False, 15)],
)
def test_an_evaluation_says_whether_it_beats_all_before_or_was_cut(is_record: bool, unfinished: int) -> None:
    told = Told()
    result = episodes.Scores(5, 1.0, 0.0, 1.0, 1.0, 5.0, unfinished=unfinished)
    best = not unfinished  # higher than all but the baseline, which alone is not a record
    ended = _ended(result, is_best=best, is_record=is_record, cut_short=bool(unfinished))
    told.evaluated(ended)
    (message,) = told.said
    assert message.startswith("evaluation at update 3: ") and (" 15 " in message) == bool(unfinished)
    assert "return 1 +- 0 over 5 episodes" in message and message.endswith("; the best so far") == is_record
    assert ("--evaluation.max_episode_steps=N" in message) == bool(unfinished)
    assert told.saved == [ended] * best
    assert told.noted[0][2] is (told.written if best else None)  # the caller's function finds the checkpoint


@pytest.mark.parametrize(
    ("unfinished", "cut_short", "reason"),
    [(0, False, "as too long"), (0, True, "as the first evaluation took too long"), (3, True, "as too long")],
)
def test_an_evaluation_says_why_episodes_were_cut_off(unfinished: int, cut_short: bool, reason: str) -> None:
    told = Told()
    result = episodes.Scores(5, 1.0, 0.0, 1.0, 1.0, 5.0, cut_off=2, unfinished=unfinished)
    told.evaluated(_ended(result, cut_short=cut_short)._replace(human_normalized=0.3))
    assert f", 2 of them cut off {reason}" in told.said[0] and ("human-normalized" in told.said[0]) != cut_short
    assert told.noted[0][1]["cut_short"] is cut_short
    # Such a row has no score for charts and tables.
    assert told.rows[0][0].get(metrics_log.UNFINISHED) == ((unfinished or 2) if cut_short else None)


_SEVEN = {f"mcts-{number}/{side}": 1.0 - number for number in range(1, 8) for side in ("first", "second")}
_HARDEST = "mcts-7 -6, mcts-6 -5, mcts-5 -4, mcts-4 -3, mcts-3 -2, more against 2 others"


@pytest.mark.parametrize(
    ("by_task", "expected"),
    [
        (
            {"random/first": 1.0, "random/second": 0.5, "mcts-9/first": -0.5, "mcts-9/second": 0.0},
            " over 4 episodes, against random 0.75, mcts-9 -0.25",
        ),
        (_SEVEN, f" over 14 episodes, against {_HARDEST}"),
    ],
)
def test_the_returns_against_each_of_a_few_opponents_are_told(by_task: dict[str, float], expected: str) -> None:
    told = Told()
    told.evaluated(_ended(episodes.Scores(len(by_task), 0.25, 0.0, -0.5, 1.0, 5.0, by_task)))
    assert told.said[0].endswith(expected)


def test_numbers_of_the_environment_are_in_row_message_and_callback() -> None:
    told = Told()
    result = episodes.Scores(2, 1.0, 0.0, 1.0, 1.0, 5.0, info={"success": 0.5})
    told.evaluated(_ended(result))
    ((row, _),), ((_, noted, _),) = told.rows, told.noted
    assert row["evaluation_info/success"] == 0.5 and noted["info"] == {"success": 0.5}
    assert "2 episodes, success 0.5" in told.said[0]


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


def _asked(world: loop_world.World, pool: learner_parts.LearnerPool, player: str) -> list[Any]:
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


@pytest.mark.thorough
def test_a_copy_has_the_newest_parameters_and_stays_as_it_is(
    world: loop_world.World, directory: run_dirs.RunDir
) -> None:
    pool = learner_parts.LearnerPool(directory, lambda: world.loop)
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
    pool, like = learner_parts.LearnerPool(directory, lambda: world.loop), world.player.params
    params = jax.tree.map(lambda x: np.full(x.shape, 0.5, x.dtype), like)
    player_files.write(directory.checkpoints, FROZEN, 30, params, {}, time=0.0)
    found = pool.parameters(FROZEN)
    assert pool.offer().frozen == (FROZEN,) and (found.version, found.digest) == (30, trees.digest(params))


def test_there_may_be_no_such_player_or_no_networks(
    world: loop_world.World, directory: run_dirs.RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = learner_parts.LearnerPool(directory, lambda: world.loop)
    (error,) = _asked(world, pool, "nobody")
    assert isinstance(error, errors.UsageError) and "nobody" in str(error)
    with pytest.raises(errors.UsageError, match="no networks yet"):
        learner_parts.LearnerPool(directory, lambda: None).offer()
    monkeypatch.setattr(learner_parts, "_COPY_SECONDS", 0.0)  # the loop is in a long call
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
        learner_parts.LearnerPool(directory, lambda: world.loop).offer()


def test_the_pool_has_a_token_of_its_own(tmp_path: pathlib.Path, directory: run_dirs.RunDir) -> None:
    (tmp_path / "token").write_text(TOKEN)
    settings, loop = sections.ServeConfig(str(tmp_path / "token")), lambda: None
    assert learner_parts.pool_of(sections.ServeConfig(), directory, security.OPEN, loop) is None
    found = learner_parts.pool_of(settings, directory, security.ServerSecurity("another one, for workers"), loop)
    assert found is not None and found[1] == TOKEN
    with pytest.raises(errors.UsageError, match=r"--serve\.token_file.*`openssl rand -hex 32`"):
        learner_parts.pool_of(settings, directory, security.ServerSecurity(TOKEN), loop)
    with pytest.raises(errors.UsageError, match=r"--serve\.token_file"):
        learner_parts.pool_of(sections.ServeConfig(str(tmp_path / "gone")), directory, security.OPEN, loop)


SPEC = types.EnvSpec((2,), "float32", 3)
KEY = "of the learner's own workers"
LAYOUT = batches.Layout(num_shards=1, num_train=8, num_evaluate=2)
SETTINGS: dict[str, options.Value] = {
    "worker.envs_per_group": 2,
    "worker.num_groups": 2,
    "training.num_devices": 1,
    "replay.num_slots": LAYOUT.num_train,
    "network.kind": "mlp",
    "network.width": 8,
}


class World:
    """A reception with room for 8 environments, and what it reports."""

    def __init__(self, env: str = "catch", **settings: options.Value) -> None:
        self.reports: list[str] = []
        self.num_joined = 0
        self.progress = progress_lines.RunProgress(lambda: 0.0)
        self.directory = python_types.SimpleNamespace(path=pathlib.Path("/nowhere"))
        shown = python_types.SimpleNamespace(progress=self.progress, status=dict, directory=self.directory)
        view = cast(views.View, cast(Any, shown))
        config = configs.override(configs.Config(), {"env.id": env, **SETTINGS, **settings})
        self.overdue: list[str] = []
        self.reception = learner_parts.Reception(
            config,
            rosters.Roster(config, LAYOUT, 8, KEY, follows_links=True),
            view,
            self.reports.append,
            self._join,
            self.overdue.append,
            functools.partial(run_memory.check, config),
        )

    def _join(self) -> None:
        self.num_joined += 1

    def join(self, name: str = "a", spec: types.EnvSpec = SPEC, **given: Any) -> str:
        session_id = self.assign(name, **given)
        self.reception.begin(session_id, spec)
        return session_id

    def assign(self, name: str, kind: str = "catch", key: str = KEY, role: types.Role = types.Role.TRAIN) -> str:
        return self.reception.assign(messages.Hello(name, "", (role,), (kind,), 99, key)).session_id


def _step(session_id: str) -> messages.StepRequest:
    nothing = np.zeros(2, bool)
    step = types.EnvStep(np.zeros((2, 2), np.float32), np.zeros(2, np.float32), nothing, nothing)
    return messages.StepRequest(session_id, types.Role.TRAIN, 1, 0, step, nothing)


def test_the_first_spec_is_the_runs_and_others_must_equal_it() -> None:
    world = World()
    world.join()
    assert world.reception.spec == world.progress.spec == world.reception.roster.spec == SPEC
    with pytest.raises(errors.SpecMismatch):
        world.join("b", types.EnvSpec((3,), "float32", 3))
    assert world.num_joined == 1 and len(world.reports) == 1


def test_only_a_worker_that_trains_begins_the_training() -> None:
    world = World()
    world.join("evaluator", role=types.Role.EVALUATE)
    assert (world.reception.has_begun, world.reception.has_trained) == (True, False)
    world.reception.end(world.join(), messages.GOODBYE)
    assert world.reception.has_trained


@pytest.mark.parametrize("sides", [{"num_players": 2}, {"tasks": opponents.SIDES, "seats": opponents.SIDES}])
def test_opponents_of_evaluations_are_no_tasks_of_the_run(sides: dict[str, Any]) -> None:
    world, game = World(), dataclasses.replace(SPEC, **sides)
    tasks = opponents.tasks(("random", "mcts-9"))
    world.join("evaluator", dataclasses.replace(game, tasks=tasks), role=types.Role.EVALUATE)
    world.join("a", game)
    assert world.reception.spec == game
    (evaluating,), (training,) = map(world.reception.roster.started, (types.Role.EVALUATE, types.Role.TRAIN))
    assert (evaluating.tasks, training.tasks) == (tasks, game.tasks)
    with pytest.raises(errors.SpecMismatch, match="tasks"):
        world.join("b", dataclasses.replace(game, tasks=tasks))


def test_a_first_worker_whose_seats_have_other_tasks_is_refused() -> None:
    tasks = opponents.tasks(("mcts-9",))
    with pytest.raises(errors.SpecMismatch, match="expected these seats"):
        World().join("a", dataclasses.replace(SPEC, tasks=tasks, seats=opponents.SIDES))


def test_rows_of_agents_are_seats_in_evaluations_too() -> None:
    names = ("a", "b")
    game = dataclasses.replace(SPEC, tasks=names, seats=names)
    for spec, in_evaluations in ((game, 0), (dataclasses.replace(game, fixed_seats=True), 2)):
        world = World()
        world.join("evaluator", spec, role=types.Role.EVALUATE)
        world.join("a", spec)
        (evaluating,), (training,) = map(world.reception.roster.started, (types.Role.EVALUATE, types.Role.TRAIN))
        assert (evaluating.num_seats, training.num_seats) == (in_evaluations, 2)


def test_it_says_how_much_of_the_replay_the_environments_that_are_there_fill() -> None:
    world = World()
    session_ids = [world.join(name) for name in "ab"]
    world.reception.end(session_ids[0], "worker_lost")
    world.reception.end(session_ids[1], "goodbye")
    assert [" 4 of 8 " in report for report in world.reports] == [True, False, True, False]
    assert (
        "worker a joined with 4 environments; " in world.reports[0]
        and " 32000 of the replay's 64000" in world.reports[0]
    )
    assert world.reports[1] == "worker b joined with 4 environments" and world.reports[3] == "worker b left: goodbye"
    assert world.reports[2].startswith("worker a left: worker_lost; ")


@pytest.mark.parametrize("settings", [{"replay.num_envs": 4}, {"run.agent": "vtrace"}])
def test_environments_that_fill_all_of_the_replay_are_not_counted(settings: dict[str, options.Value]) -> None:
    world = World(**settings)
    world.join()
    (report,) = world.reports
    assert "worker a " in report and "replay" not in report


def test_a_message_goes_to_the_inbox_with_its_groups_slots() -> None:
    world = World()
    session_id = world.join()
    world.reception.step(_step(session_id))
    (message,) = world.reception.inbox.waiting(types.Role.TRAIN)
    assert message.slots.tolist() == [2, 3]


def test_a_session_that_ended_leaves_no_message_and_is_reported() -> None:
    world = World()
    session_id = world.join()
    world.reception.step(_step(session_id))
    world.reception.end(session_id, "goodbye")
    world.reception.step(_step(session_id))  # was on its way
    world.reception.end(session_id, "twice")
    assert world.reception.inbox.waiting(types.Role.TRAIN) == []
    assert [slots.tolist() for slots, _ in world.reception.inbox.take_ended()] == [[0, 1, 2, 3]]
    assert world.reports[-1].startswith("worker a ") and world.reports[-1].endswith(": goodbye")
    assert world.reception.roster.sizes() == []


@pytest.mark.parametrize(
    ("reason", "counted"),
    [
        ("goodbye", "worker_left"),
        ("worker_lost", "worker_lost"),
        ("failed: it raised", "worker_lost"),
        (messages.OVERDUE + "no step for 600 s", "worker_lost"),
    ],
)
def test_steps_of_a_worker_that_says_goodbye_are_not_counted_as_lost(reason: str, counted: str) -> None:
    world = World()
    world.reception.end(world.join(), reason)
    assert [found for _, found in world.reception.inbox.take_ended()] == [counted]
    world.reception.end(world.assign("slow"), reason)  # its environments are still being made
    assert world.overdue == (["a"] if reason.startswith(messages.OVERDUE) else [])


@pytest.mark.parametrize(("reason", "overdue"), [("", ["a"]), ("goodbye", []), ("worker_lost: silent", [])])
def test_environments_that_hang_where_they_were_made_before_are_overdue_too(reason: str, overdue: list[str]) -> None:
    world = World()
    session_id = world.join()
    if reason:
        world.reception.end(session_id, reason)
    else:
        world.reception.roster.remove(session_id)  # as a restart does, which an evaluation ends with
    for _ in range(2):  # the second time its new process makes environments
        world.reception.end(world.assign("a"), messages.OVERDUE + "no environments for 600 s")
    assert world.overdue == overdue


def test_a_far_worker_joins_again_for_other_groups_and_its_cut_counts_as_lost() -> None:
    world, link = World(), links.WorkerLink(2, 2, 0.001, 0.001, 0.1, 0.001, 1000.0, is_complete=True)
    session_id = world.join(key="")
    reason = world.reception.regroup(session_id, link, "", 0.0)
    assert reason.startswith("4 x 2 environments instead of 2 x 2: ") and " 100 ms" in reason and " 1 ms" in reason
    assert world.reception.regroup(world.join("local", key=KEY), link, "", 0.0) == ""
    world.reception.end(session_id, messages.REGROUPED + reason)
    assert world.reports[-1] == f"worker a gets {reason}"
    assert [found for _, found in world.reception.inbox.take_ended()] == ["worker_lost"]
    assert world.reception.regroup(session_id, link, "", 0.0) == ""


def test_a_worker_that_reports_impossible_times_is_named_once_and_keeps_its_groups() -> None:
    world = World()
    session_id = world.join(key="")
    assert [world.reception.regroup(session_id, None, "steps of nan s", 0.0) for _ in range(2)] == ["", ""]
    assert [report for report in world.reports if report.startswith("worker a reports steps of nan s; expected ")] == [
        world.reports[-1]
    ]


def test_a_worker_elsewhere_with_a_local_ones_name_is_another() -> None:
    world = World()
    silent = messages.OVERDUE + "no step for 600 s"
    local, remote = world.join(), world.join(key="")
    world.reception.end(remote, silent)
    assert world.overdue == []
    world.reception.end(local, silent)
    assert world.overdue == ["a"]
    world.join(key="")
    world.reception.end(world.assign("a"), silent)  # whose environments are still being made
    assert world.overdue == ["a"]


def test_a_remote_environment_without_a_fitting_network_is_refused_early() -> None:
    world = World("remote")
    with pytest.raises(errors.SpecMismatch, match=r" 3 players.*--env=remote"):
        world.join("a", types.EnvSpec((2,), "float32", 3, num_players=3), kind="yours")
    assert world.reception.spec is None


def test_a_remote_environment_too_large_for_the_replay_is_refused_alone() -> None:
    world = World("remote")
    with pytest.raises(errors.SpecMismatch, match=r"replay\.capacity=64000 .* GiB "):
        # Four TiB: none of it may be allocated on the way to the refusal.
        world.join("giant", types.EnvSpec((2**40,), "float32", 3), kind="yours")
    assert world.reception.spec is None and world.num_joined == 0
    world.join("a", kind="yours")
    assert world.reception.spec == SPEC


def test_who_may_evaluate_a_remote_environment_is_awaited_aloud() -> None:
    world = World("remote")
    world.join("a", kind="yours")
    assert "evaluation is off until another worker joins" in world.reports[-1]
