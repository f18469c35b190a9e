"""At the reception the first spec counts, and sessions begin and end."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import types as python_types
from typing import Any, cast

import numpy as np
import pytest

from seedzero.config import configs, options
from seedzero.core import errors, opponents, types
from seedzero.device import batches
from seedzero.learner import receptions, run_memory
from seedzero.loop import rosters
from seedzero.monitoring import progress_lines, views
from seedzero.transport import messages

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
        self.reception = receptions.Reception(
            config,
            rosters.Roster(config, LAYOUT, 8, KEY),
            view,
            self.reports.append,
            self._join,
            self.overdue.append,
            functools.partial(run_memory.check, config),
        )

    def _join(self) -> None:
        self.num_joined += 1

    def join(self, name: str = "a", spec: types.EnvSpec = SPEC, kind: str = "catch", key: str = KEY) -> str:
        session_id = self.assign(name, kind, key)
        self.reception.begin(session_id, spec)
        return session_id

    def assign(self, name: str, kind: str = "catch", key: str = KEY) -> str:
        hello = messages.Hello(name, "", (types.Role.TRAIN,), (kind,), 99, key)
        return self.reception.assign(hello).session_id


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
    hello = messages.Hello("evaluator", "", (types.Role.EVALUATE,), ("catch",), 99)
    world.reception.begin(world.reception.assign(hello).session_id, SPEC)
    assert (world.reception.has_begun, world.reception.has_trained) == (True, False)
    world.reception.end(world.join(), messages.GOODBYE)
    assert world.reception.has_trained


@pytest.mark.parametrize("sides", [{"num_players": 2}, {"tasks": opponents.SIDES, "seats": opponents.SIDES}])
def test_opponents_of_evaluations_are_no_tasks_of_the_run(sides: dict[str, Any]) -> None:
    world, game = World(), dataclasses.replace(SPEC, **sides)
    hello = messages.Hello("evaluator", "", (types.Role.EVALUATE,), ("catch",), 99)
    tasks = opponents.tasks(("random", "mcts-9"))
    world.reception.begin(world.reception.assign(hello).session_id, dataclasses.replace(game, tasks=tasks))
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
        hello = messages.Hello("evaluator", "", (types.Role.EVALUATE,), ("catch",), 99)
        world.reception.begin(world.reception.assign(hello).session_id, spec)
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
