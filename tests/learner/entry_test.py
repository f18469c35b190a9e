"""The run_phase of a training, with a learner's other parts imitated; `tests/e2e` has the rest."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import socket
import tempfile
import threading
import types as python_types
import weakref
from collections.abc import Sequence
from concurrent import futures
from typing import Any

import made_up
import parts_world
import pytest

from seedzero.config import configs, page_options
from seedzero.core import errors, types
from seedzero.learner import callbacks, entry
from seedzero.learner.loop import device_loop
from seedzero.learner.processes import programs
from seedzero.monitoring.metrics import counts
from seedzero.storage.checkpoints import own_runs, run_dirs
from seedzero.transport import addresses

CATCH = parts_world.CATCH
QUIET = callbacks.Caller(handles_signals=False)


@pytest.mark.parametrize("spec", [CATCH, None])
def test_a_run_whose_workers_never_come_fails_by_name_and_keeps_no_spec(
    make_parts: parts_world.Make, tmp_path: pathlib.Path, spec: types.EnvSpec | None
) -> None:
    world = make_parts(spec=spec, run__max_seconds=1.0)
    with pytest.raises(errors.TrainingFailure, match="--max_seconds=1,"):
        entry.run(world.parts)
    assert run_dirs.read_spec(tmp_path) is None


@pytest.mark.parametrize(
    ("resumed", "role", "now", "fails"),
    [
        (False, types.Role.EVALUATE, 60.0, True),
        (False, types.Role.EVALUATE, 59.0, False),
        (False, types.Role.TRAIN, 60.0, False),
        (True, types.Role.EVALUATE, 60.0, False),
    ],
)
def test_a_worker_that_only_evaluates_is_none_that_learns(
    make_parts: parts_world.Make,
    monkeypatch: pytest.MonkeyPatch,
    resumed: bool,
    role: types.Role,
    now: float,
    fails: bool,
) -> None:
    world = make_parts(spec=CATCH, resumed=resumed, run__max_seconds=60.0)
    world.build()
    world.joins(role)
    world.now = now
    over = futures.Future[str]()
    over.set_result("--max_seconds=60 passed")
    monkeypatch.setattr(device_loop, "running", lambda loop, on_end: contextlib.nullcontext(over))
    with pytest.raises(errors.TrainingFailure, match="--max_seconds=60") if fails else contextlib.nullcontext():
        assert entry.run(world.parts) == "--max_seconds=60 passed"


@pytest.mark.parametrize(
    ("settings", "spent"),
    [
        ({"run__max_seconds": 60.0}, "--max_seconds=60 passed"),
        ({"run__agent": "ppo", "run__max_env_steps": 9}, "--max_env_steps=9 reached"),
    ],
)
@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_budget_that_ends_while_programs_are_compiled_fails_and_saves_nothing(
    make_parts: parts_world.Make,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    spent: str,
    resumed: bool,
    is_compiled: bool,
) -> None:
    world = make_parts(spec=CATCH, resumed=resumed, **settings)
    world.saves.durable_update = 25 if resumed else None
    world.seen = counts.Snapshot(num_updates=25 if resumed else 0, is_compiled=is_compiled)
    world.build()
    world.joins()
    world.now = 60.0
    over = futures.Future[str]()
    world.loop.stop = lambda reason: (world.calls.append("stop"), over.set_result(reason))
    world.loop.end = lambda reason: (world.calls.append("end"), over.set_result(reason))
    if "run__max_env_steps" in settings:
        over.set_result(spent)
    monkeypatch.setattr(device_loop, "running", lambda loop, on_end: contextlib.nullcontext(over))
    ends = is_compiled or (resumed and "run__max_env_steps" in settings)  # a few steps more, which it has
    with contextlib.nullcontext() if ends else pytest.raises(errors.TrainingFailure) as raised:
        assert entry.run(world.parts) == spent
    assert ("save" in world.calls) == ends
    assert not {"stop", "end"} & set(world.calls) - {"end" if is_compiled else "stop"}
    if raised is not None:
        kept = "the run has not changed" if resumed else "nothing was learned"
        assert str(raised.value).startswith(spent) and f"so give it more; {kept}" in str(raised.value)


def test_a_failed_device_loop_is_not_saved_where_something_else_has_failed_too(
    make_parts: parts_world.Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_parts(spec=CATCH)
    world.build()
    world.joins()
    over = futures.Future[str]()
    over.set_exception(errors.TrainingFailure("a call on the device failed"))
    monkeypatch.setattr(device_loop, "running", lambda loop, on_end: contextlib.nullcontext(over))
    world.ending.fail("the worker failed")
    with pytest.raises(errors.TrainingFailure, match="on the device"):
        entry.run(world.parts)
    assert "save" not in world.calls


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_status_is_written_while_a_run_goes_on_also_where_updates_are_its_time(
    make_parts: parts_world.Make, monkeypatch: pytest.MonkeyPatch, deterministic: bool
) -> None:
    clock = itertools.count(0.0, 10.0)
    monkeypatch.setattr(entry, "time", python_types.SimpleNamespace(monotonic=clock.__next__))
    over = futures.Future[str]()
    world = make_parts(run__deterministic=deterministic, metrics__every_seconds=10.0)
    world.checkpointer.busy = True
    world.on_status = lambda: over.set_result("")
    entry.keep_time(world.parts, world.loop, over)
    assert world.calls == ["wait", "ours", "status"] and len(world.rows) == (not deterministic)


def test_a_checkpoint_that_the_disk_never_takes_is_reported_once(
    make_parts: parts_world.Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0.0, 10.0)
    monkeypatch.setattr(entry, "time", python_types.SimpleNamespace(monotonic=clock.__next__))
    over = futures.Future[str]()
    world = make_parts(checkpoint__every_seconds=20.0)

    def check() -> None:
        raise errors.CheckpointError("the disk does not answer")

    world.checkpointer.busy, world.checkpointer.check = True, check
    world.news = lambda: over.set_result("") if world.calls.count("wait") == 9 else None
    entry.keep_time(world.parts, world.loop, over)
    assert world.said == ["the disk does not answer"] and "save" not in world.calls


@pytest.mark.parametrize("resumed", [False, True])
def test_a_run_that_is_stopped_before_its_workers_come_compiles_no_more(
    make_parts: parts_world.Make, tmp_path: pathlib.Path, resumed: bool
) -> None:
    world = make_parts(spec=CATCH, resumed=resumed)
    if resumed:
        world.build()
    world.ending.interrupt()
    assert entry.run(world.parts) == ""
    entry.stop(world.parts, "")
    assert world.calls == [*["build"] * (not resumed), "close", "saves end", "status"]
    assert run_dirs.read_spec(tmp_path) is None


def test_workers_and_the_last_checkpoint_have_their_time_at_the_end(make_parts: parts_world.Make) -> None:
    world = make_parts(has_bucket=True, worker__close_seconds=75.0)
    entry.stop(world.parts, "")
    assert world.calls == ["saves end", "status", "bucket ends"]
    assert world.stops == [77.0]  # and more to end by themselves


def test_after_its_end_nothing_of_a_run_holds_the_devices_memory(make_parts: parts_world.Make) -> None:
    class Loop:
        def close(self) -> None:
            pass

        def look(self) -> counts.Snapshot:
            return counts.Snapshot(num_updates=7)

    world = make_parts()
    world.loop = Loop()
    world.build()
    held = weakref.ref(world.loop)
    del world.loop  # this test's own reference
    entry.stop(world.parts, "")
    assert world.progress.snapshot().num_updates == 7
    assert held() is None


def test_a_finished_run_brings_its_bucket_what_only_this_machine_has(make_parts: parts_world.Make) -> None:
    world = make_parts(has_bucket=True)
    world.saves.finished_before = lambda: "9 updates of --max_updates=9"
    world.parts.view.write_finished = world.calls.append  # type: ignore[method-assign]
    assert entry._hosted(world.parts, QUIET) == ("9 updates of --max_updates=9", True)
    assert world.calls == ["9 updates of --max_updates=9", "bucket begins"]


def test_the_status_of_a_run_that_continues_says_no_longer_that_it_is_finished(make_parts: parts_world.Make) -> None:
    told: list[str] = []

    def write(reason: str) -> None:
        told.append(reason)
        raise errors.TrainingFailure("enough is known")

    for resumed in (True, False):
        world = make_parts(resumed=resumed)
        world.saves.finished_before = lambda: ""
        world.parts.view.write_finished = write  # type: ignore[method-assign]
        with pytest.raises((errors.TrainingFailure, AttributeError)):
            entry._hosted(world.parts, QUIET)
    assert told == [""]  # a new run has no status yet


def test_a_resume_that_is_refused_at_once_leaves_the_settings_as_they_were(tmp_path: pathlib.Path) -> None:
    given = {"env.id": "catch", "worker.envs_per_group": 4, "replay.num_slots": 8, "training.num_devices": 1}
    small = configs.override(configs.Config(), given)
    with run_dirs.open_run_dir(tmp_path, small, preset="catch", given={}):
        (tmp_path / "checkpoints/steps/000000000001").mkdir(parents=True)
    before = (tmp_path / run_dirs.CONFIG_FILE).read_bytes()
    large = configs.override(small, {"worker.num": 4})
    begun = r"--replay\.num_slots=8.* 32 .*worker\.num_groups=2.*; this run keeps its slots: .*--run_dir"
    for path, told in ((tmp_path, begun), (tmp_path / "new", r"; give --replay\.num_slots=32")):
        with pytest.raises(errors.ConfigError, match=told):
            entry.train(run_dirs.SavedConfig("catch", {"worker.num": "4"}, large), path, "", QUIET)
    assert (tmp_path / run_dirs.CONFIG_FILE).read_bytes() == before


def _refused(path: pathlib.Path, given: dict[str, str]) -> None:
    config = configs.override(configs.Config(), {**given, "replay.num_slots": 8, "training.num_devices": 1})
    with pytest.raises(errors.ConfigError, match="is less than the 32 environments"):
        entry.train(run_dirs.SavedConfig("vector", given, config), path, "", QUIET)


def test_a_refused_start_remembers_no_own_run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    _refused(tmp_path / "run", {"env.id": "python:my_env:make"})
    assert not (tmp_path / "run").exists()
    assert not list((tmp_path / "state" / "seedzero" / "runs").iterdir())


def test_a_refused_resume_leaves_an_own_run_as_it_was(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    given = {"env.id": "python:my_env:make"}
    small = configs.override(configs.Config(), {**given, "replay.num_slots": 8, "training.num_devices": 1})
    small = configs.override(small, {"worker.envs_per_group": 4})
    with run_dirs.open_run_dir(tmp_path / "run", small, preset="vector", given=given) as directory:
        (directory.checkpoints / "steps/000000000001").mkdir(parents=True)
        assert own_runs.remember(directory.path, directory.saved) == ""
    _refused(tmp_path / "run", given)
    assert own_runs.run_doubt(tmp_path / "run", run_dirs.read_saved(tmp_path / "run")) is None
    _refused(tmp_path / "run", {**given, "vtrace.clip_c": "0.5"})
    assert own_runs.run_doubt(tmp_path / "run", run_dirs.read_saved(tmp_path / "run")) is None


DEADLINE_SECONDS = 600.0
URL = b"seedzero: the page of /runs/one: http://127.0.0.1:41235/ (Ctrl-C ends it)\n"


class Process(made_up.Process):
    """Ends by a kill, unless it has ended by itself."""

    pid = -1  # nobody's

    def __init__(self, *lines: bytes, status: int | None) -> None:
        super().__init__(*lines, status=status)
        self.was_killed = threading.Event()

    def kill_group(self) -> None:
        self.was_killed.set()
        self.end(-9)


class World:
    """Starts pages for a run."""

    def __init__(self, *lines: bytes, status: int | None = None, root: str = "") -> None:
        self._place = page_options.PagePlace(8000, root)
        self.process, self.commands = Process(*lines, status=status), list[Sequence[str]]()
        self.said, self.spoke = list[str](), threading.Event()

    def launch(self, command: Sequence[str]) -> programs.Process:
        self.commands.append(command)
        return self.process

    def say(self, text: str) -> None:
        self.said.append(text)
        self.spoke.set()

    def beside(self) -> Any:
        return entry.page_beside(pathlib.Path("/runs/one"), self._place, say=self.say, launch=self.launch)


def test_its_address_is_told_and_it_ends_with_the_run() -> None:
    world = World(URL)
    with world.beside():
        assert world.spoke.wait(DEADLINE_SECONDS) and not world.process.was_killed.is_set()
    assert world.process.was_killed.is_set()
    (text,) = world.said
    assert text == "the page of this run: http://127.0.0.1:41235/"
    assert world.commands[0][3:] == ["page", "--run_dir=/runs/one", "--port=8000", "--supervised"]


@pytest.mark.parametrize("starts", [True, False])
def test_its_death_is_a_line_and_no_end_of_training(starts: bool) -> None:
    world = World(b"seedzero: error: the page cannot listen on 127.0.0.1:8000: Address already in use\n", status=2)

    def fail(command: Sequence[str]) -> programs.Process:
        raise OSError(12, "Cannot allocate memory", "python")

    if not starts:
        world.launch = fail  # type: ignore[method-assign]
    with world.beside():
        assert world.spoke.wait(DEADLINE_SECONDS)
    (text,) = world.said
    cause = "exit code 2: seedzero: error: the page cannot listen on 127.0.0.1:8000: Address already in use"
    assert "training continues" in text and text.endswith(cause if starts else ": Cannot allocate memory: python")


def test_an_error_of_the_run_ends_the_page() -> None:
    world = World(URL)
    with pytest.raises(ZeroDivisionError), world.beside():
        raise ZeroDivisionError
    assert world.process.was_killed.is_set() or not world.commands


def test_the_page_is_told_its_root() -> None:
    world = World(URL, root="/proxy/8000")
    with world.beside():
        assert world.spoke.wait(DEADLINE_SECONDS)
    assert "--page.root=/proxy/8000" in world.commands[0]


def test_the_local_socket_lies_in_the_run_directory_if_it_can() -> None:
    with tempfile.TemporaryDirectory() as short:
        for _ in range(2):
            with entry.opened_socket(pathlib.Path(short), "127.0.0.1:0") as local:
                assert local == f"unix:{short}/learner.sock"
            with socket.socket(socket.AF_UNIX) as left:  # as a killed process may leave it
                left.bind(f"{short}/probe.sock")
        (pathlib.Path(short) / "probe.sock").unlink(missing_ok=True)
        (pathlib.Path(short) / "probe.sock").write_text("mine")
        with entry.opened_socket(pathlib.Path(short), "127.0.0.1:0") as local:
            assert not local.startswith(f"unix:{short}")
        assert (pathlib.Path(short) / "probe.sock").read_text() == "mine"
        with entry.opened_socket(pathlib.Path(short), "unix:/mine") as local:
            assert local == "unix:/mine"
        with entry.opened_socket(pathlib.Path(short), "unix:mine") as local:
            assert local == f"unix:{pathlib.Path('mine').absolute()}"
    for none in (pathlib.Path("/runs") / ("long" * 30), pathlib.Path("/proc"), pathlib.Path("/tmp/a,b")):
        with entry.opened_socket(none, "") as local:
            folder = addresses.unix_path(local).parent
            assert folder.is_dir() and folder != none
        assert not folder.exists()
