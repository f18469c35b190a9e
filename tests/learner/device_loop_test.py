"""The device loop, one decision at a time: no threads, no clock, no network; workers are what the test shows."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from seedzero.agents import base, muzero
from seedzero.checkpoints import trees
from seedzero.config import config as config_lib
from seedzero.core import errors, types
from seedzero.device import batch as batch_lib
from seedzero.device import programs, steps
from seedzero.evaluation import evaluation
from seedzero.learner import device_loop, roster
from seedzero.learner import inbox as inbox_lib
from seedzero.monitoring import metrics
from seedzero.transport import messages

SPEC = types.EnvSpec((2,), "float32", 3)
LAYOUT = batch_lib.Layout(num_shards=1, num_train=4, num_evaluate=2)
SIZE, LENGTH, BATCH, CAPACITY = 2, 64, 4, 200
SIZES = (4,)
SETTINGS: dict[str, config_lib.Value] = {
    "network.kind": "mlp",
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "search.num_simulations": 2,
    "muzero.unroll_steps": 1,
    "muzero.n_step": 1,
    "worker.envs_per_group": SIZE,
    "replay.num_slots": LAYOUT.num_train,
    "replay.capacity": CAPACITY,
    "replay.batch_size": BATCH,
    "replay.min_steps": 4,
    "replay.samples_per_insert": 1.0,
    "reanalyse.batch_size": 2,
    "reanalyse.min_age": 1,
    "evaluation.every_updates": 0,
    "evaluation.episodes": 2,
}


@pytest.fixture(scope="module")
def agent() -> base.Agent:
    config = config_lib.override(config_lib.Config(), {**SETTINGS, "reanalyse.per_insert": 0.5})
    return muzero.make(config, SPEC, "cpu")  # loops that owe nothing leave that program alone


@pytest.fixture(scope="module")
def mesh() -> jax.sharding.Mesh:
    return steps.make_mesh(1)


@pytest.fixture(scope="module")
def compiled(agent: base.Agent, mesh: jax.sharding.Mesh) -> programs.Programs:
    """All programs, ready."""
    train = steps.abstract_train(agent, mesh)
    actor = steps.abstract_actor(agent, SPEC, LAYOUT, LENGTH, mesh)
    made = programs.Programs(
        agent,
        SPEC,
        LAYOUT,
        mesh,
        SIZES,
        train,
        actor,
        seed=0,
        batch_size=BATCH,
        capacity=CAPACITY,
        on_ready=lambda: None,
        reanalyse=config_lib.override(config_lib.Config(), SETTINGS).reanalyse,
    )
    for size in SIZES:
        made.act(size)
    assert made.update and made.reanalyse
    return made


Initial = tuple[base.TrainState, steps.ActorState]


@pytest.fixture(scope="module")
def initial(agent: base.Agent, mesh: jax.sharding.Mesh) -> Initial:
    """Both states at the beginning."""
    return steps.init_train(agent, 0, mesh), steps.init_actor(agent, SPEC, LAYOUT, LENGTH, mesh)


class World:
    """A loop, and what it told the workers and the runtime."""

    def __init__(self, initial: Initial, compiled: programs.Programs, **settings: config_lib.Value) -> None:
        config = config_lib.override(config_lib.Config(), {**SETTINGS, **_dotted(settings)})
        self.people = roster.Roster(
            config, num_train=LAYOUT.num_train, num_evaluate=LAYOUT.num_evaluate, num_shards=1, max_group=SIZES[-1]
        )
        self.inbox = inbox_lib.Inbox()
        self.replies: list[tuple[messages.StepRequest, list[int], int]] = []
        self.restarts: list[str] = []
        self.results: list[evaluation.Result] = []
        self.saved: list[int] = []
        self.rows: list[int] = []
        self.gathered = metrics.Aggregator()
        self.now = 0.0
        train, actor = trees.copy(initial)  # the loop donates what it is given
        self.loop = device_loop.DeviceLoop(
            config,
            SPEC,
            LAYOUT,
            compiled,
            train,
            actor,
            self.inbox,
            self.people,
            device_loop.Replies(
                lambda request, actions, version: self.replies.append((request, actions.tolist(), version)),
                lambda session_id, reason: self.restarts.append(session_id),
            ),
            device_loop.Hooks(
                lambda result, update, params, is_best: self.results.append(result),
                lambda: self.saved.append(self.num_updates),
                lambda: self.rows.append(self.num_updates),
            ),
            self.gathered,
            lambda: self.now,
        )

    @property
    def num_updates(self) -> int:
        return self.loop.look().num_updates

    @property
    def rings(self) -> Any:
        return jax.tree.map(np.asarray, self.loop.state()[1])

    def join(self, role: types.Role = types.Role.TRAIN, name: str = "local-0") -> roster.Session:
        assignment = self.people.assign(messages.Hello(name, "", (role,), ("catch",), 4))
        return self.people.begin(assignment.session_id)

    def show(
        self,
        run: roster.Session,
        group: int,
        value: float,
        *,
        first: bool = False,
        final: bool = False,
        reward: float = 1.0,
    ) -> None:
        """One message of a group, every environment alike."""
        size = len(run.slots[group])
        everywhere = np.ones(size, bool)
        step = types.EnvStep(
            np.full((size, 2), value, np.float32),
            np.full(size, 0.0 if first else reward, np.float32),
            everywhere & final,
            ~everywhere,
        )
        request = messages.StepRequest(run.session_id, run.role, group, 0, step, everywhere & first)
        self.inbox.put(batch_lib.Message(request, run.slots[group], self.now))

    def lose(self, run: roster.Session) -> None:
        """What the learner does when a worker's run is over."""
        self.people.remove(run.session_id)
        self.inbox.end_session(run.session_id, run.role, run.all_slots)

    def complete(self) -> None:
        """Waits for everything in flight."""
        while self.loop._in_flight:
            self.loop.complete_next()

    def work(self) -> None:
        """Decides and completes until there is nothing to do."""
        while self.loop.step() or self.loop._in_flight:
            self.complete()

    @contextlib.contextmanager
    def completions(self) -> Iterator[None]:
        """While entered, the completion thread runs."""
        thread = threading.Thread(target=self.loop._complete)
        thread.start()
        try:
            yield
        finally:
            self.loop._completions.put(None)
            thread.join()

    def play(self, run: roster.Session, num_steps: int, *, episode: int = 3) -> None:
        """Shows whole episodes of `episode` steps in all groups, waiting for each answer; the first one now."""
        for index in range(num_steps):
            place = index % (episode + 1)
            for group in range(len(run.slots)):
                self.show(run, group, float(place), first=place == 0, final=place == episode)
            self.work()


