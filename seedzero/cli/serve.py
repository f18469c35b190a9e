"""`seedzero serve`: runs a policy server, which answers other programs with the actions of a saved agent."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Sequence

from seedzero.acting.actors import agent_choice
from seedzero.api import runs
from seedzero.cli import evaluate, output, parse, status
from seedzero.config import configs
from seedzero.core import errors
from seedzero.league import members
from seedzero.storage.bucket import bucket

_HOST = "127.0.0.1"
_MAX_ROWS, _MAX_BATCH = 4096, 64
_ACCESS = ("token_file", "insecure", "tls.cert_file", "tls.key_file")
_OF_LEARNER = ("serve.token_file", "tls.ca_file", "tls.server_name")
_ALL = "all"


def run(arguments: parse.Arguments) -> int:
    """Serves a run's agent until a signal; returns the exit code."""
    flags = arguments.flags
    names = tuple(filter(None, flags.get("player", "").split(",")))
    _check(arguments, names)
    access = _access(arguments)
    for name in names:
        if name != _ALL:
            runs.checked_player(name, None)
    seed, simulations = arguments.integer("seed", minimum=0) or 0, arguments.integer("simulations", minimum=1)
    player = names[0] if len(names) == 1 and names != (_ALL,) else None
    chosen = evaluate.read_step(arguments), player, flags.get("policy")
    trusted = arguments.switch("trust_run_dir")
    choice = runs.choose(flags.get("run_dir", ""), *chosen, trusted=trusted, seed=seed, simulations=simulations)
    if _takes_newest(names, follows=arguments.switch("follow")):
        choice = choice.or_last()
    from seedzero.interfaces.serving import followers, policy_serving
    from seedzero.transport import security

    secured = security.for_server(access.transport.token_file, access.tls)
    for warning in security.warnings(access.transport, access.tls):
        output.say(f"warning: {warning}")
    options = policy_serving.ServeOptions(
        num_slots=arguments.integer("max_rows", minimum=1) or _MAX_ROWS,
        max_batch=arguments.integer("max_batch", minimum=1) or _MAX_BATCH,
        follows=arguments.switch("follow") or "learner" in flags,
        metrics_port=arguments.port("metrics_port"),
        metrics_host=flags.get("metrics_host", _HOST),
        http_port=arguments.port("http_port"),
    )
    with contextlib.ExitStack() as undo:
        undo.enter_context(output.others_aside())
        agents: followers.FollowedAgents
        if "learner" in flags:
            there = security.Access(*(flags.get(name, "") for name in _OF_LEARNER))
            here = dataclasses.replace(choice, run_dir=undo.enter_context(tempfile.TemporaryDirectory()), player=None)
            agents = followers.load_from_learner(security.for_client(flags["learner"], there), here, names)
        else:
            path, refresh = undo.enter_context(_opened(choice, names, follows=options.follows))
            here = dataclasses.replace(choice, run_dir=path, player=None)
            agents = followers.load(here, names, refresh)
        counts = policy_serving.serve(agents, access.transport, secured, options, output.say)
    output.print_json({name: getattr(counts, name) for name in ("requests", "rows", "calls", "changes")})
    return errors.DONE


def _check(arguments: parse.Arguments, names: Sequence[str]) -> None:
    """Raises UsageError for flags that do not go together."""
    flags = arguments.flags
    if ("run_dir" in flags) is ("learner" in flags):
        raise errors.UsageError("seedzero serve takes one of --run_dir=DIR and --learner=HOST:PORT")
    for name in ("host", "metrics_host"):
        if flags.get(name, _HOST) == "":
            raise errors.UsageError(f"--{name} is empty; give {_HOST} (this machine), or an address of this machine")
    if "learner" not in flags and (unread := [name for name in _OF_LEARNER if name in flags]):
        raise errors.UsageError(f"--{unread[0]} is for --learner=HOST:PORT; give that instead of --run_dir")
    follows = "--follow" if arguments.switch("follow") else "--learner" if "learner" in flags else ""
    if follows and "step" in flags:
        raise errors.UsageError(f"--step={flags['step']}: {follows} serves the newest parameters; omit one of them")
    is_in_bucket = bucket.parse(flags.get("run_dir", "")) is not None
    if is_in_bucket and _takes_newest(names, follows=False) and "step" in flags:
        raise errors.UsageError(
            f"--step={flags['step']}: several players of a run in a bucket are those of its newest checkpoint; omit "
            "--step, or name one player"
        )


