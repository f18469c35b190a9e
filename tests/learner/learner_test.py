"""The learner's parts that need no process; `tests/e2e` has the rest."""

from __future__ import annotations

import contextlib
import errno
import io
import pathlib
import socket
import sys
import tempfile
import types as python_types
import weakref
from concurrent import futures
from typing import Any, cast

import pytest

from seedzero.checkpoints import run_dir as run_dirs
from seedzero.checkpoints import spec_file
from seedzero.config import config as configs
from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.envs import registry
from seedzero.evaluation import evaluation
from seedzero.learner import ending as endings
from seedzero.learner import evaluator as evaluators
from seedzero.learner import learner
from seedzero.transport import address as addresses


def test_the_local_socket_lies_in_the_run_directory_unless_its_path_is_too_long_or_its_disk_has_none() -> None:
    with tempfile.TemporaryDirectory() as short:
        for _ in range(2):
            with learner.local_address(pathlib.Path(short), "127.0.0.1:0") as local:
                assert local == f"unix:{short}/learner.sock"
            with socket.socket(socket.AF_UNIX) as left:  # as a killed process may leave it
                left.bind(f"{short}/probe.sock")
        (pathlib.Path(short) / "probe.sock").unlink(missing_ok=True)
        (pathlib.Path(short) / "probe.sock").write_text("mine")
        with learner.local_address(pathlib.Path(short), "127.0.0.1:0") as local:
            assert not local.startswith(f"unix:{short}")
        assert (pathlib.Path(short) / "probe.sock").read_text() == "mine"
        with learner.local_address(pathlib.Path(short), "unix:/mine") as local:
            assert local == "unix:/mine"
        with learner.local_address(pathlib.Path(short), "unix:mine") as local:
            assert local == f"unix:{pathlib.Path('mine').absolute()}"
    for none in (pathlib.Path("/runs") / ("long" * 30), pathlib.Path("/proc")):
        with learner.local_address(none, "") as local:
            folder = addresses.unix_path(local).parent
            assert folder.is_dir() and folder != none
        assert not folder.exists()


class World:
    """A learner of which `_prepare`, `_train` and `_stop` are real, and a log of what they do."""

    def __init__(self, tmp_path: pathlib.Path, spec: types.EnvSpec | None, *, loop: Any = None) -> None:
        self.calls: list[str] = []
        self.said: list[str] = []
        self.ending = endings.Ending()
        self.seconds_left = 1.0
        loop = loop or python_types.SimpleNamespace(close=lambda: self.calls.append("close"))

        def build() -> None:
            self.calls.append("build")
            self.learner._loop = loop

        def wait(_: float) -> None:
            self.calls.append("wait")
            self.seconds_left = 0.0
            self.news()

        self.news: Any = lambda: None
        self.learner: Any = python_types.SimpleNamespace(
            _reception=python_types.SimpleNamespace(spec=spec, has_begun=False, has_trained=False),
            _config=configs.Config(),
            _directory=python_types.SimpleNamespace(path=tmp_path),
            _loop=None,
            _ending=python_types.SimpleNamespace(is_interrupted=False, wait=wait, check=self.ending.check),
            _build=build,
            _seconds_left=lambda: self.seconds_left,
            _workers=python_types.SimpleNamespace(finish=lambda: None, stop=lambda seconds: None),
            _server=python_types.SimpleNamespace(stop=lambda finished, reason: None),
            _view=python_types.SimpleNamespace(
                write_status=lambda alive: None,
                progress=python_types.SimpleNamespace(read=lambda: loop, snapshot=lambda: "counters"),
            ),
            _saves=python_types.SimpleNamespace(
                checkpointer=python_types.SimpleNamespace(busy=True, close=lambda: self.calls.append("saves end"))
            ),
            _screen=python_types.SimpleNamespace(message=self.said.append),
            _mirrored=None,
        )
        self.learner._lonely = lambda: learner._Learner._lonely(self.learner)
        self.learner._end_saves = lambda: learner._Learner._end_saves(self.learner)
        self.learner._prepare = lambda address: learner._Learner._prepare(self.learner, address)

    def joins(self) -> None:
        """A worker's environments are there."""
        self.learner._reception.spec = self.learner._reception.spec or CATCH
        self.learner._reception.has_begun = True