def _dotted(settings: dict[str, config_lib.Value]) -> dict[str, config_lib.Value]:
    return {name.replace("__", "."): value for name, value in settings.items()}


@pytest.fixture
def make(initial: Initial, compiled: programs.Programs) -> Any:
    return lambda **settings: World(initial, compiled, **settings)


def test_every_message_is_answered_once_with_legal_actions(make: Any) -> None:
    world = make()
    run = world.join()
    for group in (0, 1):
        world.show(run, group, 0.0, first=True)
    world.work()
    assert sorted(request.group for request, _, _ in world.replies) == [0, 1]
    assert all(len(actions) == SIZE and set(actions) <= {0, 1, 2} for _, actions, _ in world.replies)
    world.work()
    assert len(world.replies) == 2


@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_more_calls_are_in_flight_than_the_settings_say(make: Any, most: int) -> None:
    world = make(training__max_in_flight=most, replay__min_steps=100)  # no updates yet
    run = world.join()
    for number in range(most):
        world.show(run, 0, float(number), first=number == 0)
        assert world.loop.step()
    world.show(run, 0, float(most))
    assert not world.loop.step()
    assert not world.replies  # dispatched calls wait for the completion thread
    world.loop.complete_next()
    assert len(world.replies) == 1
    assert world.loop.step()
    world.complete()
    assert len(world.replies) == most + 1


def test_acting_and_training_keep_the_ratio_within_the_band(make: Any) -> None:
    world = make()
    world.play(world.join(), 40)
    counts = world.loop.look().counts
    assert counts.stored == 40 * 4 * 3 // 4
    assert abs(world.num_updates * BATCH - counts.stored) <= 2 * BATCH  # samples per insert is 1
    assert world.loop.look().version == world.num_updates
    assert world.replies[-1][2] >= world.num_updates - 2  # acting uses what training made


def test_counts_hold_for_final_and_pending_steps(make: Any) -> None:
    world = make()
    run = world.join()
    for place in range(3):
        world.show(run, 0, float(place), first=place == 0, final=place == 2)
        world.work()
    counts = world.loop.look().counts
    assert (counts.acknowledged, counts.stored, counts.pending, counts.discarded) == (4, 4, 0, {})
    world.show(run, 0, 0.0, first=True)
    world.work()
    counts = world.loop.look().counts
    assert (counts.acknowledged, counts.stored, counts.pending, counts.discarded) == (6, 4, 2, {})


