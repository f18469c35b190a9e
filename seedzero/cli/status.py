"""`seedzero status` shows a learner's counters and state; `seedzero health` tests whether it serves, without JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seedzero.cli import output, parse
from seedzero.config import worker_options
from seedzero.core import errors

if TYPE_CHECKING:
    from seedzero.transport import security

_RETRY_SECONDS = 5.0
_ACCESS = ("token_file", "tls.ca_file", "tls.server_name")


def run(arguments: parse.Arguments) -> int:
    """Prints the status of a learner; returns the exit code."""
    run_dir, server = arguments.flags.get("run_dir"), arguments.flags.get("server")
    if bool(run_dir) == bool(server):
        raise errors.UsageError("seedzero status takes one of --run_dir=DIR and --server=HOST:PORT|unix:PATH")
    if run_dir and (unread := [name for name in _ACCESS if name in arguments.flags]):
        raise errors.UsageError(f"--{unread[0]} is for --server=HOST:PORT; give that instead of --run_dir")
    from seedzero.monitoring import status
    from seedzero.storage.bucket import bucket

    url = bucket.parse(run_dir or "")
    if url is not None:
        found = status.from_bucket(url, bucket.open_store(url, _RETRY_SECONDS))
    elif run_dir:
        found = status.from_run_dir(run_dir)
    else:
        found = status.from_server(str(server), access(arguments))
    output.print_json(found)
    return 0


def health(arguments: parse.Arguments) -> int:
    """Asks a learner's health service; returns 0 if the learner serves, else 1."""
    from seedzero.transport import probe

    answer = probe.health(arguments.flags["server"], access(arguments))
    print(answer, flush=True)
    return 0 if answer == probe.SERVING else 1


def access(arguments: parse.Arguments) -> security.Access:
    """Returns the access to another program's server that the flags describe."""
    from seedzero.transport import security  # gRPC, which a mistake in the command line need not wait for

    return security.Access(*(arguments.flags.get(name, "") for name in _ACCESS))


def _flags(*names: str) -> dict[str, str]:
    return parse.of_fields({name: worker_options.FLAGS[name] for name in names})


ACCESS = _flags(*_ACCESS)
"""The flags that `access` reads."""
COMMAND = parse.Command(
    summary="Prints counters and state of a learner as JSON.",
    usage="--run_dir=DIR|gs://BUCKET/PATH | --server=HOST:PORT|unix:PATH [--token_file=FILE] [--tls.ca_file=FILE]",
    flags={
        "run_dir=DIR|gs://BUCKET/PATH": "directory of the training run, running or ended; in a bucket, the "
        "last status that was uploaded is shown",
        "server=HOST:PORT|unix:PATH": "address of a running learner",
        **_flags(*_ACCESS),
    },
    details="""
The last line on standard output: env_steps, updates, weights_version, durable_update, workers, environments,
steps_acknowledged = steps_stored + steps_pending + steps_discarded (by reason), samples_per_insert,
env_steps_per_second, updates_per_second, stalled (null, or why), last_evaluation, finished (null, or the
budget or return that was reached), alive ("unknown" of another user's run), in a league matches (by type, void ones
too), and links: of each worker that has measured its link name, role, groups, environments, state, quiet_seconds
(since its last message), round_trip_seconds, step_seconds (of a group), bytes_per_second (both ways), waits_for (link,
learner or environments: the largest part), where the link is the limit environments_needed, which would hide it, and
compressed if its observations are.
From a bucket also host, and renewed_seconds_ago: the age of the learner's lease.""",
    run=run,
)
HEALTH = parse.Command(
    summary="Asks whether a learner serves; for health checks.",
    usage="--server=HOST:PORT|unix:PATH [--tls.ca_file=FILE]",
    flags={"server=HOST:PORT|unix:PATH": "address of the learner", **_flags(*_ACCESS[1:])},
    required=("server",),
    details="""
Calls the standard service grpc.health.v1.Health, for which no token is needed, and prints its answer. Exit code 0:
SERVING; 1: anything else, no answer within 5 s among it; 2: flags that cannot be used. Where the learner runs on this
machine, --server=unix:RUN_DIR/learner.sock needs no certificate.""",
    run=health,
)
