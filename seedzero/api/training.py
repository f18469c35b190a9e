"""`seedzero.train` takes settings and returns an ended training; `seedzero train` is the same as a command."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import json
import os
import pathlib
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from seedzero.api import request
from seedzero.config import configs, options, own_agents, page_options, presets, sections
from seedzero.core import env_ids, errors, plain_files, user_code
from seedzero.learner import callbacks
from seedzero.storage.bucket import bucket

if TYPE_CHECKING:
    from seedzero.learner import endings

Setting: TypeAlias = options.Value | os.PathLike[str] | Mapping[str, Any] | Sequence[Any]
"""A value of a setting in a call; JSON values too where the setting's text is JSON."""
RUNS = pathlib.Path("runs")
"""Directory of new runs, below the current directory."""
_JSON = (*user_code.ARGUMENTS.values(), "env.wrappers", "seats.policies")
"""Settings whose text is JSON."""
_CALLBACKS = ("callback", "callbacks")
"""The names that other libraries have for `on_row` and `on_evaluation`."""


def train(
    env: str | None = None,
    *,
    preset: str | os.PathLike[str] | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    trust_run_dir: bool = False,
    page: int | None = None,
    on_row: callbacks.Function | None = None,
    on_evaluation: callbacks.Function | None = None,
    **settings: Setting,
) -> endings.Result:
    """Trains an agent until a budget is spent, a return is reached or you stop it; returns the reason and the totals.

    Arguments are the flags of `seedzero train`: `seedzero.train("gym:CartPole-v1", run_dir="runs/one", seed=3,
    max_updates=2000, **{"search.num_simulations": 8})`. The same call resumes the run; with `run_dir` alone, it
    resumes with its saved settings. Workers are separate processes, but your script needs no
    `if __name__ == "__main__"`.

    On the main thread Ctrl-C, SIGTERM and SIGHUP save and return a result with `is_finished` false; a second Ctrl-C
    ends the process at once. On another thread, signals are left alone and budgets end the training.

    Args:
      env: id of the environment. None takes the preset's, or that of the run in `run_dir`.
      preset: name of settings that work together, or your own file. None takes one that suits the environment.
      run_dir: directory or gs://BUCKET/PATH of the run. None makes a new directory in ./runs.
      trust_run_dir: import the modules that `run_dir` names even if this call does not; that code may do anything
        here.
      page: port of a web page on this machine that shows the run until it ends; 0 takes any free port and prints it.
        Behind a proxy, as in Jupyter, give its path as well: `**{"page.root": "/proxy/8000"}`.
      on_row: called with each row of metrics.jsonl, as a dictionary. If it returns a text, the run ends with that
        reason, as if a budget were spent. Calls happen one after the other on a separate thread; training does not
        wait for them.
      on_evaluation: called in the same way with each evaluation during training: `update`, `env_steps`, `mean_return`,
        `cut_short` (episodes that had not ended count, too, or are left out), ...
      **settings: settings by their short names, or by SECTION.KEY in a dictionary,
        `**{"optimizer.learning_rate": 1e-3}`. Settings whose text is JSON also take the value itself:
        `**{"env.kwargs": {"continuous": True}}`.

    Raises:
      UsageError: an unknown or unsuitable setting, an impossible environment, or a run directory that does not fit.
      BucketError: the bucket cannot be used.
      TrainingFailure, CheckpointError: training could not continue, or could not be saved; CallbackError: a function
        raised an error or returned something else. The run is saved first.
    """
    if preset is not None and (presets.is_file(plain_files.given("preset", preset)) or not isinstance(preset, str)):
        file = presets.read_file(preset)
        named = {configs.ALIASES.get(name, name): value for name, value in settings.items()}
        preset, settings = file.preset, {**file.settings, **named}
        of_file = settings.pop("env.id", None)
        env = env if env is not None or of_file is None else str(of_file)
    given_functions = {"on_row": on_row, "on_evaluation": on_evaluation}
    functions = {name: function for name, function in given_functions.items() if function is not None}
    if wrong := [name for name, function in functions.items() if not callable(function)]:
        raise errors.UsageError(f"{wrong[0]}={functions[wrong[0]]!r}: expected a function that takes a dictionary")
    flags = {"preset": preset, "run_dir": None if run_dir is None else plain_files.given("run_dir", run_dir)}
    flags |= {request.TRUST: "true"} if trust_run_dir else {}
    flags |= {} if page is None else {"page": str(page)}
    flags |= {"page.root": str(settings.pop("page.root"))} if "page.root" in settings else {}
    given = texts({**({} if env is None else {"env": env}), **settings}, flags["run_dir"])
    trusts = trust_run_dir or bool(user_code.named(given))
    return start(
        {name: value for name, value in flags.items() if value is not None},
        given,
        functools.partial(_resume_command, trusts=trusts),
        callbacks.Caller(handles_signals=threading.current_thread() is threading.main_thread(), functions=functions),
    )