def test_the_history_of_a_lost_run_is_cut_where_it_ended(make: Any) -> None:
    world = make()
    run = world.join()
    for place in range(3):
        world.show(run, 0, float(place), first=place == 0)
        world.work()
    world.show(run, 1, 7.0, first=True)  # waits when the run is lost: nobody needs its answer
    num_replies = len(world.replies)
    world.lose(run)
    again = world.join()
    assert set(again.all_slots) == set(run.all_slots)
    world.work()
    assert len(world.replies) == num_replies
    counts = world.loop.look().counts
    assert (counts.stored, counts.pending, counts.discarded) == (4, 0, {"worker_lost": 2})
    world.show(again, 0, 10.0, first=True)
    world.show(again, 1, 20.0, first=True)
    world.work()
    rings = world.rings
    slot = int(again.slots[0][0])
    assert rings.observation[slot, :4, 0].tolist() == [0, 1, 2, 10]
    assert rings.first[slot, :4].tolist() == [True, False, False, True]
    assert (rings.weight[slot, :4] > 0).tolist() == [True, True, False, False]  # no step leads from 2 to 10
    assert 7.0 not in rings.observation


def test_evaluation_is_answered_by_frozen_parameters_and_never_stored(make: Any) -> None:
    world = make(evaluation__every_updates=4)
    run, watched = world.join(), world.join(types.Role.EVALUATE, "evaluator")
    assert (watched.all_slots >= LAYOUT.num_train).all()
    world.show(watched, 0, 0.5, first=True)
    world.work()
    assert not world.replies  # no evaluation is due before the first update
    world.play(run, 2)
    assert world.num_updates >= 1
    before, stored = world.rings, world.loop.look().counts
    version = world.num_updates
    (answer,) = [reply for reply in world.replies if reply[0].role is types.Role.EVALUATE]
    assert 1 <= answer[2] <= version
    world.show(watched, 0, 0.25, reward=3.0)
    world.work()
    world.show(watched, 0, 0.25, reward=4.0, final=True)
    world.work()
    (result,) = world.results
    assert (result.episodes, result.mean_return, result.mean_length) == (2, 7.0, 2.0)
    answers = [reply for reply in world.replies if reply[0].role is types.Role.EVALUATE]
    assert [version for _, _, version in answers] == [answer[2]] * 2
    assert world.restarts == [watched.session_id]  # fresh episodes for the next one
    assert world.loop.look().counts == stored
    after = world.rings
    assert np.array_equal(before.cursor, after.cursor) and np.array_equal(before.observation, after.observation)
    assert not {0.5, 0.25} & set(after.observation.ravel().tolist())


def test_an_evaluation_whose_environments_are_lost_starts_anew(make: Any) -> None:
    world = make(evaluation__every_updates=1000)
    run, watched = world.join(), world.join(types.Role.EVALUATE, "evaluator")
    world.play(run, 2)
    world.show(watched, 0, 0.0, first=True)
    world.work()
    assert world.loop.look().evaluating
    world.show(watched, 0, 0.0, reward=100.0)
    world.work()
    world.lose(watched)
    world.work()
    assert not world.loop.look().evaluating
    watched = world.join(types.Role.EVALUATE, "evaluator")
    world.show(watched, 0, 0.0, first=True)
    world.work()
    world.show(watched, 0, 0.0, reward=1.0, final=True)
    world.work()
    assert [result.mean_return for result in world.results] == [1.0]
    assert world.loop.look().counts.discarded == {}


def test_a_return_that_was_asked_for_ends_the_run(make: Any) -> None:
    world = make(evaluation__every_updates=1000, run__stop_at_return=5.0)
    run, watched = world.join(), world.join(types.Role.EVALUATE, "evaluator")
    world.show(watched, 0, 0.0, first=True)
    world.play(run, 2)
    world.show(watched, 0, 0.0, reward=5.0, final=True)
    world.show(run, 0, 2.0)
    world.complete()
    while world.loop.step():
        world.complete()
    num_replies = len(world.replies)
    assert not world.loop.step() and len(world.replies) == num_replies
    assert world.loop.run() == "evaluation returned 5, --stop_at_return=5"


@pytest.mark.parametrize(
    "settings, reason",
    [({"run__max_updates": 3}, "--max_updates=3 reached"), ({"run__max_env_steps": 20}, "--max_env_steps=20 reached")],
)
def test_a_budget_ends_the_run(make: Any, settings: dict[str, int], reason: str) -> None:
    world = make(**settings)
    run = world.join()
    world.play(run, 30)
    assert world.loop.run() == reason
    if "run__max_updates" in settings:
        assert world.num_updates == 3
    else:
        assert 20 <= world.loop.look().counts.stored < 20 + SIZES[-1]


