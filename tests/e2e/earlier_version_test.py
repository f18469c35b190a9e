"""Run directories of earlier versions resume: this one was written before agents had an interface of their own."""

from __future__ import annotations

import pathlib
import tarfile

import e2e_harness as harness

DATA = pathlib.Path(__file__).parent / "data" / "run_of_an_earlier_version.tar.xz"
"""Catch with two stacked frames, priorities and reanalysis, deterministic; 20 updates."""


def test_a_run_of_an_earlier_version_resumes_with_its_replay_and_is_evaluated(host: harness.Host) -> None:
    with tarfile.open(DATA) as archive:
        # Python 3.11 has filters since 3.11.4; earlier ones ignore the attribute.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(host.directory)
    run = host.directory / "run"
    host.seedzero("evaluate", f"--run_dir={run}", "--episodes=4", "--step=last").ok()
    resumed = host.train(run, "--max_updates=40")
    resumed.wait().ok()
    assert "replay" not in resumed.says(r"resumed at update 20.*")[0]  # it says so where the replay is lost
    assert harness.saved_steps(run)[-1] == 40
    rows = [row for row in harness.metrics_rows(run) if row.get("kind") != "evaluation"]
    assert rows[-1]["samples_per_insert"] > 1
