"""Submits calls to the devices, each with the work that follows its completion."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from seedzero.agents import base
from seedzero.config import configs, seats_config
from seedzero.core import env_ids, errors, infos, types
from seedzero.device import batches, states, steps
from seedzero.league import payoffs
from seedzero.learner.live import record
from seedzero.learner.loop import evaluators, in_flight_calls, inboxes, phase, places, players, rosters, seatings
from seedzero.monitoring.metrics import counts
from seedzero.replay import ring_store


# The calls of one acting tick, until their actions arrive.
class ActingCall(NamedTuple):
    """A call in flight: the actions [R] of its rows; the row [B] of each environment, and which of [N] these are."""

    actions: jax.Array | np.ndarray
    rows: np.ndarray
    mine: np.ndarray | None  # [N] bool; None: all, B = N
    metrics: Mapping[str, jax.Array] = {}  # {name: [R]} metrics of the agent's own in training
    given: np.ndarray | None = None  # [B], a scripted mover's actions, which replace the others


class Dealt(NamedTuple):
    """A home's part of a tick: its messages, with N environments, and their calls."""

    rows: batches.Batch
    messages: Sequence[batches.Message]
    version: int  # version of the home's parameters
    age: int  # updates that they have not seen
    calls: Sequence[ActingCall]
    looks: Mapping[int, Any] | None = None  # as in `record.Acted`
    bot: np.ndarray | None = None  # [N], as in `bots_of_rows`

    def actions(self) -> np.ndarray:
        """Waits for the actions [N, ...] and returns them."""
        joined: np.ndarray
        found = [np.asarray(call.actions)[call.rows] for call in self.calls]
        found = [one if call.given is None else call.given for one, call in zip(found, self.calls, strict=True)]
        if self.calls[0].mine is None:
            (joined,) = found
        else:
            joined = np.zeros((len(self.calls[0].mine), *found[0].shape[1:]), found[0].dtype)
            for call, actions in zip(self.calls, found, strict=True):
                joined[call.mine] = actions
        return joined

    def answers(self, actions: np.ndarray) -> Iterator[tuple[Any, ...]]:
        """Yields the arguments of `dispatchers.Workers.reply` for each message. actions: those of `actions`."""
        ends = np.cumsum([len(message.slots) for message in self.messages])[:-1]
        bots = [None] * len(self.messages) if self.bot is None else np.split(self.bot, ends)
        for message, chosen, bot in zip(self.messages, np.split(actions, ends), bots, strict=True):
            asked = () if bot is None or not bot.any() else (message.answer(bot)[1],)
            yield *message.answer(chosen), self.version, *asked


_MAX_REJECTED = 10
"""After this many consecutive updates with a non-finite loss or gradient, training stops."""


class Workers(NamedTuple):
    """How the loop reaches workers. With `restart`, a worker resets its environments and takes a new session id."""

    inbox: inboxes.Inbox
    roster: rosters.Roster
    # Any thread: request, [E] actions, weights version; if bots move, their numbers [E] as in `messages.Actions`
    reply: Callable[..., None]
    restart: Callable[[str, str], None]  # any thread: session id, reason

    def end_session(self, session: rosters.Session, reason: str) -> None:
        """Makes a worker reset its environments."""
        self.roster.remove(session.session_id)
        self.inbox.drop_session(session.session_id, session.role)
        self.restart(session.session_id, reason)


class CheckpointState(NamedTuple):
    """What a checkpoint holds."""

    parts: dict[str, dict[str, base.Params]]  # of the train states, by player and name
    rings: ring_store.Replay | None  # the replay with its frames; None for a queue, which keeps none
    counters: dict[str, Any]  # counters, as JSON
    frozen: tuple[str, ...] = ()  # names of the league's frozen players


class NewPlayer(NamedTuple):
    """A frozen player at the time of the snapshot."""

    name: str
    parent: str  # the player that was copied
    version: int  # updates that its parameters have seen
    env_steps: int
    snapshot: states.PlayerSnapshot  # a copy
    reason: str = ""


