"""`python -m seedzero.recordings RUN_DIR FILE.gif`: films the newest checkpoint of a run, beside its training.

It prints a line of JSON: the result of `films.play`, and `ledger`, the checkpoint's counts of training steps. The
process ends when its standard input is closed; as the leader of a group it takes its children with it.
"""

import json
import pathlib
import sys

from seedzero.core import descendants, errors, exit_codes
from seedzero.recordings import films

MOST_STEPS, LONGEST_SIDE = 500, 200
"""Larger videos would fill the event files of a long run: in steps, and in pixels."""


descendants.end_with_input()  # a user's environments may have started simulators
try:
    # The learner has imported, with the user's consent, what the run directory names.
    found = films.film(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), MOST_STEPS, LONGEST_SIDE)
except errors.Error as error:
    print(f"\n{' '.join(str(error).split())}", flush=True)
    exit_codes.leave(exit_codes.FAILED)
print(f"\n{json.dumps(found)}", flush=True)
exit_codes.leave(exit_codes.DONE)
