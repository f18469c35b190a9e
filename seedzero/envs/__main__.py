"""`python -m seedzero.envs SETTINGS`: prints an environment's spec, or why there is none, as a line of JSON.

SETTINGS is a JSON object of the settings env.KEY. The line is {"spec": ...} or {"error": ...}; an environment may
print others, before and after it.
"""

import dataclasses
import json
import sys
from typing import Any

from seedzero.config import sections
from seedzero.core import errors
from seedzero.envs import registry

try:
    answer: dict[str, Any] = {"spec": dataclasses.asdict(registry.spec(sections.EnvConfig(**json.loads(sys.argv[1]))))}
except errors.EnvironmentFailure as error:
    answer = {"error": str(error)}
print(f"\n{json.dumps(answer)}", flush=True)
