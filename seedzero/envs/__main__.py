"""`python -m seedzero.envs FD` makes an environment and prints its description as a line of JSON.

FD is the number of an open file with the request, an object with `settings`, those of env.KEY, and perhaps `look`, the
arguments of `check.look`, and `registered`, the entry of an id that the asking process has registered. It is not an
argument, because it may be long or secret. The line is {"spec": ..., "reward_threshold": ..., "seated_by": ...,
"statistics": ...}, {"look": ...} or {"error": ..., "trace": ...}; an environment may print others before and after it.
The process ends when its standard input is closed; a crash prints where it happened.
"""

import dataclasses
import faulthandler
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from seedzero.config import sections
from seedzero.core import descendants, errors, types, user_code
from seedzero.envs import check, env_base, gym_ids, registry

_REST_SECONDS = 20.0
"""Time for another environment, which is made to compare the spaces, and for closing both."""


def _print(answer: Mapping[str, Any]) -> None:
    print(f"\n{json.dumps(answer)}", flush=True)


def _tell_look(look: check.Look) -> None:
    _print({"look": dataclasses.asdict(look)})
    _limit_rest()


def _tell_spec(spec: types.EnvSpec, statistics: Sequence[str]) -> None:
    shown = {"reward_threshold": registry.reward_threshold(settings), "seated_by": registry.seated_by(settings)}
    _print({"spec": dataclasses.asdict(spec), **shown, "statistics": statistics})
    _limit_rest()


def _limit_rest() -> None:
    """Ends this process if another environment, or the end of the first, takes longer, after the answer is printed."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _REST_SECONDS)


descendants.end_with_input()  # the environment may have started simulators
faulthandler.enable(all_threads=False)
user_code.serves.set(True)
try:
    with open(int(sys.argv[1]), encoding="utf-8") as file:
        request = json.load(file)
    settings = sections.EnvConfig(**request["settings"])
    if "registered" in request:
        gym_ids.check_same(settings.id.removeprefix("gym:"), request["registered"])
    if "look" in request:
        check.look(settings, **request["look"], tell=_tell_look)
    else:
        registry.spec(settings, _tell_spec)
except (errors.EnvironmentFailure, errors.ConfigError, errors.SpecMismatch) as error:
    _print({"error": str(error), "trace": env_base.trace(error)})
errors.leave(errors.DONE)