def _takes_newest(names: Sequence[str], *, follows: bool) -> bool:
    """Returns whether the newest checkpoint counts, with all that its players need."""
    return follows or len(names) > 1 or _ALL in names


@contextlib.contextmanager
def _opened(
    choice: agent_choice.AgentChoice, names: Sequence[str], *, follows: bool
) -> Iterator[tuple[pathlib.Path, Callable[[], None]]]:
    """Yields a run directory of this machine, and the function that brings newer parameters into it."""
    if _takes_newest(names, follows=follows):
        from seedzero.storage.bucket import run_copy  # JAX

        frozen = None if _ALL in names else list(filter(members.is_frozen, names))
        with run_copy.followed(str(choice.run_dir), frozen) as found:
            yield found
        return
    with runs.opened(choice) as here:
        yield here.path, lambda: None


def _access(arguments: parse.Arguments) -> configs.Config:
    """Returns a configuration with the flags' address, token and certificate. Raises ConfigError."""
    given = {name: arguments.flags[name] for name in _ACCESS if name in arguments.flags}
    host = arguments.flags.get("host", _HOST).strip("[]")
    listen = f"{f'[{host}]' if ':' in host else host}:{arguments.port('port') or 0}"
    try:
        return evaluate.server_config({**given, "listen": listen})
    except errors.ConfigError as error:  # it names a flag of other commands
        raise errors.ConfigError(str(error).replace(f"--listen={listen}", f"--host={host}")) from None


COMMAND = parse.Command(
    summary="Answers other programs with the actions of a saved agent, over gRPC.",
    usage="--run_dir=DIR|--learner=HOST:PORT [--port=N] [--player=NAME,NAME|all] [--follow] [--token_file=FILE] "
    "[--tls.cert_file=FILE]",
    flags={
        **parse.RUN_DIR,
        "learner=HOST:PORT": "instead of a run directory: a running learner, which gives its players' parameters over "
        "the network; it needs --serve.token_file, too. The newest ones are fetched again and again",
        "serve.token_file=FILE": "file with the learner's token for that",
        **{flag: f"of --learner: {text}" for flag, text in status.ACCESS.items() if flag.startswith("tls.")},
        "port=N": "to listen on; default 0: any free one, which is printed",
        "host=HOST": f"to listen on, default {_HOST}; 0.0.0.0: other machines reach it, and need --token_file",
        "player=NAME,NAME|all": "players of the run's league, the first one for clients that name none; all: main and "
        "all frozen players; default: main",
        "follow": "load each newer checkpoint of a run that is being trained, and with --player=all each new frozen "
        "player",
        "step=N|best|last": "which checkpoint; default: as of `seedzero evaluate`; with --follow or several players "
        "the newest",
        "policy=greedy|sample": evaluate.CHECKPOINT["policy=greedy|sample"],
        **evaluate.SIMULATIONS,
        "seed=N": "of drawn actions (default 0)",
        "max_rows=N": f"environments of all clients together, each with a memory (default {_MAX_ROWS})",
        "max_batch=N": f"most observations of a call (default {_MAX_BATCH})",
        "token_file=FILE": "file with the token that clients must present",
        "insecure": "listen beyond this machine without a token: anybody may ask",
        "tls.cert_file=FILE": "PEM file with the server's certificate chain: it then speaks only TLS",
        "tls.key_file=FILE": "PEM file with the key of tls.cert_file, without a passphrase",
        "metrics_port=N": "serve counters for Prometheus on this port; 0: any free one",
        "metrics_host=HOST": f"of that port (default {_HOST}); 0.0.0.0: other machines reach it",
        "http_port=N": "answer POST /act, observations as JSON, and GET /health on this port of the same host; 0: any "
        "free one",
        **parse.TRUST,
    },
    details="""
In Python, seedzero.connect("HOST:PORT") returns the policy; it needs numpy and gRPC, and no JAX. Other languages use
the service Policy of protos/seedzero/transport/inference.proto. `seedzero health` asks whether the server serves. The
last line on standard output, after Ctrl-C: requests, rows, calls, and changes of parameters.""",
    run=run,
)
