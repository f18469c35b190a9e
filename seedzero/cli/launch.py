"""`seedzero launch`: starts learners, usually one, and workers on a cluster."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import secrets
import types
from collections.abc import Mapping, Sequence
from typing import Any

from seedzero.api import request
from seedzero.cli import output, parse, train
from seedzero.config import worker_options
from seedzero.core import errors, packages
from seedzero.interfaces.launch import launch_plan

_TOKEN_FILE = "transport.token_file"
_OF_THE_ADDRESS = ("transport.listen", _TOKEN_FILE, "tls.cert_file", "tls.key_file")
"""Settings of the address where the learner listens, given or saved; its node has the files and checks them."""
_RUNTIME_ENV = """expected Ray's runtime_env, as '{"working_dir": "."}'"""


def run(arguments: parse.Arguments) -> int:
    """Runs learners and workers on a Ray cluster until training is over; returns the exit code.

    Raises UsageError for wrong settings, without Ray or a cluster, or if it is full; TrainingFailure after too many
    failures.
    """
    launch_plan.check_settings(arguments.settings)
    num_workers = arguments.integer("num_workers", minimum=1) or 1
    runtime_env = _runtime_env(arguments.flags.get("runtime_env", ""))
    learner_cpus = _learner_cpus(arguments)
    given = arguments.flags["run_dir"]
    run_dir = given if "://" in given else os.path.abspath(given)  # as every node names it
    settings = {**arguments.settings, **dict.fromkeys(_OF_THE_ADDRESS, "")}
    settings |= {"worker.num": "0", "worker.num_remote": str(num_workers)}
    if several := arguments.integer("num_learners", minimum=1):
        settings["cluster.num_hosts"] = str(several)
    # The learner's node may not know this user's own runs.
    asked = request.make({**arguments.flags, "run_dir": run_dir}, settings, is_here=False)
    num_learners = asked.config.cluster.num_hosts
    launch_plan.check_learners(num_learners, num_workers)
    asked = request.check_early(asked, has_environments=False)
    token = _token(arguments.settings.get(_TOKEN_FILE, ""))
    options = dataclasses.replace(
        worker_options.of_learner(asked.config),
        threads=launch_plan.worker_threads(asked.config),
        ca_file=arguments.flags.get("tls.ca_file", ""),
        server_name=arguments.flags.get("tls.server_name", ""),
    )
    worker, wanted_cpus = launch_plan.NodeResources(options.threads), launch_plan.learner_cpus(asked.config)

    def learner_on(nodes: Sequence[Mapping[str, float]], *accelerator: Any) -> launch_plan.NodeResources:
        wanted = launch_plan.NodeResources(learner_cpus or wanted_cpus, *accelerator)
        return wanted if learner_cpus else launch_plan.fit_learner(wanted, worker, num_workers, nodes, num_learners)

    def check_here(nodes: Sequence[Mapping[str, float]]) -> None:
        if problem := launch_plan.shortage(learner_on(nodes), worker, num_workers, nodes, num_learners):
            raise errors.UsageError(problem)

    ray_launch = load("seedzero launch ray")
    with ray_launch.connected(arguments.flags.get("address", ""), check_here, runtime_env) as is_own:
        there = ray_launch.nodes()
        accelerator = launch_plan.find_accelerator(arguments.flags.get("accelerator", "auto"), there, num_learners)
        learner = learner_on(there, *accelerator)
        plan = launch_plan.Plan(
            run_dir=run_dir,
            num_workers=num_workers,
            train_words=_train_words(arguments, run_dir, num_learners),
            worker_options=options,
            learner=learner,
            worker=worker,
            port=arguments.port("port") or 0,
            token=token,
            num_learners=num_learners,
        )
        less = "" if learner_cpus or learner.cpus == wanted_cpus else f" (no room for CPU {wanted_cpus:g})"
        learners = "a learner" if num_learners == 1 else f"{num_learners} learners, each"
        output.say(f"{num_workers} worker(s), each of {worker}; {learners} of {learner}{less}")
        finished = ray_launch.Launch(plan, is_own=is_own, say=output.say).run()
    resume = train.resume_command(run_dir, arguments, command=("launch", "ray"))
    if finished:
        output.say(f"finished: {finished}")
    else:
        output.say("stopped; to resume:", resume)
    return 0


def _learner_cpus(arguments: parse.Arguments) -> float | None:
    value = arguments.flags.get("learner_cpus")
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0.0 < number < math.inf:
        raise errors.UsageError(f"--learner_cpus={value}: expected a number above 0; a fraction will do")
    return number


