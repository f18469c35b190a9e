"""`python -m seedzero.envs ENV`: prints an environment's spec as a line of JSON, or the reason why there is none."""

import dataclasses
import json
import sys

from seedzero.config import sections
from seedzero.core import errors
from seedzero.envs import registry

try:
    print(json.dumps(dataclasses.asdict(registry.spec(sections.EnvConfig(id=sys.argv[1])))))
except errors.EnvironmentFailure as error:
    sys.exit(str(error))