class Dispatcher:
    """Submits acting, evaluation, updates and reanalyses. The loop's thread uses it and owns the players."""

    def __init__(
        self,
        config: configs.Config,
        here: tuple[places.Place, ...],
        learning: tuple[players.Player, ...],
        workers: Workers,
        gathered: counts.Aggregator,
        clock: Callable[[], float],
        seating: seatings.Seating | None = None,
        observer: record.Observer = record.NOBODY,
    ) -> None:
        """here: the run's places. seating: None with one player."""
        self.places = here
        self.players, self.everyone = learning, players.Everyone(learning)
        self.workers = workers
        self.gathered = gathered
        self.clock = clock
        self.seating = seating or seatings.Seating()
        self.observer = observer
        self._moves = ScriptedMoves(here[0].setup.layout.num_slots) if config.league.scripted else None
        self._lock_step = config.run.deterministic
        # The first player's. Deterministic runs read no clock.
        evaluation = config.evaluation
        if self._lock_step:
            evaluation = dataclasses.replace(evaluation, every_seconds=0.0)
        policies_of = functools.partial(seats_config.policies, config)
        self.evaluator = evaluators.Evaluator(evaluation, config.env.id, now=clock(), policies_of=policies_of)
        maxima: list[int] = []
        for place in here:
            lanes = place.strategy.lanes(config.training.max_in_flight)
            place.lanes = range(len(maxima), len(maxima) + len(lanes))
            maxima += lanes
        self.in_flight = in_flight_calls.InFlight(workers.inbox.news, *maxima, observer=observer)
        self.update_times = in_flight_calls.UpdateTimes(clock)
        self.evaluated_last = False
        """Whether the last acting call was an evaluation's; evaluation and training alternate."""
        self.begins_here = np.zeros(here[0].setup.layout.num_slots, bool)  # slots whose next row is a cut
        self._num_acts = 0
        self._config = config
        self._publish_every = config.training.publish_every
        self._clip_norm = counts.clip_limit(config)

    # ------------------------------------------------------------------------------------ submitting

    def act(self, homes: Sequence[int]) -> None:
        """Acts for waiting training environments at home with some players: a tick of each place, completed as one."""

        def homes_that_act(slots: np.ndarray) -> Mapping[int, np.ndarray]:
            found, learning = self.seating.rows(slots), self.players
            waits = any(home not in homes or learning[home].rate_limiter.holds(own) for home, own in found.items())
            return {} if waits else found

        for player in self.players:
            player.receive()
        for place in dict.fromkeys(self.players[home].place for home in homes):
            began = self.observer.clock()
            parties = self.seating.parties(self._take(types.Role.TRAIN, place, homes_that_act))
            if not parties:
                continue  # their session ended a moment ago
            tick = [self._act_at(*party) for party in parties]
            self.in_flight.add_call("act", began, functools.partial(self._deliver, tick), place.acting)
            if place is self.places[0]:
                self.evaluated_last = False

    def _act_at(self, homes: Sequence[int], messages: Sequence[batches.Message]) -> Dealt:
        """Books the rows of one place's messages at their homes, and submits a call for each home and mover."""
        here, cut, bot = [self.players[home] for home in homes], None, None
        inserts, joined = [player.num_inserts for player in here], batches.join(messages, here[0].accounting.spec)
        dealt = [self.seating.deal(joined, home) for home in homes]
        if (begins := self.begins_here[joined.slot]).any():
            cut = joined.slot[begins & ~joined.first]
            joined = joined._replace(first=joined.first | begins)
            self.begins_here[joined.slot] = False
        if self._moves is not None:
            (hands,) = dealt
            joined, bot = self._moves.settle(joined, hands), bots_of_rows(hands, joined.final)
        calls = list[ActingCall]()
        for player, hands, num_inserts in zip(here, dealt, inserts, strict=True):
            player.accounting.record(seatings.stored(joined, hands), self.clock(), cut)
            self.gathered.add_means({"policy_age": player.num_updates - player.version})
            calls += [self._run_act(player, messages, joined, hand, player.version, num_inserts) for hand in hands]
        for step in (message.request.step for message in messages if message.request.step.info):
            for row in np.flatnonzero(step.final):
                self.gathered.add_info(infos.of(step.info, int(row)))
        looks = self.observer.look(joined.slot, here[0].place)
        age = max(player.num_updates - player.version for player in here)
        return Dealt(joined, messages, min(player.version for player in here), age, calls, looks, bot)

    def evaluate(self, *, is_last: bool) -> evaluators.Ended | None:
        """Acts for the waiting evaluation environments; returns a complete evaluation. is_last: it ends the run."""
        running, player, began = self.evaluator.running, self.players[0], self.observer.clock()
        assert running is not None
        messages = self._take(types.Role.EVALUATE, player.place, lambda slots: {0: slots})
        if not messages:
            return None  # their session ended a moment ago
        self.evaluated_last = True
        joined = batches.join(messages)
        num_updates = self.everyone.num_updates
        ended = self.evaluator.record(messages, num_updates, self.clock(), is_last=is_last)
        if ended is None:
            calls, mode = list[ActingCall](), self._config.evaluation.mode(player.place.setup.spec)
            for home, hand in self.seating.evaluating(joined, running.measured):
                one = self.players[home]
                hand = hand._replace(params=running.params[one.name], action_mode=mode)
                calls.append(self._run_act(one, messages, joined, hand, running.update, 0))
            tick = [Dealt(joined, messages, running.update, num_updates - running.update, calls)]
            self.in_flight.add_call("evaluate", began, lambda: self._deliver(tick), player.place.acting)
        else:
            self.observer.see(record.Acted(joined, messages))
            played = running.played
            tasks = played.tasks or ("",)
            self.seating.count(payoffs.evaluated((tasks[episode.task], episode.total) for episode in played.finished))
            self.workers.roster.evaluation_index += 1
            reason = "the evaluation is complete; the next one starts with fresh episodes"
            self.workers.end_session(running.session, reason)
        return ended

    def _take(self, role: types.Role, place: places.Place, homes: inboxes.Homes) -> list[batches.Message]:
        """Takes the messages of a tick in a place; in lock step, in the order of their slots."""

        def homes_here(slots: np.ndarray) -> Mapping[int, np.ndarray]:
            found = homes(slots)
            return found if all(self.players[home].place is place for home in found) else {}

        messages = self.workers.inbox.take(role, place.setup.layout, place.programs.sizes[-1], homes_here)
        if self._lock_step:
            messages.sort(key=lambda message: message.first_slot)
        return messages

    def _run_act(
        self,
        player: players.Player,
        messages: Sequence[batches.Message],
        joined: batches.Batch,
        hand: seatings.Hand,
        version: int,
        num_inserts: int,
    ) -> ActingCall:
        """Submits a call for a hand's rows of messages that are at home with a player."""
        if hand.is_scripted and not hand.stored:
            return scripted_call(hand, len(joined.slot))
        setup, sizes, stored = player.place.setup, player.place.programs.sizes, hand.stored
        batch, rows = batches.assemble(
            messages,
            joined,
            hand.mine,
            setup.spec,
            setup.layout,
            sizes,
            hand.action_mode,
            stored=stored,
            amends=setup.amends,
        )
        counters = steps.counters(num_inserts, version, self._num_acts, own=hand.own)
        self._num_acts += 1
        params = player.params if hand.params is None else hand.params
        acted = player.place.run_act(player.seed, params, player.mine, batch, counters)
        actions, metrics = acted if isinstance(acted, tuple) else (acted, {})
        self.gathered.add_batch(len(rows), len(batch.slot), self.clock() - messages[0].arrived)
        trains = hand.own and hand.action_mode == types.EXPLORE
        return ActingCall(actions, rows, hand.mine, metrics if trains else {}, hand.given)

    def _deliver(self, tick: Sequence[Dealt]) -> list[record.Acted]:
        """Completion thread: waits for a tick's actions, sends the replies, and returns the rows that acted."""
        told = []
        for dealt in tick:
            joined = dealt.actions()
            for answer in dealt.answers(joined):
                self.workers.reply(*answer)
            size = sum(len(call.actions) for call in dealt.calls)
            told.append(record.Acted(dealt.rows, dealt.messages, joined, size, dealt.age, dealt.looks))
            for call in dealt.calls:
                for name, values in call.metrics.items():
                    known = np.asarray(values)[call.rows]
                    known = known[~np.isnan(known)]
                    self.gathered.add_means({name: float(known.sum()) / max(1, known.size)}, weight=known.size)
        return told

    def update(self, player: players.Player) -> None:
        """Learns once, and publishes parameters that are due."""
        began = self.observer.clock()
        metrics = player.run_update(self.clock())
        if player.num_updates % self._publish_every == 0:
            player.publish()
        strategy = player.place.strategy
        names, settle = player.place.programs.update.result().metric_names, strategy.when_there()
        ended = self.update_times.begin()

        def collect() -> None:
            fetched = dict(zip(names, np.asarray(metrics).tolist(), strict=True))
            ended()
            values = {**fetched, **counts.clip_share(self._clip_norm, fetched)}
            self.gathered.add_means(values)
            if self.seating.by_seat:
                self.gathered.add_means({f"{name}/{player.name}": value for name, value in values.items()})
            if fetched["num_rejected"] >= _MAX_REJECTED:
                raise errors.TrainingFailure(
                    f"the loss or its gradient was not finite in {_MAX_REJECTED} updates in a row; resume from the "
                    f"last checkpoint with a lower learning rate, or look for huge rewards"
                )
            if strategy.takes_turns:
                settle()

        self.in_flight.add_call("update", began, collect, player.place.updating)

    def reanalyse(self, player: players.Player) -> None:
        """Reanalyses stored targets once."""
        began, values = self.observer.clock(), player.run_reanalyse()
        names = player.place.programs.reanalyse.result().metric_names

        def collect() -> None:
            fetched = dict(zip(names, np.asarray(values).tolist(), strict=True))
            share = fetched.pop("refreshed_share")
            self.gathered.add_means({"refreshed_share": share})
            self.gathered.add_means(fetched, weight=share)  # averaged over the reanalysed rows

        self.in_flight.add_call("reanalyse", began, collect, player.place.acting)

    # ------------------------------------------------------------------------------------ environments

    def discard(self, slots: np.ndarray, reason: str) -> None:
        """Ends the histories of slots without environments, for one of the ledger's reasons."""
        if slots[0] < self.places[0].setup.layout.num_slots:
            self.seating.lose(slots)
            for player in self.players:
                player.accounting.cut(slots, reason)
        else:
            self.evaluator.abandon()  # it starts again with the next environments

    def reset_environments(self) -> None:
        """Restarts every training environment with a seed from the checkpoint's number, as a resume does."""
        self.workers.roster.epoch += 1
        for session in self.workers.roster.started(types.Role.TRAIN):
            self.discard(session.all_slots, counts.CHECKPOINT_RESET)
            self.workers.end_session(session, "environments are reset at a checkpoint")
        for player in self.players:
            player.accounting.drop(counts.CHECKPOINT_RESET)
        self.seating.reset()
        for place in self.places:
            place.forget_environments()

    def is_evaluation_due(self, *, is_last: bool) -> bool:
        """Returns whether an evaluation should begin. is_last: it ends the run."""
        return self.evaluator.is_due(self.everyone.num_updates, self.clock(), is_last=is_last)

    def begin_evaluation(self, *, is_last: bool, others: Sequence[counts.Counts] = ()) -> None:
        """Starts a due evaluation with the newest parameters, given its environments. others: other hosts'."""
        if self.evaluator.running is not None or not self.is_evaluation_due(is_last=is_last):
            return
        for session in self.workers.roster.started(types.Role.EVALUATE)[:1]:
            num_updates, now, sides = self.everyone.num_updates, self.clock(), self.seating.sides
            acting = self.players if self.seating.by_seat else self.players[:1]
            params = {one.name: one.copy_params() for one in acting}
            env_steps = sum(found.env_steps for found in (*self.everyone.counts(), *others))
            self.evaluator.begin(session, num_updates, params, now=now, env_steps=env_steps, sides=sides)

    def end(self, left_out: tuple[int, int], *, may_wait: bool) -> phase.RunEnd:
        """Returns the facts of the end of a run whose budget is spent; evaluations of older parameters do not count.

        left_out: as in `phase.RunEnd`. may_wait: the last evaluation may wait for a first worker.
        """
        evaluator, roster, player = self.evaluator, self.workers.roster, self.players[0]
        kept = {}
        if self._lock_step and not self.is_evaluation_due(is_last=False):
            # The last evaluation is extra: a larger budget continues from here as if it had been set from the start.
            kept = {"num_acts": self._num_acts, "evaluation_index": roster.evaluation_index}
        is_there = bool(roster.started(types.Role.EVALUATE))
        running = evaluator.running
        if running is not None and running.update < self.everyone.num_updates:
            evaluator.abandon()
            self.workers.end_session(running.session, "the run's last evaluation starts with fresh episodes")
        run, num_steps = self._config.run, player.env_steps
        bound = phase.bound(run, self._config.evaluation, num_steps)
        expects = self._config.env.id != env_ids.REMOTE or is_there or (may_wait and roster.awaits_worker)
        return phase.RunEnd(self.clock(), bound, expects, left_out, kept)

    # ------------------------------------------------------------------------------------ checkpoints

    def state(self, run_phase: phase.RunPhase) -> CheckpointState:
        """Returns a checkpoint's content; from here on, acting takes the newest parameters, as after a resume."""
        for player in self.players:
            player.publish()
        num_steps = sum(found.env_steps for found in self.everyone.counts())
        is_spent = bool(self._config.run.spent(self.everyone.num_updates, num_steps))
        is_spent |= self._config.cluster.num_hosts > 1 and not self._config.agent.SAMPLES  # all together may be
        counters = {
            "num_acts": self._num_acts,
            **players.to_json(self.everyone),
            **self.evaluator.to_json(),
            **self.workers.roster.to_json(),
            **self.seating.to_json(),
            **run_phase.to_json(is_spent=is_spent),
            **places.to_json(self.places),
        }
        if self._lock_step and any(found.pending for found in self.everyone.counts()):
            counters["epoch"] += 1  # episodes have begun since the last reset, and a resume begins others
        parts = {player.name: player.state() for player in self.players}
        return CheckpointState(parts, places.whole(self.places), counters, self.seating.frozen())

    def restore(self, counters: Mapping[str, Any], *, has_replay: bool) -> None:
        """Restores a checkpoint's counters; without its replay, updates wait until new steps are stored."""
        self._num_acts = counters["num_acts"]
        self.everyone = players.restore(self.players, counters, has_replay=has_replay)
        self.evaluator.restore(counters)
        self.workers.roster.restore(counters)
        self.seating.restore(counters)


