"""Exit codes of every process of seedzero."""

DONE = 0
FAILED = 1
BAD_USAGE = 2
"""A command line or configuration that cannot be run."""
TRY_LATER = 75
"""For a supervisor: another learner still uses the run directory."""
INTERRUPTED = 130
"""The process left at once, on Ctrl-C."""
