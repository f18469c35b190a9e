"""The end of a learner: a stop on request, the last checkpoint, and the way out of a stuck call."""

from __future__ import annotations

import dataclasses
import os
import time

from seedzero.bucket import mirror as mirrors
from seedzero.core import errors, exit_codes
from seedzero.host import deadline, together
from seedzero.host import ending as endings
from seedzero.host import saves as saving
from seedzero.host import stage as stages
from seedzero.loop import agreement, device_loop
from seedzero.monitoring import view as views
from seedzero.processes import supervisor

_INTERRUPTED = "interrupted"
_COMPILING = "the networks are still being built and compiled, so give it more"


@dataclasses.dataclass(frozen=True)
class Exit:
    """The ways out of training."""

    workers: supervisor.Supervisor
    view: views.View
    ending: endings.Ending
    stage: stages.RunStage
    saves: saving.Saves
    mirrored: mirrors.Mirror | None
    hosts: together.Together | None = None  # None: there is one

    def interrupt(self) -> None:
        """Thread of the signals: asks for a stop."""
        self.workers.finish()  # all processes of a machine that is taken away may have been told to stop
        self.ending.interrupt()
        loop = self.stage.loop  # another thread may end it
        if loop is None and self.hosts is not None:
            self.leave_at_once("left before all hosts had begun")
            os._exit(exit_codes.INTERRUPTED)
        if loop is not None:
            self.stop(loop, _INTERRUPTED)
            # In deterministic mode the last state is not saved, and a save on its way counts; so does the last one.
            if self.stage.now is stages.Stage.BUILT and not self.saves.config.run.deterministic:
                self.saves.abandon()  # so that the loop ends at once

    def stop(self, loop: device_loop.DeviceLoop, reason: str) -> None:
        """Any thread: ends a device loop, that of every host, without another evaluation."""
        if self.hosts is not None:
            self.hosts.link.agreed.ask(agreement.Kind.STOP, reason)
        else:
            loop.stop(reason)

    def still_compiles(self) -> bool:
        """Any thread: returns whether this process has learned nothing yet, as its programs are being compiled."""
        loop = self.stage.loop
        if loop is None:
            return self.stage.now is stages.Stage.BUILDING
        seen = loop.look()
        return not seen.is_compiled and seen.num_updates == (self.saves.durable_update or 0)

    def check_compiled(self, spent: str) -> None:
        """Raises TrainingFailure if a budget is spent before the programs are there: there is nothing to save."""
        if self.still_compiles():
            raise errors.TrainingFailure(f"{spent}, and {_COMPILING}; {self._lost()}")

    def leave_at_once(self, reason: str) -> None:
        """Any thread, before the process ends at once: cleans up longer lives than its own; reports the loss."""
        self.workers.kill()
        self.view.screen.abandon(f"{reason}; {self._lost()}")

    def leave_late(self) -> None:
        """Thread of `deadline`: ends the process, since a call does not return."""
        passed = f"--max_seconds={self.saves.config.run.max_seconds:g} passed {deadline.GRACE_SECONDS:g} s ago"
        if self.still_compiles():
            what = _COMPILING
        else:
            what = "a call on the device does not return, so neither an evaluation nor a checkpoint ends this run"
        self.leave_at_once(f"{passed}, and {what}")
        os._exit(exit_codes.FAILED)

    def leave_others(self, reason: str) -> None:
        """Thread of the link: ends the process, since the run's other hosts are not all there."""
        self.leave_at_once(f"{reason}; all hosts end, and go on from the last checkpoint once started again")
        os._exit(exit_codes.TRY_LATER)

    def finish(self, reason: str) -> str:
        """Main thread: saves the last state; returns why the run is finished, "" if it was interrupted."""
        loop, saves = self.stage.loop, self.saves
        assert loop is not None
        self.stage.enter(stages.Stage.SAVING)
        self.view.progress.end("saving")
        if self.mirrored is not None:
            self.mirrored.uploads.report_progress()
        is_interrupted, deterministic = reason == _INTERRUPTED, saves.config.run.deterministic
        has_failed = self.ending.failure is not None
        if not deterministic:
            self.view.write_row({})
        # Deterministic runs are saved at fixed updates and at the end of a budget, or a resume would differ.
        if has_failed and self.hosts is not None:
            saves.report("the other hosts save nothing now, so neither does this one")
        elif not (deterministic and (is_interrupted or has_failed)):
            if self.hosts is not None:
                self.hosts.link.gather("the end")  # host 0 evaluates last: no device may wait for that
                loop.alike.now()
            if is_interrupted:
                saves.save_state(loop.state())
            saves.checkpointer.wait()
            saves.save(loop.state())
        elif saves.durable_update is not None:
            saves.report(f"deterministic: a resume goes on from update {saves.durable_update}")
        else:
            saves.report(
                f"deterministic: the first checkpoint comes at update {saves.config.checkpoint.every_updates}, so "
                "nothing is saved, and the same command begins anew"
            )
        saves.checkpointer.wait()
        self.view.observe(time.monotonic(), last=True)
        self.ending.check()
        saves.check()
        return "" if is_interrupted else reason

    def _lost(self) -> str:
        """Returns the loss of a run without another save."""
        loop, durable = self.stage.loop, self.saves.durable_update
        if loop is None or self.still_compiles():
            return "the run is as it was" if self.saves.directory.resumed else "nothing was learned"
        num_updates = loop.look().num_updates
        saved = "there is no checkpoint" if durable is None else f"the newest checkpoint is of update {durable}"
        return f"{saved}; updates lost: {num_updates - (durable or 0)}"