CATCH = registry.spec(sections.EnvConfig(id="catch"))


@pytest.mark.parametrize(("spec", "order"), [(CATCH, ["build", "wait"]), (None, ["wait", "build"])])
def test_networks_are_built_while_workers_start_where_their_spec_is_known(
    tmp_path: pathlib.Path, spec: types.EnvSpec | None, order: list[str]
) -> None:
    world = World(tmp_path, spec)
    world.news = world.joins
    learner._Learner._prepare(world.learner, "unix:/nowhere")
    assert world.calls == order
    assert spec_file.read(tmp_path) == CATCH


@pytest.mark.parametrize("spec", [CATCH, None])
def test_a_run_whose_workers_never_come_fails_by_name_and_keeps_no_spec(
    tmp_path: pathlib.Path, spec: types.EnvSpec | None
) -> None:
    world = World(tmp_path, spec)
    with pytest.raises(errors.TrainingFailure, match="no worker joined"):
        learner._Learner._train(world.learner, "unix:/nowhere")
    assert spec_file.read(tmp_path) is None
    world.ending.fail("the worker failed")
    with pytest.raises(errors.TrainingFailure, match="the worker failed"):
        learner._Learner._prepare(world.learner, "unix:/nowhere")


@pytest.mark.parametrize(
    ("resumed", "has_trained", "seconds_left", "fails"),
    [(False, False, 0.0, True), (False, False, 1.0, False), (False, True, 0.0, False), (True, False, 0.0, False)],
)
def test_a_worker_that_only_evaluates_is_none_that_learns(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    resumed: bool,
    has_trained: bool,
    seconds_left: float,
    fails: bool,
) -> None:
    world = World(tmp_path, CATCH)
    world.seconds_left = seconds_left
    world.learner._build()
    world.learner._directory.resumed = resumed
    world.learner._reception = python_types.SimpleNamespace(has_trained=has_trained)
    world.learner._ending.notify = lambda: None
    world.learner._keep_time = lambda loop, over: None
    world.learner._finish = lambda loop, reason: reason
    over = futures.Future[str]()
    over.set_result("--max_seconds=60 passed")
    monkeypatch.setattr(learner.device_loop, "running", lambda loop, on_end: contextlib.nullcontext(over))
    with pytest.raises(errors.TrainingFailure, match="no worker joined") if fails else contextlib.nullcontext():
        assert learner._Learner._train(world.learner, "unix:/nowhere") == "--max_seconds=60 passed"


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_status_is_written_while_a_run_goes_on_also_where_updates_are_its_time(deterministic: bool) -> None:
    calls: list[str] = []
    over = futures.Future[str]()

    def write_status(*, alive: bool) -> None:
        calls.append("status")
        over.set_result("")

    keeping: Any = python_types.SimpleNamespace(
        _config=python_types.SimpleNamespace(
            run=python_types.SimpleNamespace(deterministic=deterministic),
            metrics=python_types.SimpleNamespace(every_seconds=0.0),
            checkpoint=python_types.SimpleNamespace(every_seconds=0.0),
        ),
        _directory=python_types.SimpleNamespace(check_ours=lambda: calls.append("ours")),
        _ending=python_types.SimpleNamespace(wait=lambda seconds: None, failure=None),
        _saves=python_types.SimpleNamespace(checkpointer=python_types.SimpleNamespace(busy=True)),
        _seconds_left=lambda: 1.0,
        _view=python_types.SimpleNamespace(
            observe=lambda now: None, write_row=lambda row: calls.append("row"), write_status=write_status
        ),
    )
    learner._Learner._keep_time(keeping, keeping, over)
    assert calls == (["ours", "status"] if deterministic else ["ours", "row", "status"])


