"""The start of a learner: its environments' spec, its addresses, and the wait for its first worker."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from seedzero.checkpoints import run_dir as run_dirs
from seedzero.checkpoints import spec_file
from seedzero.core import errors, printable, types
from seedzero.host import ending as endings
from seedzero.host import reception as receptions
from seedzero.host import stage as stages
from seedzero.monitoring import background
from seedzero.transport import descriptors, invitation, security
from seedzero.transport import server as servers


def show_spec(
    directory: run_dirs.RunDir, expected: types.EnvSpec | None, reception: receptions.Reception, stage: stages.RunStage
) -> None:
    """Tells the reception the environments' spec, if that is known; then a resumed run is built at once."""
    resumed, path = directory.resumed, directory.path
    saved = spec_file.read(path) if resumed else None
    spec = spec_file.completed(saved, expected) if saved else expected
    if spec is None:
        return
    reception.show(spec)
    if resumed:
        if saved != spec:
            spec_file.write(path, spec)
        stage.build(spec)  # its state is back before anyone joins


def listen(server: servers.Server, stage: stages.RunStage) -> str:
    """Opens the server; returns its address."""
    try:
        return server.start()
    except errors.Error:
        if stage.loop is not None:
            stage.loop.close()
        raise


def announce(
    directory: run_dirs.RunDir, reception: receptions.Reception, screen: background.Screen, local: str, address: str
) -> None:
    """Shows the address, to the user, to `seedzero status` and on standard output; local: of local workers."""
    config = directory.config
    few_files = descriptors.allow(config.transport.max_workers)
    for text in [*security.warnings(config.transport, config.tls), *filter(None, [few_files])]:
        screen.message(text)
    directory.write_learner(address, time.time(), local=local)
    with contextlib.suppress(OSError):  # a full disk behind standard output, or a reader that has gone
        print(f"seedzero learner listening on {printable.escape(address)}", flush=True)
    if reception.spec is None and config.worker.num == 0:
        screen.message(invitation.waiting(config), invitation.to_worker(config, address))


def prepare(
    directory: run_dirs.RunDir,
    reception: receptions.Reception,
    stage: stages.RunStage,
    ending: endings.Ending,
    seconds_left: Callable[[], float],
) -> None:
    """Builds a new run, then waits for its first worker; in the other order for a spec known to workers alone.

    Raises TrainingFailure if none came in time.
    """
    if reception.spec is not None:
        stage.build(reception.spec)
    while not (reception.has_begun or ending.is_interrupted) and seconds_left() > 0:
        ending.check()
        ending.wait(seconds_left())
    if ending.is_interrupted:
        return
    if not reception.has_begun:
        ending.check()
        raise lonely(directory.config.run.max_seconds)
    assert reception.spec is not None
    if stage.loop is None:
        stage.build(reception.spec)
    spec_file.write(directory.path, reception.spec)


def lonely(max_seconds: float) -> errors.TrainingFailure:
    """Returns the failure of a run without a training worker."""
    return errors.TrainingFailure(
        f"no worker joined within --max_seconds={max_seconds:g}, so nothing was learned: "
        "start workers earlier, or give it more time"
    )
