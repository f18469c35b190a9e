"""`seedzero worker`: runs a thin process of environments, which never imports JAX."""

from __future__ import annotations

from seedzero.cli import parse, stopping
from seedzero.config import worker_options


def run(arguments: parse.Arguments) -> int:
    """Steps environments for a learner until training is over; returns the exit code."""
    options = worker_options.parse(arguments.flags)
    with stopping.leaving_at_once("the worker"):
        from seedzero.worker import worker  # gRPC and gymnasium

    return worker.run_process(options)


COMMAND = parse.Command(
    summary="Steps environments for a learner; needs its address, and its token if it has one.",
    usage="--server=HOST:PORT|unix:PATH[,...] [--token_file=FILE] [--tls.ca_file=FILE] [--num_envs=N] [--threads=N]",
    flags=parse.of_fields(worker_options.FLAGS),
    required=("server",),
    details="""
Start the learner with `seedzero train --listen=HOST:PORT ...`; workers may come and go at any time. A worker that
loses the learner tries again until it is back, and ends by itself when training is over. It resolves the name each
time, so a learner may move if its name moves with it. Permanent errors, above all a wrong token or a wrong
certificate, end it with exit code 1.

If a run has several learner hosts, give all workers the same list, --server=A:7777,B:7777; token and TLS are the same
for all hosts. A hash of --worker_id and address spreads the workers evenly. A full host sends a worker to another host
of the list. If a host does not answer for its --transport.lease_seconds (15), its workers move to the others, reset
their environments and begin new sessions.

At SIGTERM it leaves the learner and ends with exit code 0.""",
    run=run,
)