@pytest.mark.parametrize("resumed", [False, True])
def test_a_run_that_is_stopped_before_its_workers_come_compiles_no_more(tmp_path: pathlib.Path, resumed: bool) -> None:
    world = World(tmp_path, CATCH)
    if resumed:
        world.learner._build()
    world.learner._ending.is_interrupted = True
    assert learner._Learner._train(world.learner, "unix:/nowhere") == ""
    learner._Learner._stop(world.learner, "")
    assert world.calls == ["build", "close", "saves end"]
    assert spec_file.read(tmp_path) is None


def test_in_the_end_the_checkpoint_in_progress_is_waited_for_before_the_bucket_is_given_up(
    tmp_path: pathlib.Path,
) -> None:
    def lose() -> None:
        raise RuntimeError("the device is gone")

    world = World(tmp_path, CATCH)
    world.learner._mirrored = python_types.SimpleNamespace(finish=lambda: world.calls.append("bucket ends"))
    learner._Learner._stop(world.learner, "")
    assert world.calls == ["saves end", "bucket ends"]
    world.learner._saves.checkpointer.close = lose  # the failure that ended training is the one to be raised
    learner._Learner._stop(world.learner, "")
    assert world.said[-1] == "the checkpoint in progress was lost: RuntimeError: the device is gone"


def test_after_its_end_nothing_of_a_run_holds_the_devices_memory(tmp_path: pathlib.Path) -> None:
    class Loop:
        def close(self) -> None:
            pass

    world = World(tmp_path, CATCH, loop=Loop())
    world.learner._build()
    held = weakref.ref(world.learner._loop)
    del world.learner._build  # this test's own reference
    learner._Learner._stop(world.learner, "")
    assert world.learner._view.progress.read() == "counters"
    assert held() is None


@pytest.mark.parametrize(("resumed", "knows", "order"), [
    (False, False, ["show"]), (True, False, ["show", "build"]), (True, True, ["show", "build"]),
])  # fmt: skip
def test_a_resumed_run_is_built_before_workers_can_join_also_without_its_spec_file(
    tmp_path: pathlib.Path, resumed: bool, knows: bool, order: list[str]
) -> None:
    world = World(tmp_path, None)
    if knows:
        spec_file.write(tmp_path, CATCH)
    world.learner._directory.resumed, world.learner._expected = resumed, CATCH
    world.learner._reception.show = lambda spec: world.calls.append("show")
    learner._Learner._show_spec(world.learner)
    assert world.calls == order
    assert (spec_file.read(tmp_path) == CATCH) == resumed


def test_a_resume_that_is_refused_at_once_leaves_the_settings_as_they_were(tmp_path: pathlib.Path) -> None:
    given = {"env.id": "catch", "worker.envs_per_group": 4, "replay.num_slots": 8, "training.num_devices": 1}
    small = configs.override(configs.Config(), given)
    with run_dirs.open_run_dir(tmp_path, small, preset="catch", given={}):
        (tmp_path / "checkpoints/steps/000000000001").mkdir(parents=True)
    before = (tmp_path / run_dirs.CONFIG_FILE).read_bytes()
    large = configs.override(small, {"worker.num": 4})
    with pytest.raises(errors.ConfigError, match="is less than the 32 environments"):
        learner.train(large, tmp_path, "", preset="catch", given={"worker.num": "4"}, handles_signals=False)
    assert (tmp_path / run_dirs.CONFIG_FILE).read_bytes() == before


def test_an_address_that_is_taken_ends_compilations_too(tmp_path: pathlib.Path) -> None:
    def refuse() -> str:
        raise errors.UsageError("in use")

    world = World(tmp_path, CATCH)
    world.learner._build()
    world.learner._server.start = refuse
    with pytest.raises(errors.UsageError, match="in use"):
        learner._Learner._listen(world.learner)
    assert world.calls == ["build", "close"]