def start(
    flags: Mapping[str, str],
    settings: Mapping[str, str],
    resume_command: Callable[[str], str],
    caller: callbacks.Caller,
) -> endings.Result:
    """Trains and returns the result. Errors are those of `train`, and ConfigError in a module imported for a training.

    Args:
      flags: preset, run_dir, trust_run_dir, page (a port) and page.root, if given.
      settings: texts by SECTION.KEY.
      resume_command: takes a run directory and returns the command that resumes it, to be shown to the user.
    """
    page, say = page_options.place(flags), caller.say
    user_code.check_may_train()
    if not ({"preset", "run_dir"} & flags.keys() or "env.id" in settings):
        raise errors.UsageError(
            "nothing to train on is given: --env=ENV, as in `seedzero train --env=gym:CartPole-v1`, --preset=NAME "
            f"({', '.join(presets.PRESETS)}), or --run_dir of a run to resume; `seedzero train --help` lists all"
        )
    given = flags.get("run_dir", "")
    if "run_dir" in flags and not given:
        raise errors.UsageError("--run_dir= is empty; name a directory, or leave it out for a new one in ./runs")
    url = bucket.parse(given)  # rejects a directory in which no run can be kept
    # Absolute from here on, because another thread of the calling program may change its directory.
    place, runs = pathlib.Path(given).absolute(), RUNS.absolute()
    if given and url is None:
        if os.path.isfile(place):
            raise errors.UsageError(f"--run_dir={given} is a file; expected a directory, or a name for a new one")
        plain_files.check_name(place)
        flags = {**flags, "run_dir": str(place)}
    asked = request.check_early(request.make(flags, settings))
    num_hosts, index = asked.config.cluster.num_hosts, asked.config.cluster.index
    if num_hosts > 1 and index >= 0 and not given:
        raise errors.UsageError(f"--cluster.index={index}: give --run_dir, the same on all hosts")
    if asked.config.metrics.wandb:
        from seedzero.monitoring import wandb_run

        wandb_run.check()
    from seedzero.storage.checkpoints import run_dirs

    several = num_hosts > 1 and index >= 0
    config, notes = (asked.config, []) if several else request.resolve(asked)  # hosts meet before JAX is used
    for note in (*asked.notes, *notes):
        say(note)
    name = f"{env_ids.file_name(config.env.id)}-{config.section}"
    path = url or (place if given else run_dirs.new_path(runs, name, datetime.datetime.now()))
    command = resume_command(str(path))
    if not given:
        say(f"run directory {path}; to resume it later:", command)
    if num_hosts > 1 and not several:
        if caller.functions:
            raise errors.UsageError(
                f"--cluster.num_hosts={num_hosts}: hosts are separate processes, and cannot call "
                f"{', '.join(caller.functions)}; give --cluster.index in a call for each host, or leave it out"
            )
        from seedzero.api import local_hosts

        return local_hosts.run(flags, settings, path, num_hosts, caller)
    from seedzero.learner import entry, together

    with contextlib.ExitStack() as met:
        hosts = None
        if several:
            path = run_dirs.of_host(place, index) if url is None else bucket.of_host(url, index)
            hosts = met.enter_context(together.meeting(config, path, say))
            config, notes = request.resolve(asked)
            for note in notes:
                say(note)
            hosts, config = dataclasses.replace(hosts, resolved=together.digest(config)), together.of_host(config)
        kept = {name: value for name, value in asked.given.items() if name not in sections.OF_A_PROCESS}
        spec = asked.spec if config.env == asked.config.env else None
        saved = run_dirs.SavedConfig(asked.preset, kept, config)
        return entry.train(saved, path, command, caller, spec=spec, hosts=hosts, page=page if index <= 0 else None)


