"""Learner and workers on a cluster that somebody else schedules: what runs there, and who keeps it running."""
