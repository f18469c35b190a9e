"""Gathers the facts of a run from its players, for decisions, for budgets and for the screen."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from seedzero.config import configs
from seedzero.core import types
from seedzero.learner.loop import agreement, dispatchers, inboxes, phase, players, rate_limiting, scheduler
from seedzero.monitoring.metrics import counts

_MAX_DUE = 8
"""The most updates that are announced to the other hosts; a save or a stop comes after those decided."""


def turns(config: configs.Config, dispatcher: dispatchers.Dispatcher, last: int) -> list[list[int]]:
    """Returns the players' numbers for each decision, one for each place, beginning after the place served last.

    In lock step, one decision is about all players and waits for room in all places, so that no order depends on when
    calls end. last: number of a place; -1 if none was served.
    """
    flight, number = dispatcher.in_flight, len(dispatcher.places)
    in_turn = [dispatcher.places[(last + 1 + index) % number] for index in range(number)]
    rooms = [place for place in in_turn if flight.has_room_in(*place.lanes)]
    if config.run.deterministic or number == 1:
        return [list(range(len(dispatcher.players)))] if len(rooms) == number else []
    found = [[at for at, player in enumerate(dispatcher.players) if player.place is place] for place in rooms]
    return list(filter(None, found))


def gather(
    config: configs.Config,
    dispatcher: dispatchers.Dispatcher,
    run_phase: phase.RunPhase,
    turn: Sequence[int],
    *,
    may_update: bool = True,
) -> scheduler.Facts:
    """Returns the facts for the next decision.

    Args:
      turn: numbers of the players that decide.
      may_update: false if an update waits for the run's other hosts.
    """
    now, evaluator, flight = dispatcher.clock(), dispatcher.evaluator, dispatcher.in_flight
    learning = [dispatcher.players[number] for number in turn]
    waiting = dispatcher.workers.inbox.waiting(types.Role.TRAIN)
    all_wait = sum(message.num_envs for message in waiting) == config.worker.num_envs
    can_fill = _can_fill(config, dispatcher, waiting)
    rates = tuple(player.rate_limiter.rate() for player in learning)
    return scheduler.Facts(
        now=now,
        players=tuple(
            _progress(config, dispatcher, player, can_fill=can, all_wait=all_wait, may_update=may_update)
            for player, can in zip(learning, (can_fill[number] for number in turn), strict=True)
        ),
        rates=rates,
        only_evaluates=run_phase.ends or now < evaluator.pause_until,
        lock_step=config.run.deterministic,
        is_idle=all(flight.is_empty_in(*player.place.lanes) for player in learning),
        deadlines=(last_until(dispatcher, run_phase), evaluator.pause_until, *(rate.until for rate in rates)),
    )


def choice(
    config: configs.Config,
    dispatcher: dispatchers.Dispatcher,
    run_phase: phase.RunPhase,
    turns: Sequence[Sequence[int]],
    *,
    may_update: bool = True,
) -> scheduler.Call | scheduler.Wait:
    """Returns the next call as without other hosts: of the first turn that has one. may_update: as in `gather`."""
    waits = []
    for turn in turns:
        found = scheduler.decide(gather(config, dispatcher, run_phase, turn, may_update=may_update))
        if isinstance(found, scheduler.Call):
            return found._replace(players=tuple(turn[number] for number in found.players))
        waits.append(found)
    return scheduler.Wait(min(wait.until for wait in waits), sum((wait.held for wait in waits), ()))


def readiness(
    config: configs.Config,
    dispatcher: dispatchers.Dispatcher,
    run_phase: phase.RunPhase,
    turns: Sequence[Sequence[int]],
) -> agreement.Readiness:
    """Returns what one of several hosts could do next."""
    alone, may_update = choice(config, dispatcher, run_phase, turns), can_update(dispatcher)
    return agreement.Readiness(
        alone,
        choice(config, dispatcher, run_phase, turns, may_update=False) if may_update else alone,
        dispatcher.everyone.num_updates,
        num_due=num_due(config, dispatcher, run_phase),
        can_update=may_update,
        awaits_last=dispatcher.update_times.awaits_slow,
        takes_turns=dispatcher.update_times.are_slow,
    )


def last_until(dispatcher: dispatchers.Dispatcher, run_phase: phase.RunPhase) -> float:
    """Returns the time at which the run's last evaluation is given up; infinity if the run continues."""
    running = dispatcher.evaluator.running
    num_steps = 0 if running is None else running.played.num_steps
    return run_phase.last_until(dispatcher.evaluator.last_step, num_steps) if run_phase.ends else math.inf


