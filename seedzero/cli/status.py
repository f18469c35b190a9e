"""`seedzero status`: what a learner is doing."""

from __future__ import annotations

from seedzero.cli import parse
from seedzero.core import errors


def run(arguments: parse.Arguments) -> int:
    """Prints the status of a learner; returns the exit code."""
    run_dir, server = arguments.flags.get("run_dir"), arguments.flags.get("server")
    if (run_dir is None) == (server is None):
        raise errors.UsageError("seedzero status takes one of --run_dir=DIR and --server=HOST:PORT|unix:PATH")
    from seedzero.cli import output
    from seedzero.runtime import status

    output.print_json(status.from_run_dir(run_dir) if run_dir is not None else status.from_server(str(server)))
    return 0


COMMAND = parse.Command(
    summary="Prints counters and state of a learner as JSON.",
    usage="--run_dir=DIR | --server=HOST:PORT|unix:PATH",
    flags=(
        parse.Flag("run_dir", "of the training run, running or ended", "DIR"),
        parse.Flag("server", "address of a running learner", "HOST:PORT|unix:PATH"),
    ),
    details="""
The last line on standard output: env_steps, updates, weights_version, durable_update, workers, environments,
steps_acknowledged = steps_stored + steps_pending + steps_discarded (by reason), samples_per_insert,
env_steps_per_second, updates_per_second, stalled (null, or why), last_evaluation, alive.""",
    run=run,
)