def _runtime_env(text: str) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise errors.UsageError(f"--runtime_env={text}: no JSON ({error}); {_RUNTIME_ENV}") from None
    if not isinstance(found, dict):
        raise errors.UsageError(f"--runtime_env={text}: no object of JSON; {_RUNTIME_ENV}")
    return found


def _token(file: str) -> str:
    if not file:
        return secrets.token_hex(32)
    from seedzero.transport import security  # gRPC, which an early mistake need not wait for

    return security.read_token(file)


def load(user: str) -> types.ModuleType:
    """Returns the module for Ray. Raises UsageError without Ray. user: who needs it, for the message."""
    try:
        from seedzero.interfaces.launch import ray_launch
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "ray":
            raise
        raise errors.UsageError(
            f"`{user}` needs Ray, which is not installed here; on every node: "
            + packages.install_command("ray[default]")
        ) from None
    return ray_launch


def _train_words(arguments: parse.Arguments, run_dir: str, num_learners: int) -> tuple[str, ...]:
    flags = {key: value for key, value in arguments.flags.items() if key in ("preset", request.TRUST)}
    settings = {key: value for key, value in arguments.settings.items() if key != _TOKEN_FILE}
    goes_on = "preset" not in flags and "env.id" not in settings
    if goes_on:  # its workers speak TLS only if this asks them to
        settings = {"tls.cert_file": "", "tls.key_file": "", **settings}
    if num_learners > 1 or "num_learners" in arguments.flags:
        settings["cluster.num_hosts"] = str(num_learners)
    return tuple(train.as_words({**flags, "run_dir": run_dir}, settings))


COMMAND = parse.Command(
    summary="Runs a learner and workers on the nodes of a Ray cluster, and restarts programs that die.",
    usage="ray --num_workers=N --run_dir=DIR [--address=HOST:PORT] [--preset=NAME] [--key=value ...]",
    words=(("ray",),),
    flags={
        "num_workers=N": "workers that step environments, each an actor",
        "num_learners=N": "learner hosts of the run, each an actor; they share the workers "
        "evenly (default: the run's number, or 1)",
        "run_dir=DIR": "as for `seedzero train`; every node that may run the learner must see it",
        "address=HOST:PORT|local": "address of the cluster's head, or local to start Ray on this "
        "machine (default: RAY_ADDRESS, or the Ray that runs on this "
        "machine, or local)",
        "runtime_env=JSON": "Ray's runtime_env, what travels to every node: "
        '\'{"working_dir": "."}\' brings this folder with your modules',
        "preset=NAME": "a preset's name, as for `seedzero train`",
        **parse.TRUST,
        "accelerator=auto|none|GPU[:N]|TPU[:N]": "the learner's accelerators (default: auto, all of the node that "
        "has most)",
        "learner_cpus=X": "cores of the learner and of the worker that evaluates beside it "
        "(default: 2, and --worker.threads more if it evaluates; fewer if "
        "the cluster has no more)",
        "port=N": "port of the learner (default: any free one); several learners take the following ports, too",
        "tls.ca_file=FILE": "certificates by which workers trust the learner's --tls.cert_file",
        "tls.server_name=NAME": "name that the learner's certificate is for, since workers reach it by its address",
    },
    required=("num_workers", "run_dir"),
    takes_settings=True,
    details="""
Ray's resources: the learner takes --learner_cpus and its accelerator, each worker --worker.threads (default 1) cores.
Programs without room on a node wait, and an autoscaler adds nodes for them. In Ray's dashboard the actors are named
"learner of DIR" and "worker-I of DIR".

Several learners (--num_learners) are hosts of one run, each with these resources; their actors are "learner-I of
DIR". Give a shared directory that all their nodes see. A directory of that name on each node's own disk works, too,
if every learner comes back to its node. After the loss of one, all resume from the last common checkpoint.

Every node needs the same version of seedzero with Ray (ray[default]). The learner listens on its node's address and
asks for a token: a random one, or that of --token_file=FILE, which `seedzero status --server=... --token_file=FILE`
can then use, too. Files named here are read on the node that uses them, the token's where this runs.

Examples:
  seedzero launch ray --num_workers=1 --run_dir=runs/catch --preset=catch
  seedzero launch ray --num_workers=8 --run_dir=/shared/pong --preset=atari --env=atari:Pong --worker.threads=4
  seedzero launch ray --num_learners=2 --num_workers=8 --run_dir=/shared/two --preset=atari --accelerator=GPU:1
  seedzero launch ray --num_workers=4 --run_dir=/shared/x --env=python:my_env:Env --runtime_env='{"working_dir": "."}'
  ray job submit --address=http://HEAD:8265 --no-wait -- seedzero launch ray --num_workers=8 ...

Ctrl-C saves and ends; the same command resumes. When this process dies, all its programs end too.""",
    run=run,
)
