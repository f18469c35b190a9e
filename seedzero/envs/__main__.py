"""`python -m seedzero.envs SETTINGS`: prints an environment's spec as a line of JSON, or why there is none.

SETTINGS is a JSON object of the settings env.KEY.
"""

import dataclasses
import json
import sys

from seedzero.config import sections
from seedzero.core import errors
from seedzero.envs import registry

try:
    print(json.dumps(dataclasses.asdict(registry.spec(sections.EnvConfig(**json.loads(sys.argv[1]))))))
except errors.EnvironmentFailure as error:
    sys.exit(str(error))