class _Broken:
    """Device functions that fail, as XLA does: when their result is asked for."""

    def __init__(self, compiled: programs.Programs, **replaced: Any) -> None:
        self._compiled = compiled
        self._replaced = replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced.get(name, getattr(self._compiled, name))


class _FailsWhenRead:
    def __array__(self, *args: object, **kwargs: object) -> np.ndarray:
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")


def test_a_failed_call_ends_training_with_its_reason(initial: Initial, compiled: programs.Programs) -> None:
    broken = _Broken(compiled, update=lambda train, rings, num_inserts: (train, rings, _FailsWhenRead()))
    world = World(initial, broken)  # type: ignore[arg-type]
    run = world.join()
    with pytest.raises(errors.TrainingFailure, match=r"RESOURCE_EXHAUSTED.*run the same command again"):
        world.play(run, 10)
    world.show(run, 0, 0.0)
    with pytest.raises(errors.TrainingFailure, match="RESOURCE_EXHAUSTED"):
        world.loop.step()
    with pytest.raises(errors.TrainingFailure, match="RESOURCE_EXHAUSTED"):
        world.loop.run()


def test_updates_that_are_refused_again_and_again_end_training(initial: Initial, compiled: programs.Programs) -> None:
    num_rejected = iter(range(1, 100))

    def update(train: base.TrainState, rings: Any, num_inserts: Any) -> tuple[base.TrainState, Any, np.ndarray]:
        values = dict.fromkeys(compiled.metric_names, 0.0) | {"num_rejected": float(next(num_rejected))}
        return train, rings, np.array(list(values.values()), np.float32)

    world = World(initial, _Broken(compiled, update=update))  # type: ignore[arg-type]
    with pytest.raises(errors.TrainingFailure, match="not finite in 10 updates in a row"):
        world.play(world.join(), 100)
    assert world.num_updates == 10


def test_a_request_runs_between_two_calls_and_sees_what_a_checkpoint_holds(make: Any) -> None:
    world = make()
    world.play(world.join(), 10)
    seen = []
    world.loop.request(lambda: seen.append(world.loop.state()))
    assert not seen
    world.loop.step()
    ((train, rings, host),) = seen
    assert host["num_updates"] == world.num_updates == int(train.num_updates)
    assert host["ledger"]["stored"] == world.loop.look().counts.stored
    assert rings.cursor.shape == (LAYOUT.num_train,)


class TestLockStep:
    """Deterministic mode."""

    SETTINGS = {"run__deterministic": True, "evaluation__every_updates": 0}  # noqa: RUF012

    def test_acting_waits_for_every_training_environment(self, make: Any) -> None:
        world = make(**self.SETTINGS)
        run = world.join()
        world.show(run, 0, 0.0, first=True)
        world.work()
        assert not world.replies
        world.show(run, 1, 0.0, first=True)
        world.work()
        assert len(world.replies) == 2

    def test_the_order_of_arrival_changes_nothing(self, make: Any) -> None:
        worlds = [make(**self.SETTINGS) for _ in range(2)]
        for world, order in zip(worlds, ((0, 1), (1, 0)), strict=True):
            run = world.join()
            for index in range(6):
                for group in order:
                    world.show(run, group, float(index + group), first=index == 0)
                    world.loop.step()  # may find half of the environments
                    world.complete()
                world.work()
        one, other = ([(r.group, actions, version) for r, actions, version in world.replies] for world in worlds)
        assert one == other and len(one) == 12
        states = [world.loop.state() for world in worlds]
        assert states[0][2] == states[1][2] and worlds[0].num_updates > 0
        for a, b in zip(jax.tree.leaves(states[0][:2]), jax.tree.leaves(states[1][:2]), strict=True):
            assert np.array_equal(np.asarray(a), np.asarray(b))

    def test_exactly_the_updates_that_are_owed_run(self, make: Any) -> None:
        world = make(**self.SETTINGS)
        run = world.join()
        updates = []
        for index in range(6):
            for group in (0, 1):
                world.show(run, group, float(index), first=index == 0)
            world.work()
            updates.append(world.num_updates)
        assert updates == [0, 1, 2, 3, 4, 5]  # four windows for each of four steps

    def test_environments_are_reset_where_a_checkpoint_is(self, make: Any) -> None:
        world = make(**self.SETTINGS, checkpoint__every_updates=6, metrics__every_updates=2)
        run = world.join()
        with world.completions():
            for index in range(8):
                for group in (0, 1):
                    world.show(run, group, float(index), first=index == 0)
                while world.loop.step():
                    world.loop.settle()
                if world.saved:
                    break
        assert world.saved == [6]
        assert world.restarts == [run.session_id]
        counts = world.loop.look().counts
        assert counts.discarded == {"checkpoint_reset": 4} and counts.pending == 0
        assert world.people.epoch == 1
        assert world.rows == [2, 4, 6]


