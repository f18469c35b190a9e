"""A device loop without threads, clock and network; workers are what the test shows."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from seedzero.agents import agent_table, base
from seedzero.config import configs, options, seats_config
from seedzero.core import env_ids, types
from seedzero.device import batches, device_programs, meshes, newest_rows, setups, states
from seedzero.learner.league_play import building
from seedzero.learner.live import observers
from seedzero.learner.loop import (
    device_loop,
    dispatchers,
    evaluators,
    inboxes,
    places,
    players,
    rate_limiting,
    rosters,
    scheduler,
    seatings,
    step_accounting,
)
from seedzero.monitoring.metrics import counts, episodes
from seedzero.replay import sources
from seedzero.storage.checkpoints import trees
from seedzero.transport import messages

SPEC = types.EnvSpec((2,), "float32", 3)
LAYOUT = batches.Layout(num_shards=1, num_train=4, num_evaluate=2)
SIZE, LENGTH, BATCH, CAPACITY = 2, 64, 4, 200
SIZES = (4,)
SETTINGS: dict[str, options.Value] = {
    "worker.envs_per_group": SIZE,
    "replay.num_slots": LAYOUT.num_train,
    "evaluation.every_updates": 0,
    "evaluation.episodes": 2,
}
MUZERO: dict[str, options.Value] = {
    "network.kind": "mlp",
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "search.num_simulations": 2,
    "muzero.unroll_steps": 1,
    "muzero.n_step": 1,
    "replay.capacity": CAPACITY,
    "replay.batch_size": BATCH,
    "replay.min_steps": 4,
    "replay.samples_per_insert": 1.0,
    "reanalyse.batch_size": 2,
    "reanalyse.per_insert": 0.5,
}
READY = rate_limiting.Progress(
    num_inserts=1000,
    num_kept=1000,
    num_updates=0,
    num_reanalyses=0,
    can_act=True,
    can_evaluate=False,
    can_update=True,
    can_reanalyse=False,
    evaluating=False,
    evaluated_last=False,
)
"""A replay of 1000 steps; acting and updates are ready."""
UNROLL = 3
VTRACE: dict[str, options.Value] = {
    "run.agent": "vtrace",
    "network.width": 8,
    "vtrace.unroll_length": UNROLL,
    "vtrace.batch_size": BATCH,
    "network.lstm_width": 4,
}

PPO: dict[str, options.Value] = {
    "run.agent": "ppo",
    "network.width": 8,
    "ppo.unroll_length": UNROLL,
    "ppo.batch_size": BATCH,
    "ppo.num_epochs": 2,
    "ppo.num_minibatches": 2,
}


class Device(NamedTuple):
    """An agent on the device: its setup, compiled programs and first states."""

    settings: dict[str, options.Value]
    setup: setups.Setup
    programs: device_programs.Programs
    train: base.TrainState
    actor: states.ActorState

    @property
    def without_refresh(self) -> Device:
        """The same agent, which owes no reanalyses."""
        return self._replace(setup=self.setup._replace(agent=self.setup.agent._replace(reanalyse=None)))


def make_device(
    settings: dict[str, options.Value],
    spec: types.EnvSpec = SPEC,
    *,
    num_learning: int = 0,
    ahead: bool = True,
    layout: batches.Layout = LAYOUT,
    sizes: tuple[int, ...] = SIZES,
) -> Device:
    """Compiles an agent, once in a process; all programs are ready.

    num_learning: devices that learn; 0: the one that acts.
    """
    return _make_device(tuple({**SETTINGS, **settings}.items()), spec, num_learning, ahead, layout, sizes)


@functools.cache
def _make_device(
    items: tuple[tuple[str, options.Value], ...],
    spec: types.EnvSpec,
    num_learning: int,
    ahead: bool,
    layout: batches.Layout,
    sizes: tuple[int, ...],
) -> Device:
    return _compiled(items, _make_setup(dict(items), spec, num_learning, ahead, layout, sizes))


@functools.cache
def make_places(items: tuple[tuple[str, options.Value], ...]) -> tuple[Device, Device]:
    """Returns an agent in two places of a device each, compiled once in a process: groups take them in turn."""
    items, found = tuple({**SETTINGS, **dict(items)}.items()), list[Device]()
    groups = np.arange(LAYOUT.num_train) // SIZE
    for number in (0, 1):
        numbers = np.where(groups == number, np.arange(LAYOUT.num_train) % SIZE, -1)
        layout = batches.Layout(1, SIZE, LAYOUT.num_evaluate if number == 0 else 0, numbers)
        setup = _make_setup(dict(items), SPEC, 0, True, layout, (SIZE,))
        setup = setup._replace(mesh=meshes.part(meshes.make(2), (number,)))
        found.append(_compiled(items, setup))
    return found[0], found[1]


def _compiled(items: tuple[tuple[str, options.Value], ...], setup: setups.Setup) -> Device:
    agent, sizes = setup.agent, setup.sizes
    shapes = states.abstract_train(setup), states.abstract_actor(setup)
    ready = threading.Semaphore(0)
    _, programs = device_programs.prepare(setup, *shapes, on_ready=ready.release)
    assert programs.update.result() and (agent.reanalyse is None or programs.reanalyse.result())
    while programs.sizes != sizes:
        assert ready.acquire(timeout=600)
    return Device(dict(items), setup, programs, states.init_train(setup, seed=0), states.init_actor(setup))


def without_programs(settings: dict[str, options.Value]) -> Device:
    """Returns an agent that neither acts nor learns: nothing is compiled for it."""
    settings, unused = {**SETTINGS, **settings}, None
    setup, programs = _make_setup(settings, SPEC, 0, True, LAYOUT, SIZES), cast("device_programs.Programs", unused)
    return Device(settings, setup, programs, states.init_train(setup, seed=0), states.init_actor(setup))


def _make_setup(
    settings: dict[str, options.Value],
    spec: types.EnvSpec,
    num_learning: int,
    ahead: bool,
    layout: batches.Layout,
    sizes: tuple[int, ...],
) -> setups.Setup:
    config = configs.override(configs.Config(), settings)
    agent = agent_table.make(config, spec, "cpu")
    if agent.reanalyse is not None:
        agent = agent._replace(reanalyse=agent.reanalyse._replace(min_age=1))
    mesh, learners = meshes.split(meshes.make(1 + num_learning), min(1, num_learning))
    return setups.Setup(
        agent,
        spec,
        mesh,
        layout,
        sizes,
        setups._slot_length(agent, LENGTH * layout.num_train, layout.num_train),
        batch_size=agent.data.batch_size if isinstance(agent.data, sources.Queue) else config.replay.batch_size,
        capacity=CAPACITY,
        ahead=ahead,
        learners=learners,
        num_players=len(set(seats_config.policies(config, spec.seats))) or config.league.most_players,
        amends=bool(config.league.scripted) and spec.num_players == 2,
    )


def configured(device: Device, settings: dict[str, options.Value]) -> configs.Config:
    """Returns the configuration with further settings; __ stands for a dot."""
    dotted = {name.replace("__", "."): value for name, value in settings.items()}
    return configs.override(configs.Config(), {**device.settings, **dotted})


class _Replaced:
    """Device functions some of which are a test's."""

    def __init__(self, compiled: device_programs.Programs, replaced: dict[str, Any]) -> None:
        self._compiled, self.replaced = compiled, replaced

    def __getattr__(self, name: str) -> Any:
        return self.replaced.get(name, getattr(self._compiled, name))


