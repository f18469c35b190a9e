"""`seedzero worker`: one thin process of environments. Never imports JAX."""

from __future__ import annotations

from seedzero.cli import access, parse, stopping


def run(arguments: parse.Arguments) -> int:
    """Steps environments for a learner until it says that training is over; returns the exit code."""
    num_envs = arguments.integer("num_envs", minimum=1)
    threads = arguments.integer("threads", minimum=1) or 0
    with stopping.leaving_at_once("the worker"):
        from seedzero.worker import process  # gRPC and gymnasium

    return process.run(arguments.flags["server"], num_envs=num_envs, threads=threads, access=access.of(arguments))


COMMAND = parse.Command(
    summary="Steps environments for a learner; needs its address, and its token where it wants one.",
    usage="--server=HOST:PORT|unix:PATH [--token_file=FILE] [--tls.ca_file=FILE] [--num_envs=N] [--threads=N]",
    flags=(
        parse.Flag("server", "address of the learner, as it prints it", "HOST:PORT|unix:PATH", required=True),
        *access.FLAGS,
        parse.Flag("num_envs", "most environments here (default: as many as the learner asks for)", "N"),
        parse.Flag(
            "threads",
            "Atari: emulator threads (default: one for each core; a container knows only the whole machine's)",
            "N",
        ),
    ),
    details="""
Start the learner with `seedzero train --listen=HOST:PORT ...`; workers may come and go at any time. A worker that
loses the learner tries again until it is back, and ends by itself when training is over. It looks a name up anew each
time: a learner may move, as long as its name moves with it. What trying again cannot heal, a wrong token or a wrong
certificate above all, ends it with exit code 1.

SIGTERM: it tells the learner that it leaves and ends with exit code 0.""",
    run=run,
)
