"""The start of a learner: its addresses, its environments' spec, and their device loop with its reports."""

from __future__ import annotations

import contextlib
import functools
import time

from seedzero.checkpoints import spec_file
from seedzero.core import errors, printable
from seedzero.host import build
from seedzero.host import parts as learner_parts
from seedzero.loop import device_loop
from seedzero.loop import dispatcher as dispatchers
from seedzero.loop import evaluator as evaluators
from seedzero.transport import descriptors, invitation, security


def show_spec(parts: learner_parts.LearnerParts) -> None:
    """Tells the reception the environments' spec, if that is known; then a resumed run is built at once."""
    resumed, path = parts.directory.resumed, parts.directory.path
    saved = spec_file.read(path) if resumed else None
    spec = spec_file.completed(saved, parts.expected) if saved else parts.expected
    if spec is None:
        return
    parts.reception.show(spec)
    if resumed:
        if saved != spec:
            spec_file.write(path, spec)
        _build(parts)  # its state is back before anyone joins


def listen(parts: learner_parts.LearnerParts) -> str:
    """Opens the server; returns its address."""
    try:
        return parts.server.start()
    except errors.Error:
        if parts.stage.loop is not None:
            parts.stage.loop.close()
        raise


def announce(parts: learner_parts.LearnerParts, address: str) -> None:
    """Shows the address, to the user, to `seedzero status` and on standard output."""
    config = parts.config
    few_files = descriptors.allow(config.transport.max_workers)
    for text in [*security.warnings(config.transport, config.tls), *filter(None, [few_files])]:
        parts.screen.message(text)
    parts.directory.write_learner(address, time.time(), local=parts.local)
    with contextlib.suppress(OSError):  # a full disk behind standard output, or a reader that has gone
        print(f"seedzero learner listening on {printable.escape(address)}", flush=True)


def prepare(parts: learner_parts.LearnerParts, address: str) -> None:
    """Builds a new run, then waits for its first worker; in the other order for a spec known to workers alone.

    Raises TrainingFailure if none came in time.
    """
    ending, reception = parts.ending, parts.reception
    if reception.spec is not None:
        _build(parts)
    elif parts.config.worker.num == 0:
        parts.screen.message(invitation.waiting(parts.config), invitation.to_worker(parts.config, address))
    while not (reception.has_begun or ending.is_interrupted) and parts.seconds_left() > 0:
        ending.check()
        ending.wait(parts.seconds_left())
    if ending.is_interrupted:
        return
    if not reception.has_begun:
        ending.check()
        raise lonely(parts.config.run.max_seconds)
    if parts.stage.loop is None:
        _build(parts)
    assert reception.spec is not None
    spec_file.write(parts.directory.path, reception.spec)


def lonely(max_seconds: float) -> errors.TrainingFailure:
    """Returns the failure of a run without a training worker."""
    return errors.TrainingFailure(
        f"no worker joined within --max_seconds={max_seconds:g}, so nothing was learned: "
        "start workers earlier, or give it more time"
    )


def _build(parts: learner_parts.LearnerParts) -> None:
    """Builds networks and replay for the environments, begins to compile, and resumes."""
    reception, server, say, stage = parts.reception, parts.server, parts.screen.message, parts.stage
    assert reception.spec is not None
    workers = dispatchers.Workers(reception.inbox, reception.roster, server.reply, server.restart)
    hooks = device_loop.Hooks(
        functools.partial(evaluated, parts), parts.save, functools.partial(parts.view.write_row, {}), say
    )
    config, spec = parts.config, reception.spec
    stage.build(lambda: build.device_loop_for(config, spec, workers, hooks, parts.saves, parts.gathered, say))
    assert stage.loop is not None
    parts.view.progress.follow(stage.loop.look)


def evaluated(parts: learner_parts.LearnerParts, ended: evaluators.Ended) -> None:
    """Shows and writes the result of an evaluation; saves the best parameters."""
    result, update = ended.result, ended.running.update
    values = {f"evaluation_{name}": value for name, value in result.flat().items()}
    normalized = ended.human_normalized
    if normalized is not None:
        values["evaluation_human_normalized"] = normalized
    if ended.best_score is not None:
        values["evaluation_best_score"] = ended.best_score
    began = {"update": update, "env_steps": ended.running.env_steps}  # training may have gone on meanwhile
    parts.view.write_row({**began, "kind": "evaluation", **values}, gathered=False)
    cut = f", {result.cut_off} of them cut off as too long" if result.cut_off else ""
    best = "; the best so far" if ended.is_record else ""
    if result.unfinished:
        best = (
            f"; cut, as {result.unfinished} more had not ended in time: give it more, or "
            "--evaluation.max_episode_steps=N to end them earlier"
        )
    score = "" if normalized is None else f", human-normalized {normalized:.3f}"
    parts.screen.message(
        f"evaluation at update {update}: return {result.mean_return:.4g} +- {result.std_return:.3g} over "
        f"{result.episodes} episodes{cut}{score}{best}"
    )
    parts.films.evaluated(parts.saves.durable_update)
    if ended.is_best:
        parts.saves.save_best(ended)