def replaced(device: Device, **functions: Any) -> Device:
    """Returns an agent with other functions on the device: act, update, reanalyse; or a future of the last two."""
    for name in functions.keys() & {"update", "reanalyse"}:
        if not isinstance(functions[name], futures.Future):
            compiled, changed = getattr(device.programs, name).result(), futures.Future[device_programs.Training]()
            changed.set_result(compiled._replace(functions={**compiled.functions, name: functions[name]}))
            functions[name] = changed
    if act := functions.get("act"):
        functions["act"] = lambda num_rows: act
    return device._replace(programs=cast(Any, _Replaced(device.programs, functions)))


def _make_place(number: int, device: Device) -> places.Place:
    strategy = device_programs.choose_strategy(device.setup, on_host=False, on_ready=lambda: None)
    actor = trees.copy(device.actor)  # calls donate it
    return places.Place(number, device.setup, device.programs, strategy, actor.rings, actor.carried)


class World:
    """A loop, and what it told the workers and the runtime."""

    def __init__(
        self,
        device: Device,
        seating: seatings.Seating | None = None,
        elsewhere: Device | None = None,
        names: Sequence[str] = ("main", "other"),
        **settings: options.Value,
    ) -> None:
        """seating: of players of these names; None: there is one.

        elsewhere: a place for the second one; None: they share one.
        """
        self._devices = (device,) if elsewhere is None else (device, elsewhere)
        self.config = config = configured(device, settings)
        here, table = self._devices, None if elsewhere is None else np.where(device.setup.layout.is_here, 0, 1)
        self.people = rosters.Roster(config, device.setup.layout, device.setup.max_rows, table=table)
        self.inbox = inboxes.Inbox()
        self.replies: list[tuple[messages.StepRequest, list[int], int]] = []
        self.bots: list[list[int]] = []  # of each reply, the numbers of its rows' bots; empty: none
        self.restarts: list[str] = []
        self.results: list[episodes.Scores] = []
        self.bests: list[int] = []
        self.saved: list[int] = []
        self.rows: list[int] = []
        self.reports: list[str] = []
        self.frozen: list[str] = []
        self.decisions: list[Any] = []
        self.gathered = counts.Aggregator()
        self.now = 0.0
        self.places = tuple(_make_place(number, one) for number, one in enumerate(here))
        self.place = self.places[0]
        names = ("main",) if seating is None else names
        self.players = tuple(self._player(here[at % len(here)], name, at % len(here)) for at, name in enumerate(names))
        self.player = self.players[0]
        workers = dispatchers.Workers(
            self.inbox,
            self.people,
            self._reply,
            lambda session_id, reason: self.restarts.append(session_id),
        )
        self.observer = observers.LiveObserver(lambda: self.now, newest_rows.NewestReader)
        self.dispatcher = dispatchers.Dispatcher(
            config,
            self.places,
            self.players,
            workers,
            self.gathered,
            lambda: self.now,
            seating,
            self.observer,
        )
        hooks = device_loop.Hooks(
            self._evaluated,
            lambda state: self.saved.append(int(state.counters["num_updates"])),
            lambda: self.rows.append(self.num_updates),
            self.reports.append,
            lambda snapshot: not self.frozen.append(snapshot.name),
            self.decisions.append,
        )
        self.building = building.Building(config, self.dispatcher, hooks, self._added)
        self.loop = device_loop.DeviceLoop(config, self.dispatcher, hooks, after_update=self.building.after_update)

    def _added(self, name: str, number: int, place: places.Place) -> players.Player:
        """Returns a player that a builder adds; its seed is its number."""
        player = self._player(self._devices[place.number], name, place.number)
        return dataclasses.replace(player, seed=number, train=place.make_train(np.int32(number)))

    def _player(self, device: Device, name: str, place: int) -> players.Player:
        setup, rate_limiter = device.setup, players.make_pacer(self.config, device.setup)
        accounting = step_accounting.StepAccounting(
            setup.layout, rate_limiter, self.gathered, setup.spec, self.config.league.homes_change
        )
        seed, train = self.config.run.seed, trees.copy(device.train)  # an update donates it
        return players.Player(name, seed, self.places[place], train, rate_limiter=rate_limiter, accounting=accounting)

    def _reply(self, request: messages.StepRequest, actions: np.ndarray, version: int, *bot: np.ndarray) -> None:
        self.replies.append((request, actions.tolist(), version))
        self.bots.append([number for numbers in bot for number in numbers.tolist()])

    def _evaluated(self, ended: evaluators.Ended) -> None:
        self.results.append(ended.result)
        if ended.is_best:
            self.bests.append(ended.running.update)

    @property
    def num_updates(self) -> int:
        return self.loop.look().num_updates

    @property
    def rings(self) -> Any:
        return jax.tree.map(np.asarray, self.player.rings)

    def join(self, role: types.Role = types.Role.TRAIN, name: str = "local-0") -> rosters.Session:
        assignment = self.people.assign(messages.Hello(name, "", (role,), ("catch", "pgx", env_ids.YOURS), 99))
        return self.people.begin(assignment.session_id)

    def show(self, session: rosters.Session, group: int, value: float, **shown: Any) -> None:
        """One message of a group, every environment alike; shown: as of `message`."""
        self.inbox.put(message(session, group, value, now=self.now, **shown))

    def show_all(self, session: rosters.Session, value: float, **shown: Any) -> None:
        """One message of each group."""
        for group in range(len(session.slots)):
            self.show(session, group, value, **shown)

    def answer(self, session: rosters.Session, group: int, value: float, **shown: Any) -> None:
        """Shows one message of a group, and works until there is nothing to do."""
        self.show(session, group, value, **shown)
        self.work()

    def lose(self, session: rosters.Session, reason: str = counts.WORKER_LOST) -> None:
        """What the learner does when a worker's session is over."""
        self.people.remove(session.session_id)
        self.inbox.end_session(session.session_id, session.role, session.all_slots, reason)

    def complete(self) -> None:
        """Waits for everything in flight."""
        for number, lane in enumerate(self.dispatcher.in_flight.lanes):
            while lane.number:
                self.dispatcher.in_flight.complete_next(number)

    def step(self) -> bool:
        """Takes a turn; returns whether it submitted a call."""
        return isinstance(self.loop.step(), scheduler.Call)

    def has_work(self) -> bool:
        """Whether the present facts ask for a call."""
        return isinstance(self.loop.decide(), scheduler.Call)

    def seconds_left(self) -> float | None:
        """The time until the decision to wait may change by itself; None: it will not."""
        decision = self.loop.decide()
        assert isinstance(decision, scheduler.Wait)
        return None if math.isinf(decision.until) else decision.until - self.now

    def work(self) -> None:
        """Decides and completes until there is nothing to do."""
        while self.step() or not self.dispatcher.in_flight.is_empty:
            self.complete()

    @contextlib.contextmanager
    def completions(self) -> Iterator[None]:
        """While entered, the completion threads run."""
        in_flight = self.dispatcher.in_flight  # its own can be started once only
        threads = [threading.Thread(target=in_flight.work, args=(lane,)) for lane in range(len(in_flight.lanes))]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for lane, thread in zip(in_flight.lanes, threads, strict=True):
                lane.waiting.put(None)
                thread.join()

    def play(self, session: rosters.Session, num_steps: int, *, episode: int = 3) -> None:
        """Shows whole episodes of `episode` steps in all groups, waiting for each answer; the first one now."""
        for index in range(num_steps):
            place = index % (episode + 1)
            self.show_all(session, float(place), first=place == 0, final=place == episode)
            self.work()


