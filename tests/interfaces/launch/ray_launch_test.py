"""What a learner's actor reads of a run."""

from __future__ import annotations

import json
import pathlib
import sys

import fake_gcs
import pytest

from seedzero.config import worker_options
from seedzero.core import errors
from seedzero.interfaces.launch import launch_plan

ray_actors = pytest.importorskip(
    "seedzero.interfaces.launch.ray_launch", reason="Ray is not installed: pip install '.[ray]'", exc_type=ImportError
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


@pytest.mark.parametrize(("given", "told"), [({"working_dir": "nowhere"}, "not a valid"), ({"pip": 5}, "must be")])
def test_a_wrong_runtime_env_is_named_before_ray_starts(given: dict[str, object], told: str) -> None:
    opened = ray_actors.connected("local", lambda nodes: pytest.fail("Ray starts"), given)
    with pytest.raises(errors.UsageError, match=f"--runtime_env=.*{told}"), opened:
        pass


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("place", ["RUN", "gs://runs/one"])
def test_each_learner_waits_for_its_own_directory_and_in_a_bucket_for_its_lease(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, place: str, index: int
) -> None:
    waited: list[pathlib.Path] = []
    monkeypatch.setattr(ray_actors.run_lock, "wait_until_free", lambda path, report: waited.append(path))
    run_dir = place.replace("RUN", str(tmp_path))
    needs = launch_plan.NodeResources(1.0)
    words = (f"--run_dir={run_dir}", "--cluster.num_hosts=2")
    plan = launch_plan.Plan(run_dir, 2, words, worker_options.WorkerOptions(), needs, needs, 0, "abc", 2)
    learner = ray_actors.Learner(0, index)
    learner._order = ray_actors.Order("1", plan, "10.0.0.7:7800")
    command = learner._command()
    assert words[0] in command and f"--cluster.index={index}" in command
    assert waited == ([] if "://" in place else [tmp_path / "hosts" / "1" if index else tmp_path])
    learner._directory.cleanup()


@pytest.mark.parametrize(("num_accelerators", "platforms"), [(0, "cpu"), (2, "cuda,cpu")])
def test_a_learner_without_an_accelerator_is_not_asked_for_one(
    monkeypatch: pytest.MonkeyPatch, num_accelerators: int, platforms: str
) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cuda,cpu")  # of a node with GPUs
    show = [sys.executable, "-c", "import os; print(os.environ['JAX_PLATFORMS'])"]
    learner = ray_actors.Learner(num_accelerators)
    with learner._keeper._program._system.launch(show) as launched:
        assert launched.communicate()[0].strip() == platforms.encode()
    learner._directory.cleanup()