def _can_fill(
    config: configs.Config, dispatcher: dispatchers.Dispatcher, messages: Sequence[inboxes.Waiting]
) -> list[bool]:
    """Returns for each player whether its waiting messages make a batch; in lock step only all messages do."""
    seating, learning = dispatcher.seating, dispatcher.players
    num_rows, num_ready = [0] * len(learning), 0
    for message in messages:
        at_home = seating.rows(message.slots)
        if any(learning[home].rate_limiter.holds(slots) for home, slots in at_home.items()):
            continue
        num_ready += message.num_envs  # also if nobody learns in that place, where they wait
        for home in at_home:
            num_rows[home] += message.num_envs
    if config.run.deterministic:
        return [num_ready == config.worker.num_envs] * len(num_rows)
    return [rows > 0 for rows in num_rows]


def _progress(
    config: configs.Config,
    dispatcher: dispatchers.Dispatcher,
    player: players.Player,
    *,
    can_fill: bool,
    all_wait: bool,
    may_update: bool,
) -> rate_limiting.Progress:
    lock_step, evaluator, flight = config.run.deterministic, dispatcher.evaluator, dispatcher.in_flight
    accounting, place = player.accounting, player.place
    programs = place.programs
    ready = bool(programs.sizes) and (not lock_step or programs.sizes == programs.all_sizes)
    # Hosts update together, until the last of them has all its updates.
    last = last_update(config, dispatcher.players, player) if config.cluster.num_hosts == 1 else 0
    has_room, may_learn = flight.has_room_in(place.acting), flight.has_room_in(place.updating)
    evaluating = evaluator.running is not None
    num_inserts = accounting.ledger.counts.stored
    only_learns = config.run.has_all_steps(num_inserts)
    may_act = ready and not only_learns and can_fill
    can_act = may_act and has_room and not (place.strategy.takes_turns and not may_learn)
    waits = evaluating and place.number == 0 and bool(dispatcher.workers.inbox.waiting(types.Role.EVALUATE))
    return rate_limiting.Progress(
        num_inserts=num_inserts,
        num_kept=accounting.num_kept,
        num_updates=player.num_updates,
        num_reanalyses=player.num_reanalyses,
        can_act=can_act,
        can_evaluate=has_room and ready and waits,
        can_update=may_update and may_learn and player.can_update and not 0 < last <= player.num_updates,
        can_reanalyse=has_room and programs.reanalyse.done() and accounting.can_sample,
        evaluating=evaluating or (lock_step and dispatcher.is_evaluation_due(is_last=False)),
        evaluated_last=dispatcher.evaluated_last,
        only_learns=only_learns,
        waits_to_act=may_act and not can_act,
        all_wait=all_wait,
    )


def last_update(config: configs.Config, learning: Sequence[players.Player], player: players.Player) -> int:
    """Returns the number of the update that ends a run of --max_env_steps, or 0 if the last step does.

    Whatever the speed of environments and updates, such a run then learns from as many windows. How many players or
    hosts share the steps is known at the end only, so that there nothing but --replay.final_updates follows the last.
    """
    shares = len(learning) > 1 or config.cluster.num_hosts > 1
    if not config.run.max_env_steps or (shares and not config.replay.final_updates):
        return 0
    return player.rate_limiter.owed_updates(config.run.max_env_steps)


def own_counts(dispatcher: dispatchers.Dispatcher) -> counts.Counts:
    """Returns the counters of this host, summed over players, including retired ones."""
    everyone = dispatcher.everyone
    found = everyone.counts()
    num_samples = everyone.retired.num_samples + sum(
        player.rate_limiter.num_samples(player.num_updates, own.stored)
        for player, own in zip(everyone.learning, found, strict=False)
    )
    return dataclasses.replace(counts.total(found), num_samples=num_samples)


def can_update(dispatcher: dispatchers.Dispatcher) -> bool:
    """Returns whether the only player's next update can be submitted now."""
    player = dispatcher.players[0]
    return dispatcher.in_flight.has_room_in(player.place.updating) and player.can_update


def num_due(config: configs.Config, dispatcher: dispatchers.Dispatcher, run_phase: phase.RunPhase) -> int:
    """Returns the updates that the only player will submit in turn, whatever its environments do next.

    0 if the next ones depend on more: in lock step, during evaluations, and once the run has all its steps.
    """
    player = dispatcher.players[0]
    only_evaluates = run_phase.ends or dispatcher.clock() < dispatcher.evaluator.pause_until
    if config.run.deterministic or only_evaluates or run_phase.over is not None or not player.can_update:
        return 0
    progress = _progress(config, dispatcher, player, can_fill=False, all_wait=False, may_update=True)
    most = config.run.max_updates - progress.num_updates if config.run.max_updates else _MAX_DUE
    return 0 if progress.only_learns else max(0, min(player.rate_limiter.rate().num_due(progress), most, _MAX_DUE))


