"""`seedzero worker`: one thin process of environments. Never imports JAX."""

from __future__ import annotations

from seedzero.cli import parse


def run(arguments: parse.Arguments) -> int:
    """Steps environments for a learner until it says that training is over; returns the exit code."""
    num_envs = arguments.integer("num_envs", minimum=1)
    from seedzero.worker import process

    return process.run(arguments.flags["server"], num_envs=num_envs)


COMMAND = parse.Command(
    summary="Steps environments for a learner; needs its address and nothing else.",
    usage="--server=HOST:PORT|unix:PATH [--num_envs=N]",
    flags=(
        parse.Flag("server", "address of the learner, as it prints it", "HOST:PORT|unix:PATH", required=True),
        parse.Flag("num_envs", "most environments here (default: as many as the learner asks for)", "N"),
    ),
    details="""
Start the learner with `seedzero train --listen=HOST:PORT ...`; workers may come and go at any time. A worker that
loses the learner tries again until it is back, and ends by itself when training is over.""",
    run=run,
)
