"""The end of a learner: a stop on request, the last checkpoint, and the way out of a stuck call."""

from __future__ import annotations

import os
import time

from seedzero.core import exit_codes
from seedzero.host import deadline
from seedzero.host import parts as learner_parts
from seedzero.host import stage as stages

_INTERRUPTED = "interrupted"
WORKER_EXIT_SECONDS = 2.0
"""Time for a worker to end by itself after worker.close_seconds, with its own exit code and its children."""


def interrupt(parts: learner_parts.LearnerParts) -> None:
    """Thread of the signals: asks for a stop."""
    parts.workers.finish()  # all processes of a machine that is taken away may have been told to stop
    parts.ending.interrupt()
    loop = parts.stage.loop  # another thread may end it
    if loop is not None:
        loop.stop(_INTERRUPTED)
        # In deterministic mode the last state is not saved, and a save on its way counts; so does the last one.
        if parts.stage.now is stages.Stage.BUILT and not parts.config.run.deterministic:
            parts.saves.abandon()  # so that the loop ends at once


def leave_at_once(parts: learner_parts.LearnerParts, reason: str) -> None:
    """Any thread, before the process ends at once: cleans up everything with a longer life, and reports the loss."""
    parts.workers.kill()
    parts.screen.abandon(f"{reason}; {_lost(parts)}")


def _lost(parts: learner_parts.LearnerParts) -> str:
    """Returns the loss of a run without another save."""
    loop, durable = parts.stage.loop, parts.saves.durable_update
    if loop is None:
        return "the run is as it was" if parts.directory.resumed else "nothing was learned"
    num_updates = loop.look().num_updates
    saved = "there is no checkpoint" if durable is None else f"the newest checkpoint is of update {durable}"
    return f"{saved}; updates lost: {num_updates - (durable or 0)}"


def leave_late(parts: learner_parts.LearnerParts) -> None:
    """Thread of `deadline`: ends the process, since a call does not return."""
    passed = f"--max_seconds={parts.config.run.max_seconds:g} passed {deadline.GRACE_SECONDS:g} s ago"
    if parts.stage.now is stages.Stage.BUILDING:
        what = "the networks are still being built and compiled, so give it more time"
    else:
        what = "a call on the device does not return, so neither an evaluation nor a checkpoint ends this run"
    leave_at_once(parts, f"{passed}, and {what}")
    os._exit(exit_codes.FAILED)


def finish(parts: learner_parts.LearnerParts, reason: str) -> str:
    """Saves the last state; returns why the run is finished, "" if it was interrupted."""
    loop = parts.stage.save()
    parts.view.progress.end("saving")
    if parts.mirrored is not None:
        parts.mirrored.uploads.report_progress()
    is_interrupted, deterministic = reason == _INTERRUPTED, parts.config.run.deterministic
    if not deterministic:
        parts.view.write_row({})
    # Deterministic runs are saved at fixed updates and at the end of a budget, or a resume would differ.
    if not (deterministic and (is_interrupted or parts.ending.failure is not None)):
        if is_interrupted:
            parts.saves.save_state(loop.state())
        parts.saves.checkpointer.wait()
        parts.save()
    elif parts.saves.durable_update is not None:
        parts.screen.message(f"deterministic: a resume goes on from update {parts.saves.durable_update}")
    else:
        parts.screen.message(
            f"deterministic: the first checkpoint comes at update {parts.config.checkpoint.every_updates}, so "
            "nothing is saved, and the same command begins anew"
        )
    parts.saves.checkpointer.wait()
    parts.view.observe(time.monotonic(), last=True)
    parts.ending.check()
    parts.saves.check()
    return "" if is_interrupted else reason


def stop(parts: learner_parts.LearnerParts, finished: str) -> None:
    """Ends workers and server; finished: the reason of the run's end, "" for an unfinished run."""
    parts.view.progress.end("leaving")
    parts.workers.finish()
    parts.films.stop()
    if parts.stage.loop is not None:
        parts.stage.loop.close()
    parts.server.stop(finished=bool(finished), reason=finished or "the learner stops")
    parts.workers.stop(parts.config.worker.close_seconds + WORKER_EXIT_SECONDS)
    _end_saves(parts)
    parts.view.progress.end("")
    parts.view.write_status(alive=False, finished=finished or None)
    if parts.mirrored is not None:
        parts.mirrored.finish()  # here, where a second Ctrl-C still leaves at once
    parts.stage.end()


def _end_saves(parts: learner_parts.LearnerParts) -> None:
    """Waits for the checkpoint in progress; after failed training nothing else does."""
    if parts.saves.checkpointer.busy:
        parts.screen.message("waiting for the checkpoint in progress")
    try:
        parts.saves.checkpointer.close()
    except Exception as error:  # whatever ended it: the run's own failure must not be hidden
        parts.screen.message(f"the checkpoint in progress was lost: {type(error).__name__}: {error}")
