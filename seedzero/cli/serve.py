"""`seedzero serve`: a policy server, which answers other programs with the actions of a saved agent."""

from __future__ import annotations

import dataclasses

from seedzero.api import runs
from seedzero.bucket import bucket
from seedzero.cli import evaluate, output, parse
from seedzero.config import combinations, configs
from seedzero.core import env_ids, errors, exit_codes

_HOST = "127.0.0.1"
_MAX_ROWS, _MAX_BATCH = 4096, 64
_ACCESS = ("token_file", "insecure", "tls.cert_file", "tls.key_file")


def run(arguments: parse.Arguments) -> int:
    """Serves a run's agent until a signal; returns the exit code."""
    flags, follows = arguments.flags, arguments.switch("follow")
    names = tuple(filter(None, flags.get("player", "").split(",")))
    if follows and "step" in flags:
        raise errors.UsageError(f"--step={flags['step']}: --follow serves the newest checkpoint; omit one of them")
    if follows and bucket.parse(flags["run_dir"]) is not None:
        raise errors.UsageError(
            f"--run_dir={flags['run_dir']}: --follow reads a run directory of this machine; omit it, or give one"
        )
    if len(names) > 1 and bucket.parse(flags["run_dir"]) is not None:
        raise errors.UsageError(f"--player={flags['player']}: of a run in a bucket one player is served; name one")
    access = _access(arguments)
    for name in names:
        if name != "all":
            runs.checked_player(name, None)
    step, policy = evaluate.read_step(arguments), flags.get("policy")
    seed = arguments.integer("seed", minimum=0) or 0
    player = names[0] if len(names) == 1 and names != ("all",) else None
    choice = runs.choose(flags["run_dir"], step, player, policy, trusted=arguments.switch("trust_run_dir"), seed=seed)
    from seedzero.serving import followers, policy_serving
    from seedzero.transport import security

    secured = security.for_server(access.transport.token_file, access.tls)
    for warning in security.warnings(access.transport, access.tls):
        output.say(f"warning: {warning}")
    options = policy_serving.ServeOptions(
        num_slots=arguments.integer("max_rows", minimum=1) or _MAX_ROWS,
        max_batch=arguments.integer("max_batch", minimum=1) or _MAX_BATCH,
        follows=follows,
        metrics_port=arguments.integer("metrics_port", minimum=0),
    )
    with runs.opened(choice) as here, output.others_aside():
        agents = followers.load(
            dataclasses.replace(here, player=None), names, arguments.integer("simulations", minimum=1)
        )
        counts = policy_serving.serve(agents, access.transport, secured, options, output.say)
    output.print_json({name: getattr(counts, name) for name in ("requests", "rows", "calls", "changes")})
    return exit_codes.DONE


def _access(arguments: parse.Arguments) -> configs.Config:
    """Returns a configuration with the address, token and certificate of the flags. Raises ConfigError."""
    port = arguments.integer("port", minimum=0) or 0
    given = {name: arguments.flags[name] for name in _ACCESS if name in arguments.flags}
    listen = f"{arguments.flags.get('host', _HOST)}:{port}"
    remote = {"env.id": env_ids.REMOTE, "worker.num": "0"}
    access = configs.override(configs.Config(), {**remote, **given, "listen": listen})
    combinations.check(access)
    return access


COMMAND = parse.Command(
    summary="Answers other programs with the actions of a saved agent, over gRPC.",
    usage="--run_dir=DIR [--port=N] [--player=NAME,NAME|all] [--follow] [--token_file=FILE] [--tls.cert_file=FILE]",
    flags={
        **parse.RUN_DIR,
        "port=N": "to listen on; default 0: any free one, which is printed",
        "host=HOST": f"to listen on, default {_HOST}; 0.0.0.0: other machines reach it, and need --token_file",
        "player=NAME,NAME|all": "players of the run's league, the first one for clients that name none; all: main and "
        "all frozen players; default: main",
        "follow": "load each newer checkpoint of a run that is being trained, and with --player=all each new frozen "
        "player",
        "step=N|best|last": "which checkpoint; default: last",
        "policy=greedy|sample": evaluate.CHECKPOINT["policy=greedy|sample"],
        "simulations=N": "of the agent's search; default: as in training",
        "seed=N": "of drawn actions (default 0)",
        "max_rows=N": f"environments of all clients together, each with a memory (default {_MAX_ROWS})",
        "max_batch=N": f"most observations of a call (default {_MAX_BATCH})",
        "token_file=FILE": "file with the token that clients must present",
        "insecure": "listen beyond this machine without a token: anybody may ask",
        "tls.cert_file=FILE": "PEM file with the server's certificate chain: it then speaks TLS alone",
        "tls.key_file=FILE": "PEM file with the key of tls.cert_file, without a passphrase",
        "metrics_port=N": "serve counters for Prometheus on this port; 0: any free one",
        **parse.TRUST,
    },
    required=("run_dir",),
    details="""
In Python, seedzero.connect("HOST:PORT") returns the policy; it needs numpy and gRPC, and no JAX. Other languages use
the service Policy of protos/seedzero/transport/inference.proto. `seedzero health` asks whether the server serves. The
last line on standard output, behind Ctrl-C: requests, rows, calls, and changes of parameters.""",
    run=run,
)
