"""Programs on nodes: room for them, and their actors; `tests/e2e/ray_run_test.py` has a sweep on a cluster."""

from __future__ import annotations

import pathlib
import sys

import golden
import pytest

from seedzero.core import errors

ray_programs = pytest.importorskip(
    "seedzero.launch.ray_programs", reason="Ray is not installed: pip install '.[ray]'", exc_type=ImportError
)
pytestmark = pytest.mark.filterwarnings("ignore")


def test_room_is_that_of_whole_runs_on_each_node(monkeypatch: pytest.MonkeyPatch, said: golden.Said) -> None:
    monkeypatch.setattr(ray_programs.ray_launch, "nodes", lambda: [{"CPU": 5.0}, {"CPU": 4.0, "GPU": 1.0}, {}])
    assert (ray_programs.room(2, 0), ray_programs.room(2, 1)) == (4, 1)
    for cpus, gpus in ((6, 0), (1, 2)):
        with said.raises(errors.UsageError, f"CPU {cpus}.*--cpus=N or --gpus=N", str(cpus)):
            ray_programs.room(cpus, gpus)


def test_an_actor_runs_a_program_in_a_directory_until_its_input_ends(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pathlib.Path.cwd())  # to come back to
    script = "import os, sys; print(os.getcwd(), os.environ['GIVEN'], flush=True); sys.stdin.read(); sys.exit(3)"
    actor = ray_programs._Actor(["-c", script], str(tmp_path), {"GIVEN": "x"})
    assert actor.line().decode().split() == [str(tmp_path), "x"]
    actor.do("close_input")
    assert (actor.do("wait"), actor.line(), actor._process.args[0]) == (3, b"", sys.executable)
