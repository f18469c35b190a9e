"""Ends a learner: stops it on request, saves the last checkpoint, and leaves a stuck call."""

from __future__ import annotations

import os
import time

from seedzero.core import errors
from seedzero.learner import endings, learner_parts, saving, stages
from seedzero.learner.loop import agreement, device_loop

_INTERRUPTED = "interrupted"
_COMPILING = "the networks are still being built and compiled, so give it more"


def interrupt(parts: learner_parts.LearnerParts) -> None:
    """Thread of the signals: asks for a stop."""
    parts.workers.finish()  # all processes of a machine that is taken away may have been asked to stop
    parts.ending.interrupt()
    parts.saves.checkpointer.hurry()
    loop = parts.stage.loop  # another thread may end it
    if loop is None and parts.hosts is not None:
        leave_at_once(parts, "left before all hosts had begun")
        os._exit(errors.INTERRUPTED)
    if loop is not None:
        # In deterministic mode, the last state is not saved; a save in progress counts. So does the last one, which
        # begins once the loop has stopped.
        if parts.stage.now is stages.Stage.BUILT and not parts.saves.config.run.deterministic:
            parts.saves.abandon()  # so that the loop ends at once
        stop(parts, loop, _INTERRUPTED)


def stop(parts: learner_parts.LearnerParts, loop: device_loop.DeviceLoop, reason: str) -> None:
    """Any thread: ends a device loop, that of every host, without another evaluation."""
    if parts.hosts is not None:
        parts.hosts.link.agreed.ask(agreement.Kind.STOP, reason)
    else:
        loop.stop(reason)


def still_compiles(parts: learner_parts.LearnerParts) -> bool:
    """Any thread: returns whether this process has learned nothing yet, because its programs are being compiled."""
    loop = parts.stage.loop
    if loop is None:
        return parts.stage.now is stages.Stage.BUILDING
    seen = loop.look()
    return not seen.is_compiled and seen.num_updates == (parts.saves.durable_update or 0)


def check_compiled(parts: learner_parts.LearnerParts, spent: str) -> None:
    """Raises TrainingFailure if a budget is spent before the programs are compiled, when there is nothing to save."""
    if still_compiles(parts):
        raise errors.TrainingFailure(f"{spent}, and {_COMPILING}; {_lost(parts)}")


def leave_at_once(parts: learner_parts.LearnerParts, reason: str) -> None:
    """Any thread, before the process ends at once: cleans up what would outlive it, and reports what is lost."""
    parts.workers.kill()
    parts.view.screen.abandon(f"{reason}; {_lost(parts)}")


def seconds_left(parts: learner_parts.LearnerParts) -> float:
    """Any thread: returns what is left of the budget, which a stop ends where the networks are being built.

    Later, the main thread stops on its own, and leaves a compiler behind.
    """
    left = parts.seconds_left()
    is_building = parts.stage.now is stages.Stage.BUILDING
    return min(left, parts.ending.interrupted_at - time.monotonic()) if is_building else left


def leave_late(parts: learner_parts.LearnerParts) -> None:
    """Thread of `deadline`: ends the process because a call does not return."""
    if parts.ending.is_interrupted and parts.seconds_left() > 0:
        leave_at_once(parts, "left while the networks were being built")
        os._exit(errors.INTERRUPTED)
    passed = f"--max_seconds={parts.saves.config.run.max_seconds:g} passed {endings.GRACE_SECONDS:g} s ago"
    if still_compiles(parts):
        what = _COMPILING
    else:
        what = "a call on the device does not return, so neither an evaluation nor a checkpoint ends this run"
    leave_at_once(parts, f"{passed}, and {what}")
    os._exit(errors.FAILED)


def leave_others(parts: learner_parts.LearnerParts, reason: str) -> None:
    """Thread of the link: ends the process because some of the run's other hosts are gone."""
    leave_at_once(parts, f"{reason}; all hosts end, and resume from the last checkpoint once started again")
    os._exit(errors.TRY_LATER)


def finish(parts: learner_parts.LearnerParts, reason: str) -> str:
    """Main thread: saves the last state, and returns why the run is finished, or "" if it was interrupted."""
    loop, saves = parts.stage.loop, parts.saves
    assert loop is not None
    parts.stage.enter(stages.Stage.SAVING)
    parts.view.progress.end("saving")
    if parts.mirrored is not None:
        parts.mirrored.uploads.report_progress()
    is_interrupted, deterministic = reason == _INTERRUPTED, saves.config.run.deterministic
    has_failed = parts.ending.failure is not None
    if not deterministic:
        parts.view.write_row({})
    # Deterministic runs are saved at fixed updates and when a budget ends; otherwise a resume would differ.
    if has_failed and parts.hosts is not None:
        saves.report("the other hosts save nothing now, so neither does this one")
    elif not (deterministic and (is_interrupted or has_failed)):
        if parts.hosts is not None:
            parts.hosts.link.gather("the end")  # host 0 evaluates last, so no device may wait for it
            loop.alike.now()
        if is_interrupted:
            saves.save_state(loop.state())
        saves.checkpointer.wait()
        saves.save(loop.state())
    elif saves.durable_update is not None:
        saves.report(f"deterministic: a resume continues from update {saves.durable_update}")
    else:
        saves.report(
            f"deterministic: the first checkpoint comes at update {saves.config.checkpoint.every_updates}, so "
            "nothing is saved, and the same command begins again"
        )
    saves.checkpointer.wait()
    parts.view.observe(time.monotonic(), last=True)
    parts.ending.check()
    saves.check()
    return "" if is_interrupted else reason


def _lost(parts: learner_parts.LearnerParts) -> str:
    """Describes what is lost without another save."""
    loop, durable = parts.stage.loop, parts.saves.durable_update
    if loop is None or still_compiles(parts):
        return "the run has not changed" if parts.saves.directory.resumed else "nothing was learned"
    num_updates = loop.look().num_updates
    return f"{saving.newest_text(durable)}; updates lost: {num_updates - (durable or 0)}"
