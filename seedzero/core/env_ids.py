"""Ids of environments with special settings or from outside seedzero.envs."""

REMOTE = "remote"
"""A learner's --env where every worker brings environments of its own."""
YOURS = "yours"
"""Assigned by such a learner, and offered by such a worker."""
DMLAB30 = "dmlab:dmlab30"
DMLAB30_LEVELS = 30
