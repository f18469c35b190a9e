"""`seedzero health`: whether a learner serves, for the program that restarts it. Never imports JAX."""

from __future__ import annotations

from seedzero.cli import access, parse


def run(arguments: parse.Arguments) -> int:
    """Asks a learner's health service; returns 0 where it serves, else 1."""
    from seedzero.transport import probe

    answer = probe.health(arguments.flags["server"], access.of(arguments))
    print(answer, flush=True)
    return 0 if answer == probe.SERVING else 1


COMMAND = parse.Command(
    summary="Asks whether a learner serves; for health checks.",
    usage="--server=HOST:PORT|unix:PATH [--tls.ca_file=FILE]",
    flags=(parse.Flag("server", "address of the learner", "HOST:PORT|unix:PATH", required=True), *access.TLS),
    details="""
Calls the standard service grpc.health.v1.Health, for which no token is needed, and prints its answer. Exit code 0:
SERVING; 1: anything else, no answer within 5 s among it; 2: flags that cannot be used. Where the learner runs on this
machine, --server=unix:RUN_DIR/learner.sock needs no certificate.""",
    run=run,
)
