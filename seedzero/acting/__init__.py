"""Saved agents: what acts, games and scores, records, judges, exports."""
