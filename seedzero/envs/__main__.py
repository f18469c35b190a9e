"""`python -m seedzero.envs FD`: makes an environment and prints its description, as a line of JSON.

FD is the number of an open file with the request, an object with `settings`, those of env.KEY, and perhaps `look`, the
arguments of `check.look`, and `registered`, the entry of an id that the asking process has registered. It is no
argument because it may be long, or secret. The line is {"spec": ..., "reward_threshold": ...}, {"look": ...} or
{"error": ...}; an environment may print others, before and after it. The process ends when its standard input is
closed; a crash prints its place.
"""

import dataclasses
import faulthandler
import json
import os
import signal
import sys
import threading
from typing import Any

from seedzero.config import sections
from seedzero.core import errors, exit_codes, user_code
from seedzero.envs import check, gym_ids, registry


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # and what the environment has started
    os._exit(exit_codes.FAILED)


threading.Thread(target=_end_with_input, name="parent", daemon=True).start()
faulthandler.enable(all_threads=False)
user_code.serves.set(True)
try:
    with open(int(sys.argv[1]), encoding="utf-8") as file:
        request = json.load(file)
    settings = sections.EnvConfig(**request["settings"])
    if "registered" in request:
        gym_ids.check_same(settings.id.removeprefix("gym:"), request["registered"])
    if "look" in request:
        answer: dict[str, Any] = {"look": dataclasses.asdict(check.look(settings, **request["look"]))}
    else:
        spec, threshold = registry.spec(settings), registry.reward_threshold(settings)
        answer = {"spec": dataclasses.asdict(spec), "reward_threshold": threshold}
except (errors.EnvironmentFailure, errors.ConfigError, errors.SpecMismatch) as error:
    answer = {"error": str(error)}
print(f"\n{json.dumps(answer)}", flush=True)
exit_codes.leave(exit_codes.DONE)