@pytest.mark.parametrize("durable", [100, None])
@pytest.mark.parametrize(("deterministic", "failure"), [(False, True), (True, True), (True, False)])
def test_a_deterministic_run_that_failed_is_not_saved_between_its_fixed_updates(
    tmp_path: pathlib.Path, deterministic: bool, failure: bool, durable: int | None
) -> None:
    calls: list[str] = []
    said: list[str] = []
    ended = endings.Ending()
    if failure:
        ended.fail("the worker failed")
    wait = python_types.SimpleNamespace(wait=lambda: None)
    saving: Any = python_types.SimpleNamespace(
        _config=configs.override(configs.Config(), {"run.deterministic": deterministic}),
        _ending=ended,
        _mirrored=None,
        _save=lambda: calls.append("save"),
        _saves=python_types.SimpleNamespace(checkpointer=wait, check=lambda: None),
        _screen=python_types.SimpleNamespace(message=said.append),
        _view=python_types.SimpleNamespace(
            write_row=lambda row: None,
            observe=lambda now, last: None,
            durable_update=durable,
            progress=python_types.SimpleNamespace(),
        ),
    )
    with pytest.raises(errors.TrainingFailure) if failure else contextlib.nullcontext():
        learner._Learner._finish(saving, saving, "stopped")
    assert calls == ([] if deterministic and failure else ["save"])
    goes_on = "goes on from update 100" if durable else "first checkpoint comes at update 1000, so nothing is saved"
    assert [goes_on in text for text in said] == ([True] if deterministic and failure else [])


def test_a_signal_while_the_last_state_is_saved_does_not_abandon_it() -> None:
    calls: list[str] = []
    saves = python_types.SimpleNamespace(
        abandon=lambda: calls.append("abandon"),
        checkpointer=python_types.SimpleNamespace(wait=lambda: calls.append("wait")),
        check=lambda: None,
    )
    saving: Any = python_types.SimpleNamespace(
        _config=python_types.SimpleNamespace(run=python_types.SimpleNamespace(deterministic=False)),
        _ending=endings.Ending(),
        _is_finishing=False,
        _loop=python_types.SimpleNamespace(stop=lambda reason: None),
        _mirrored=None,
        _save=lambda: learner._Learner._interrupt(saving),
        _saves=saves,
        _view=python_types.SimpleNamespace(
            write_row=lambda row: None, observe=lambda now, last: None, progress=python_types.SimpleNamespace()
        ),
        _workers=python_types.SimpleNamespace(finish=lambda: None),
    )
    learner._Learner._interrupt(saving)
    assert calls == ["abandon"]
    assert learner._Learner._finish(saving, saving._loop, "--max_updates=6 reached") == "--max_updates=6 reached"
    assert calls == ["abandon", "wait", "wait"]


def test_training_goes_on_though_its_address_cannot_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    written: list[str] = []
    starting: Any = python_types.SimpleNamespace(
        _config=configs.Config(),
        _screen=python_types.SimpleNamespace(message=lambda text: None),
        _directory=python_types.SimpleNamespace(write_learner=lambda address, started, local: written.append(address)),
        _local="unix:/nowhere",
    )
    monkeypatch.setattr(sys, "stdout", Full())
    learner._Learner._announce(starting, "unix:/nowhere")
    assert written == ["unix:/nowhere"]