def spent(config: configs.Config, dispatcher: dispatchers.Dispatcher) -> str:
    """Returns a message about the spent budget, or ""."""
    budget, learning = config.run, dispatcher.players
    num_steps = sum(found.env_steps for found in dispatcher.everyone.counts())
    owed = sum(
        last_update(config, learning, player)
        for player in learning
        if player.accounting.num_kept >= config.replay.min_steps and player.accounting.can_sample
    )
    found = budget.spent(dispatcher.everyone.num_updates, num_steps, owed)
    return f"{found}{of_each_host(config, found)} reached" if found else ""


def of_each_host(config: configs.Config, spent: str) -> str:
    """Returns what a message about a spent budget adds if there are several hosts, each with a share of the steps."""
    number = config.cluster.num_hosts
    return f" (the share of one of {number} hosts)" if number > 1 and "steps" in spent and config.agent.SAMPLES else ""


def left_out(config: configs.Config, learning: tuple[players.Player, ...]) -> tuple[tuple[int, int], str]:
    """Returns the updates skipped after a run's last step, as in `phase.RunEnd`, and a message about them, or ""."""
    for player in learning:
        num_kept = player.accounting.num_kept
        if not config.run.has_all_steps(player.env_steps) or num_kept >= config.replay.min_steps:
            continue
        number = last_update(config, learning, player) - player.num_updates
        if config.replay.final_updates and number > 0:
            return (number, config.replay.min_steps), (
                f"{number} of the updates after the last step are left out: the replay holds {num_kept} steps, "
                f"and learning needs --replay.min_steps={config.replay.min_steps}. A run that resumes from a "
                "checkpoint without replay begins with an empty one"
            )
    return (0, 0), ""


def look(
    config: configs.Config,
    dispatcher: dispatchers.Dispatcher,
    run_phase: phase.RunPhase,
    others: Sequence[counts.Counts] = (),
) -> counts.Snapshot:
    """Any thread: returns the counters, summed over players, with the first player's version and evaluations.

    others: counters of the run's other hosts, which are added.
    """
    learning, evaluator = dispatcher.everyone.learning, dispatcher.evaluator
    first, running = learning[0], evaluator.running  # another thread may set it to None
    reanalyse, own = first.place.setup.agent.reanalyse, own_counts(dispatcher)
    found, num_reanalyses = counts.total([own, *others]), dispatcher.everyone.num_reanalyses
    shares = found.stored / max(1, own.stored)  # as if the other hosts had done as many for each of their steps
    sessions = dispatcher.workers.roster.started(types.Role.TRAIN)
    groups = [slots for session in sessions for slots in session.slots]
    at_home = [[slots for slots in groups if one.mine is None or one.mine[slots].any()] for one in learning]
    lacking = [player.accounting.lacking(groups) for player, groups in zip(learning, at_home, strict=True)]
    away = [player.name for player, groups in zip(learning, at_home, strict=True) if not groups]
    if away and len(sessions) >= max(1, config.worker.num):  # otherwise local workers are still starting
        lacking.append(
            f"no updates of {', '.join(away)}: no environments are at home there; have another worker join, or give "
            "more --worker.num_groups"
        )
    policies = {
        player.name: counts.PolicyCounts(player.num_updates, player.accounting.ledger.counts.env_steps)
        for player in (learning if dispatcher.seating.by_seat else ())
    }
    return counts.Snapshot(
        counts=found,
        num_updates=dispatcher.everyone.num_updates,
        owed_updates=sum(last_update(config, learning, player) for player in learning),
        num_samples=found.num_samples,
        num_reanalysed=round(num_reanalyses * reanalyse.batch_size * shares) if reanalyse else None,
        version=first.version,
        last_evaluation=evaluator.last,
        evaluating=running is not None,
        remaining=f"last evaluation: {running.played.state}" if run_phase.ends and running is not None else "",
        lacking=next(filter(None, lacking), ""),
        matches=dispatcher.seating.num_matches(),
        win_rate=dispatcher.seating.win_rate(),
        num_frozen=len(dispatcher.seating.frozen()),
        policies=policies,
        is_compiled=all(place.programs.sizes and place.programs.update.done() for place in dispatcher.places),
        compiling=_compiling(dispatcher),
    )


def _compiling(dispatcher: dispatchers.Dispatcher) -> str:
    """Returns the program that a run without updates waits for, with its number; the initial state is the first."""
    programs = [place.programs for place in dispatcher.places]
    acting, updates = [bool(one.sizes) for one in programs], [one.update.done() for one in programs]
    number, total = 2 + sum(acting) + sum(updates), 1 + 2 * len(programs)
    return f"{'the update' if all(acting) else 'acting'} ({min(number, total)} of {total})"