class TestReanalysis:
    """Half a position for each stored step, two in a call."""

    SETTINGS = {"reanalyse__per_insert": 0.5}  # noqa: RUF012
    LOCK_STEP = {**SETTINGS, "run__deterministic": True, "checkpoint__every_updates": 6}  # noqa: RUF012

    def test_the_ratio_is_kept_and_what_was_done_is_measured(self, make: Any) -> None:
        world = make(**self.SETTINGS)
        world.play(world.join(), 40)
        snapshot = world.loop.look()
        assert snapshot.counts.stored == 120
        assert snapshot.num_reanalysed == 60  # idle after every step: nothing stays owed
        means = world.gathered.means()
        assert 0 < means["reanalyse_renewed"] <= 1
        assert 1 < means["reanalyse_age"] <= world.num_updates
        assert 0 < means["reanalyse_policy_change"] < 1 and means["reanalyse_value_change"] > 0
        versions = world.rings.extras
        assert versions["target_version"].max() == world.num_updates
        assert (versions["target_version"] >= versions["version"]).all()

    def test_without_it_the_loop_neither_runs_nor_measures_it(self, make: Any) -> None:
        world = make()
        world.play(world.join(), 10)
        assert world.loop.look().num_reanalysed == 0
        assert not [name for name in world.gathered.means() if "reanalyse" in name]

    def test_the_newest_parameters_search_also_where_acting_has_older_ones(self, make: Any) -> None:
        world = make(**self.SETTINGS, training__publish_every=1000)
        world.play(world.join(), 20)
        assert world.loop.look().version == 0  # all rows were written by version 0
        assert not world.rings.extras["version"].any()
        assert world.rings.extras["target_version"].max() > 5

    def test_counts_come_back_from_a_checkpoint_and_are_0_in_one_without_them(self, make: Any) -> None:
        world = make(**self.SETTINGS)
        world.play(world.join(), 20)
        _, _, host = world.loop.state()
        resumed = make(**self.SETTINGS)
        resumed.loop.restore(host, has_replay=True)
        assert resumed.loop.look().num_reanalysed == world.loop.look().num_reanalysed > 0
        older = {name: value for name, value in host.items() if name != "num_reanalyses"}
        resumed.loop.restore(older, has_replay=True)
        assert resumed.loop.look().num_reanalysed == 0

    def test_a_lock_step_run_resumed_from_a_checkpoint_equals_one_that_went_on(
        self, initial: Initial, compiled: programs.Programs
    ) -> None:
        saved: list[Any] = []
        whole = World(initial, compiled, **self.LOCK_STEP)
        self._play(whole, saved)
        self._play(whole, saved)
        (train, rings, host), *_ = saved
        assert host["num_updates"] == 6 and host["num_reanalyses"] > 0
        memory = initial[1].memory  # of nothing here
        resumed = World((train, steps.ActorState(memory, rings)), compiled, **self.LOCK_STEP)
        resumed.loop.restore(host, has_replay=True)
        self._play(resumed, [])
        states = [world.loop.state() for world in (whole, resumed)]
        assert states[0][2] == states[1][2] and states[0][2]["num_reanalyses"] > host["num_reanalyses"]
        for a, b in zip(jax.tree.leaves(states[0][:2]), jax.tree.leaves(states[1][:2]), strict=True):
            assert np.array_equal(np.asarray(a), np.asarray(b))
        assert whole.replies[-1][1] == resumed.replies[-1][1]

    @staticmethod
    def _play(world: World, saved: list[Any]) -> None:
        """Plays fresh environments to the next checkpoint and keeps a copy of it."""
        run, num_saved = world.join(), len(world.saved)
        with world.completions():
            for index in range(100):
                for group in (0, 1):
                    world.show(run, group, float(index), first=index == 0)
                while len(world.saved) == num_saved and world.loop.step():
                    world.loop.settle()
                if len(world.saved) > num_saved:
                    train, rings, host = world.loop.state()
                    saved.append((*trees.copy((train, rings)), host))
                    return
        raise AssertionError("no checkpoint")
