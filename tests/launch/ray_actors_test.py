"""What a learner's actor reads of a run."""

from __future__ import annotations

import json
import pathlib

import fake_gcs
import pytest

ray_actors = pytest.importorskip(
    "seedzero.launch.ray_actors", reason="Ray is not installed: pip install '.[ray]'", exc_type=ImportError
)
pytestmark = pytest.mark.filterwarnings("ignore")

ENDED = json.dumps({"finished": "50 updates of --max_updates=50"})


def test_a_finished_run_is_known_on_a_disk_and_in_a_bucket(tmp_path: pathlib.Path, gcs: fake_gcs.FakeGcs) -> None:
    assert ray_actors._finished(str(tmp_path)) is None
    (tmp_path / "status.json").write_text(ENDED)
    assert ray_actors._finished(str(tmp_path)) == "50 updates of --max_updates=50"
    assert ray_actors._finished("gs://runs/team/one") is None
    gcs.put("runs", "team/one/config.json", b"{}")
    gcs.put("runs", "team/one/status.json", ENDED.encode())
    assert ray_actors._finished("gs://runs/team/one") == "50 updates of --max_updates=50"
