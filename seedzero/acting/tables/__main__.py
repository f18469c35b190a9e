"""`python -m seedzero.acting.tables RUN_DIR FILE.gif`: films the newest checkpoint of a run while it trains.

It prints a line of JSON: the result of `videos.play`, and `ledger`, the checkpoint's counts of training steps. The
process ends when its standard input is closed; as it leads a process group, its children end, too.
"""

import json
import pathlib
import sys

from seedzero.acting.tables import videos
from seedzero.core import descendants, errors

MOST_STEPS, LONGEST_SIDE = 500, 200
"""Limits in steps and in pixels: larger videos would fill the event files of a long run."""


descendants.end_with_input()  # a user's environments may have started simulators
try:
    # The learner has imported what the run directory names, with the user's consent.
    found = videos.film(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), MOST_STEPS, LONGEST_SIDE)
except errors.Error as error:
    print(f"\n{' '.join(str(error).split())}", flush=True)
    errors.leave(errors.FAILED)
print(f"\n{json.dumps(found)}", flush=True)
errors.leave(errors.DONE)