def set_players(dispatcher: Dispatcher, learning: tuple[players.Player, ...], mine: Sequence[np.ndarray]) -> None:
    """Lets other players learn; the next row of a slot that changes its home is a cut. mine: as in `Player`."""
    dispatcher.begins_here |= players.change_homes(dispatcher.players, learning, mine)
    dispatcher.players, dispatcher.everyone = learning, dispatcher.everyone.after(learning)


def freeze(
    seating: seatings.Seating, home: int, player: players.Player, keep: Callable[[NewPlayer], bool], reason: str = ""
) -> bool:
    """Takes a snapshot of a home's player for its league, and returns whether it will be saved. keep: saves it."""
    snapshot, counts = players.snapshot(player), player.counts
    name = seating.freeze(home, snapshot, **counts, reason=reason)
    is_kept = keep(NewPlayer(name, player.name, **counts, snapshot=snapshot, reason=reason))
    if not is_kept:
        seating.remove(name)
    return is_kept


def freeze_due(dispatcher: Dispatcher, keep: Callable[[NewPlayer], bool]) -> None:
    """Takes the snapshots that are due by training steps. keep: as in `freeze`."""
    for home, player in enumerate(dispatcher.players):
        if dispatcher.seating.freezes(home, player.env_steps):
            freeze(dispatcher.seating, home, player, keep)


