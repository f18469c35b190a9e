"""What the scripts read of a run. The runs are made up."""

from __future__ import annotations

import json
import pathlib

import runs  # see conftest.py


def test_seconds_go_on_after_a_resume_whose_first_row_is_late(tmp_path: pathlib.Path) -> None:
    times = [(10.0, "00:00:10"), (12.0, "00:00:12"), (25.5, "00:00:40"), (3.0, "00:01:00")]
    lines = [json.dumps({"seconds": s, "time": f"2026-11-30T{t}+00:00"}) for s, t in times]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert [row["seconds"] for row in runs.rows(tmp_path)] == [10, 12, 37.5, 40.5]