Make = Callable[..., World]
"""World(**settings)."""


def message(
    session: rosters.Session,
    group: int,
    value: float,
    *,
    first: bool = False,
    final: bool = False,
    reward: float = 1.0,
    now: float = 0.0,
    tasks: Sequence[int] | None = None,
) -> batches.Message:
    """Returns a message of a group, every environment alike but for its task."""
    slots = session.slots[group]
    size = len(slots)
    everywhere = np.ones(size, bool)
    step = types.EnvStep(
        np.full((size, 2), value, np.float32),
        np.full(size, 0.0 if first else reward, np.float32),
        everywhere & final,
        ~everywhere,
        task=None if tasks is None else np.array(tasks, np.int32),
    )
    request = messages.StepRequest(session.session_id, session.role, group, 0, step, everywhere & first)
    return batches.Message(request, slots, now)


def rows(slots: Sequence[int] | np.ndarray, **arrays: Any) -> batches.Batch:
    """Returns joined rows of slots, each a game of its own, in the middle of episodes. arrays: those that differ."""
    slot, no = np.array(slots, np.int32), np.zeros(len(slots), bool)
    usual = {"first": no, "terminated": no, "truncated": no, "group": slot, "game": slot}
    usual |= {"reward": no.astype(np.float32), "task": no.astype(np.int32)}
    return batches.Batch(slot, **{**usual, **arrays})


def make_session(
    *groups: list[int], role: types.Role = types.Role.TRAIN, name: str = "s", tasks: tuple[str, ...] = ()
) -> rosters.Session:
    """Returns a session of given slots that no roster knows."""
    slots = tuple(np.array(group, np.int32) for group in groups)
    return rosters.Session(name, "w", role, slots, started=True, tasks=tasks)


def assert_same_state(one: World, other: World) -> None:
    """Asserts that checkpoints of both would be equal bit for bit, but for the steps in rings that a queue drops."""
    first, second = one.loop.state(), other.loop.state()
    dropped = {} if first.rings else {"stored_per_shard": None}
    assert {**first.counters, **dropped} == {**second.counters, **dropped}
    for a, b in zip(jax.tree.leaves(first[:2]), jax.tree.leaves(second[:2]), strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b))