_CHOSEN, _ASKED = -1, -2
"""Instead of an action: a network chose it; a bot of the worker was asked for it."""


# Makes moves that no network chooses: random moves, and moves of bots that workers play.
#
# A league's scripted members move like this. A bot's worker reports its action with the next observation; then the row
# before it, which the ring holds with the network's action, gets the action that was played.
#
# Shape letters: S training slots, N rows of a home's messages.
class ScriptedMoves:
    """The actions of slots' newest rows that no network chose. For the loop's thread."""

    def __init__(self, num_slots: int) -> None:
        self._given = np.full(num_slots, _CHOSEN, np.int32)

    def settle(self, joined: batches.Batch, hands: Sequence[seatings.Hand]) -> batches.Batch:
        """Returns rows with the actions that led to them, if no network chose these, and notes the hands' actions."""
        given = np.where(joined.first, _CHOSEN, self._given[joined.slot])
        told = _CHOSEN if joined.played is None else joined.played
        self._given[joined.slot] = _CHOSEN
        for hand in hands:
            if hand.is_scripted:
                slots = joined.slot if hand.mine is None else joined.slot[hand.mine]
                self._given[slots] = _ASKED if hand.given is None else hand.given
        return joined._replace(played=np.where(given == _ASKED, told, given).astype(np.int32))


def bots_of_rows(hands: Sequence[seatings.Hand], final: np.ndarray) -> np.ndarray | None:
    """Returns the number of the bot that moves each row, [N] uint8, 0 for none, as in a last row.

    None if there are no bots.

    final: [N] bool, true: the last observation of an episode.
    """
    found = np.zeros(len(final), np.uint8)
    for hand in hands:
        if hand.bot:
            found[slice(None) if hand.mine is None else hand.mine] = hand.bot
    found[final] = 0
    return found if found.any() else None


def scripted_call(hand: seatings.Hand, num_rows: int) -> ActingCall:
    """Returns the actions of a scripted hand, whose rows nobody stores, without a call; 0 for a worker's bot.

    num_rows: of its home's messages.
    """
    size = num_rows if hand.mine is None else np.count_nonzero(hand.mine)
    given = np.zeros(size, np.int32) if hand.given is None else hand.given
    return ActingCall(given, np.arange(size), hand.mine)