def texts(values: Mapping[str, Setting], run_dir: str | None = None) -> dict[str, str]:
    """Returns settings as on a command line, by SECTION.KEY.

    Raises ConfigError for unknown names and impossible values.

    run_dir: a run that is resumed with the user's own agent, whose settings are then known as well.
    """
    agent = str(values.get("agent", values.get("run.agent", configs.agent_names()[0])))
    kind = request.known(agent if {"agent", "run.agent"} & values.keys() else "", run_dir)
    known = [*configs.fields(kind), *configs.ALIASES]
    found: dict[str, str] = {}
    for name, value in values.items():
        if name in _CALLBACKS:
            raise errors.ConfigError(
                f"unknown argument {name}={value!r}: give on_row=FUNCTION, which takes each row of metrics, or "
                "on_evaluation=FUNCTION, which takes each evaluation"
            )
        if name not in known:
            nearest = configs.suggestion(name, [*known, "preset", "run_dir", request.TRUST, "page"], agent)
            raise errors.ConfigError(f"unknown setting --{name}={value}{nearest}")
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if getattr(value, "shape", None) == ():
            value = cast(Any, value).item()  # a number of numpy's
        if isinstance(value, dict | list | tuple) and configs.ALIASES.get(name, name) in _JSON:
            value = _json(name, value)
        if not isinstance(value, bool | int | float | str):
            hint = _name_of(value, configs.ALIASES.get(name, name))
            raise errors.ConfigError(f"--{name}={value!r}: expected a text, a number, true or false{hint}")
        key = configs.ALIASES.get(name, name)
        if key in found:
            raise errors.ConfigError(f"--{name}={value} and --{key}={found[key]} are one setting; give it once")
        found[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _json(name: str, value: object) -> str:
    """Returns a setting's value as JSON; raises ConfigError if JSON cannot express it."""
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise errors.ConfigError(f"--{name}={value!r}: expected a value of JSON ({error})") from None


def _name_of(value: object, setting: str) -> str:
    """Ends a message about an object given instead of a name, with the right name; "" if no name leads to it."""
    if setting not in (user_code.AGENT, *user_code.ARGUMENTS, *user_code.NETWORKS):
        return ""
    if isinstance(value, own_agents.OwnAgent):
        module = user_code.importable(value.make.__module__)
        names = [name for name, other in vars(sys.modules[value.make.__module__]).items() if other is value]
        return f"; give the name, as other processes import it: {module}:{(names or ['NAME'])[0]}"
    is_env = setting == user_code.ENVIRONMENT
    registered = getattr(getattr(value, "spec", None), "id", None)
    found = user_code.named_by(value) or user_code.named_by(type(value))
    if found.partition(":")[0] in ("", "builtins"):
        found = "my_module:make, of a function or class at the top of a module"
    name = f"gym:{registered}" if is_env and registered else f"{'python:' if is_env else ''}{found}"
    return f"; give the name, as other processes import it: {name}"


def _resume_command(run_dir: str, *, trusts: bool) -> str:
    from seedzero.storage.checkpoints import own_runs

    trusts = trusts and ("://" in run_dir or bool(own_runs.obstacle()))
    program = ["seedzero"] if shutil.which("seedzero") else [sys.executable, "-m", "seedzero.cli"]
    return shlex.join([*program, "train", f"--run_dir={run_dir}", *([f"--{request.TRUST}"] if trusts else [])])
