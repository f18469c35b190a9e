"""Starts a learner: finds its environments' spec, opens its addresses, and waits for its first worker."""

from __future__ import annotations

import contextlib
import time

from seedzero.core import errors, printable
from seedzero.learner import learner_parts
from seedzero.storage.checkpoints import spec_file
from seedzero.transport import descriptors, invitation, security


def show_spec(parts: learner_parts.LearnerParts) -> None:
    """Gives the reception the environments' spec if it is known; then a resumed run is built at once."""
    resumed, path = parts.directory.resumed, parts.directory.path
    saved = spec_file.read(path) if resumed else None
    spec = saved or parts.expected
    if spec is None:
        return
    parts.reception.show(spec)
    if resumed:
        if saved is None:
            spec_file.write(path, spec)
        parts.stage.build(spec)  # its state is restored before anyone joins


def listen(parts: learner_parts.LearnerParts) -> str:
    """Opens the server and returns its address."""
    try:
        return parts.server.start()
    except errors.Error:
        if parts.stage.loop is not None:
            parts.stage.loop.close()
        raise


def announce(parts: learner_parts.LearnerParts, address: str) -> None:
    """Shows the address to the user, to `seedzero status` and on standard output."""
    config, screen = parts.config, parts.view.screen
    few_files = descriptors.allow(config.transport.max_workers)
    for text in [*security.warnings(config.transport, config.tls), *filter(None, [few_files])]:
        screen.message(text)
    parts.directory.write_learner(address, time.time(), local=parts.local)
    with contextlib.suppress(OSError):  # standard output may lead to a full disk, or to a reader that has gone
        print(f"seedzero learner listening on {printable.escape(address)}", flush=True)
    if parts.reception.spec is None and config.worker.num == 0:
        screen.message(invitation.waiting(config), invitation.to_worker(config, address))


def prepare(parts: learner_parts.LearnerParts) -> None:
    """Builds a new run and waits for its first worker; in the other order if only workers know the spec.

    Raises TrainingFailure if none comes in time.
    """
    reception, stage, ending = parts.reception, parts.stage, parts.ending
    if reception.spec is not None:
        stage.build(reception.spec)
    is_late = parts.seconds_left() <= 0
    while not (reception.has_begun or ending.is_interrupted) and parts.seconds_left() > 0:
        ending.check()
        ending.wait(parts.seconds_left())
    if ending.is_interrupted:
        return
    if not reception.has_begun:
        ending.check()
        raise _slow(parts.config.run.max_seconds) if is_late else lonely(parts.config.run.max_seconds)
    assert reception.spec is not None
    if stage.loop is None:
        stage.build(reception.spec)
    spec_file.write(parts.directory.path, reception.spec)


def lonely(max_seconds: float) -> errors.TrainingFailure:
    """Returns the failure of a run without a training worker."""
    return errors.TrainingFailure(
        f"no worker joined within --max_seconds={max_seconds:g}, so nothing was learned: "
        "start workers earlier, or give it more time"
    )


def _slow(max_seconds: float) -> errors.TrainingFailure:
    """Returns the failure of a run whose budget is spent before its networks are built."""
    return errors.TrainingFailure(
        f"--max_seconds={max_seconds:g} passed before the networks were built, so nothing was learned: give it more, "
        "or give --max_updates instead, which does not count that time"
    )