def test_a_row_of_an_evaluation_has_the_steps_of_its_parameters() -> None:
    rows: list[Any] = []
    owner = python_types.SimpleNamespace(
        _view=python_types.SimpleNamespace(write_row=lambda values, gathered: rows.append(values)),
        _screen=python_types.SimpleNamespace(message=lambda text: None),
    )
    running = python_types.SimpleNamespace(update=3, env_steps=40)
    result = evaluation.Scores(2, 1.0, 0.0, 1.0, 1.0, 5.0)
    ended = evaluators.Ended(cast(Any, running), result, None, is_best=False, is_record=False, cut_short=False)
    learner._Learner._evaluated(cast(Any, owner), ended)
    (row,) = rows
    assert (row["update"], row["env_steps"], row["kind"], row["evaluation_mean_return"]) == (3, 40, "evaluation", 1.0)


@pytest.mark.parametrize(
    ("is_record", "unfinished", "told"),
    [
        (False, 0, "5 episodes"),
        (True, 0, "5 episodes; the best so far"),
        (False, 15, "5 episodes; cut, as 15 more had not ended in time: give it more, or "),
    ],
)
def test_an_evaluation_says_whether_it_beats_all_before_or_was_cut(
    is_record: bool, unfinished: int, told: str
) -> None:
    messages: list[str] = []
    owner = python_types.SimpleNamespace(
        _view=python_types.SimpleNamespace(write_row=lambda values, gathered: None),
        _screen=python_types.SimpleNamespace(message=messages.append),
        _saves=python_types.SimpleNamespace(save_best=lambda ended: None),
    )
    running = python_types.SimpleNamespace(update=3, env_steps=40)
    result = evaluation.Scores(5, 1.0, 0.0, 1.0, 1.0, 5.0, unfinished=unfinished)
    best = not unfinished  # higher than all but the baseline, which alone is no record
    ended = evaluators.Ended(cast(Any, running), result, None, best, is_record, cut_short=bool(unfinished))
    learner._Learner._evaluated(cast(Any, owner), ended)
    (message,) = messages
    assert message.startswith("evaluation at update 3: return 1 +- 0 over ") and told in message
    assert message.endswith(told) or unfinished


def _loop(pulse: int | None, num_updates: int = 25) -> Any:
    return python_types.SimpleNamespace(
        pulse=lambda: pulse, look=lambda: python_types.SimpleNamespace(num_updates=num_updates)
    )


@pytest.mark.parametrize(
    ("loop", "resumed", "durable", "lost"),
    [
        (None, False, None, "nothing was learned"),
        (None, True, None, "the run is as it was"),
        (_loop(3), False, None, "there is no checkpoint; updates lost: 25"),
        (_loop(3), True, 20, "the newest checkpoint is of update 20; updates lost: 5"),
    ],
)
def test_a_process_that_leaves_at_once_kills_its_workers_and_says_what_is_lost(
    loop: Any, resumed: bool, durable: int | None, lost: str
) -> None:
    calls: list[str] = []
    leaving: Any = python_types.SimpleNamespace(
        _workers=python_types.SimpleNamespace(kill=lambda: calls.append("kill")),
        _screen=python_types.SimpleNamespace(abandon=calls.append),
        _loop=loop,
        _directory=python_types.SimpleNamespace(resumed=resumed),
        _view=python_types.SimpleNamespace(durable_update=durable),
    )
    leaving._lost = lambda: learner._Learner._lost(leaving)
    learner._Learner._leave_at_once(leaving, "left at once")
    assert calls == ["kill", f"left at once; {lost}"]


@pytest.mark.parametrize(
    ("loop", "is_building", "is_finishing", "pulse"),
    [
        (None, False, False, None),  # waiting for the first worker
        (None, True, False, "building"),
        (_loop(7), False, False, 7),
        (_loop(None), False, False, None),
        (_loop(7), False, True, None),  # saving
    ],
)
def test_only_building_and_calls_on_the_device_are_ended_by_force(
    loop: Any, is_building: bool, is_finishing: bool, pulse: object
) -> None:
    ending: Any = python_types.SimpleNamespace(_loop=loop, _is_building=is_building, _is_finishing=is_finishing)
    assert learner._Learner._pulse(ending) == pulse
