"""`python -m seedzero.envs SETTINGS`: prints an environment's spec, or why there is none, as a line of JSON.

SETTINGS is a JSON object of the settings env.KEY. The line is {"spec": ...} or {"error": ...}; an environment may
print others, before and after it. The process ends when its standard input is closed.
"""

import dataclasses
import json
import os
import sys
import threading
from typing import Any

from seedzero.config import sections
from seedzero.core import errors, exit_codes, user_code
from seedzero.envs import registry


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os._exit(exit_codes.FAILED)


threading.Thread(target=_end_with_input, name="parent", daemon=True).start()
user_code.serves.set(True)
try:
    answer: dict[str, Any] = {"spec": dataclasses.asdict(registry.spec(sections.EnvConfig(**json.loads(sys.argv[1]))))}
except (errors.EnvironmentFailure, errors.ConfigError) as error:
    answer = {"error": str(error)}
print(f"\n{json.dumps(answer)}", flush=True)
exit_codes.leave(exit_codes.DONE)
