"""`seedzero status`: a learner's counters and state."""

from __future__ import annotations

from seedzero.cli import access, parse
from seedzero.core import errors

_RETRY_SECONDS = 5.0


def run(arguments: parse.Arguments) -> int:
    """Prints the status of a learner; returns the exit code."""
    run_dir, server = arguments.flags.get("run_dir"), arguments.flags.get("server")
    if (run_dir is None) == (server is None):
        raise errors.UsageError("seedzero status takes one of --run_dir=DIR and --server=HOST:PORT|unix:PATH")
    from seedzero.bucket import bucket
    from seedzero.cli import output
    from seedzero.monitoring import status

    url = bucket.parse(run_dir or "")
    if url is not None:
        found = status.from_bucket(url, bucket.open_store(url, _RETRY_SECONDS))
    elif run_dir is not None:
        found = status.from_run_dir(run_dir)
    else:
        found = status.from_server(str(server), access.of(arguments))
    output.print_json(found)
    return 0


COMMAND = parse.Command(
    summary="Prints counters and state of a learner as JSON.",
    usage="--run_dir=DIR|gs://BUCKET/PATH | --server=HOST:PORT|unix:PATH [--token_file=FILE] [--tls.ca_file=FILE]",
    flags=(
        parse.Flag(
            "run_dir",
            "of the training run, running or ended; in a bucket the last status that was uploaded",
            "DIR|gs://BUCKET/PATH",
        ),
        parse.Flag("server", "address of a running learner", "HOST:PORT|unix:PATH"),
        *access.FLAGS,
    ),
    details="""
The last line on standard output: env_steps, updates, weights_version, durable_update, workers, environments,
steps_acknowledged = steps_stored + steps_pending + steps_discarded (by reason), samples_per_insert,
env_steps_per_second, updates_per_second, stalled (null, or why), last_evaluation, finished (null, or the
budget or return that was reached), alive. From a bucket also host, and renewed_seconds_ago: the age of the
learner's lease.""",
    run=run,
)
