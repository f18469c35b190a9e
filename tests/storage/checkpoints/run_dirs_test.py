"""Making, locking and resuming a run directory."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from seedzero.config import configs, options, presets, sections
from seedzero.core import errors, types
from seedzero.storage.checkpoints import run_dirs


def open_with(
    path: pathlib.Path,
    values: Mapping[str, options.Value] | None = None,
    *,
    chosen: Mapping[str, options.Value] | None = None,
    preset: str = "catch",
) -> run_dirs.RunDir:
    """Opens with what a user gives and what the machine chooses, and leaves a checkpoint there."""
    given = values or {}
    config = configs.override(configs.Config(), {**(chosen or {}), **given})
    run = run_dirs.open_run_dir(path, config, preset=preset, given=given)
    (run.checkpoints / "steps" / "000000000001").mkdir(parents=True, exist_ok=True)
    return run


def test_first_opening_makes_the_directory_and_saves_the_configuration(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "runs" / "one"
    with open_with(path, {"seed": 3}) as run:
        assert not run.resumed and run.notes == ()
        assert run.config.run.seed == 3
        assert run.logs.is_dir() and run.checkpoints.is_dir()
    saved = run_dirs.read_saved(path)
    assert saved.preset == "catch" and saved.given == {"run.seed": "3"}
    assert saved.config == run.config
    assert not list(path.glob("*.tmp"))


def test_configuration_with_infinity_is_strict_json_and_reads_back(tmp_path: pathlib.Path) -> None:
    open_with(tmp_path).close()
    content = json.loads((tmp_path / "config.json").read_text(), parse_constant=pytest.fail)
    assert content["config"]["run.stop_at_return"] == "inf"
    assert run_dirs.read_saved(tmp_path).config.run.stop_at_return == math.inf


@pytest.mark.parametrize("rest", ["", "000000000100.ab12cd34.tmp/state", "000000000100.ab12cd34.trash", "writable"])
def test_a_start_that_was_refused_or_killed_binds_nobody_to_its_settings(tmp_path: pathlib.Path, rest: str) -> None:
    """rest: what a kill leaves of the first checkpoint."""
    run_dirs.open_run_dir(tmp_path, configs.Config(), preset="catch", given={}).close()
    (tmp_path / "checkpoints" / "steps" / rest).mkdir(parents=True)
    with open_with(tmp_path, {"replay.capacity": 70_000}) as run:
        assert not run.resumed and run.config.replay.capacity == 70_000


FOREIGN = {
    "config.json": ['{"model_type": "bert"}', "[1, 2]", "not JSON"],
    "metrics.jsonl": ["{}"],
    "league.jsonl": ["{}"],
    "spec.json": ["{}"],
    "status.json": ["{}"],
    "checkpoints/best/epoch-3/model.pt": ["weights"],
    "checkpoints/steps/100/model.pt": ["weights"],
    "checkpoints/segments/mine/rows": ["mine"],
}


@pytest.mark.parametrize(("name", "content"), [(name, text) for name, texts in FOREIGN.items() for text in texts])
def test_a_directory_with_files_of_something_else_is_refused_and_keeps_them(
    name: str, content: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(content)
    (tmp_path / "lock").write_text("of another program")
    there = sorted(tmp_path.rglob("*"))
    told = "config.json is not that of a run" if name == "config.json" else f"it has {name.rpartition('/')[0] or name}"
    with pytest.raises(errors.ResumeError, match=rf"{re.escape(str(tmp_path))} .*{told}.*empty --run_dir"):
        open_with(tmp_path)
    assert (tmp_path / name).read_text() == content and sorted(tmp_path.rglob("*")) == there
    assert (tmp_path / "lock").read_text() == "of another program"


def test_a_refused_start_after_a_kill_leaves_a_directory_that_the_next_start_takes(tmp_path: pathlib.Path) -> None:
    for _ in range(2):
        with run_dirs.open_run_dir(tmp_path, configs.Config(), preset="catch", given={}) as run:
            (tmp_path / "metrics.jsonl").write_text("{}")  # as a start that is killed then
            run.abandon()


def test_a_run_goes_on_with_its_only_checkpoint_that_a_kill_took_from_its_place(tmp_path: pathlib.Path) -> None:
    open_with(tmp_path, {"seed": 3}).close()
    (only,) = (tmp_path / "checkpoints" / "steps").iterdir()
    only.rename(only.with_name(f"{only.name}.12345678.replaced"))
    with open_with(tmp_path, {"seed": 3}) as run:
        assert run.resumed and only.is_dir()


def test_files_of_something_else_that_a_run_does_not_write_may_stay(tmp_path: pathlib.Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "checkpoints").mkdir()
    with run_dirs.open_run_dir(tmp_path, configs.Config(), preset="catch", given={}) as run:
        run.abandon()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_run_without_an_end_gets_none_unless_the_user_names_it_or_another_preset(tmp_path: pathlib.Path) -> None:
    by_default = {"run.stop_at_return": 200.0, "run.max_env_steps": 5}
    for name, value in by_default.items():
        open_with(tmp_path / name).close()
        with open_with(tmp_path / name, chosen={name: value}) as run:
            assert run.config == configs.Config()
            assert len(run.notes) == 1 and configs.flag(name) in run.notes[0]
        with open_with(tmp_path / name, {name: value}) as run:
            assert configs.flatten(run.config)[name] == value
    open_with(tmp_path / "other").close()
    with open_with(tmp_path / "other", chosen=by_default, preset="cartpole") as run:
        assert run.config.run.stop_at_return == 200.0


def test_an_end_by_default_that_a_run_began_with_goes_where_another_is_named(tmp_path: pathlib.Path) -> None:
    open_with(tmp_path, chosen={"run.stop_at_return": 200.0}).close()
    with open_with(tmp_path, {"run.max_env_steps": 5}) as run:
        assert math.isinf(run.config.run.stop_at_return)


def test_a_setting_of_learning_changes_only_where_a_resume_names_it(tmp_path: pathlib.Path) -> None:
    open_with(tmp_path, {"optimizer.learning_rate": 1e-3}).close()
    with open_with(tmp_path) as run:
        assert run.config.optimizer.learning_rate == 1e-3
        (note,) = run.notes
        assert re.match("--optimizer.learning_rate .* 0.001 .* 0.002", note)
    with open_with(tmp_path, {"optimizer.learning_rate": 5e-4, "muzero.n_step": 3}) as run:
        assert (run.config.optimizer.learning_rate, run.config.muzero.n_step) == (5e-4, 3)
        assert any(re.match("--optimizer.learning_rate .* 0.001, .* 0.0005 ", note) for note in run.notes)
    with open_with(tmp_path, preset="cartpole") as run:
        assert (run.config.optimizer.learning_rate, run.config.muzero.n_step) == (5e-4, 3)


def test_what_shapes_or_means_stored_data_is_fixed() -> None:
    fixed = {name for name, field in configs.fields().items() if not field.metadata["resumable"]}
    shapes = {"network.width", "replay.capacity", "search.num_sampled", "muzero.value_prefix", "network.lstm_width"}
    meanings = {"env.id", "env.kwargs", "reward.discount", "network.value_transform"}
    assert shapes | meanings <= fixed
    others = {name for name in fixed if name.startswith(("optimizer.", "evaluation.", "explore."))}
    # Each kind of optimizer has a state of its own, and the best checkpoint has the best score of one policy.
    assert others == {"optimizer.kind", "evaluation.policy"}


def _other(name: str) -> options.Value:
    """Returns a value of a setting that is not its default, and allowed beside the defaults of all others."""
    field = configs.fields()[name]
    default, about = field.default, field.metadata
    if isinstance(default, bool):
        return not default
    if isinstance(default, str):
        choices = about["choices"] or (configs.agent_names() if name == "run.agent" else [f"{default}x"])
        return next(choice for choice in choices if choice != default)
    for value in (2 * default + 1, default / 2 if isinstance(default, float) else default // 2, 0, 1, 0.1):
        with contextlib.suppress(errors.ConfigError):
            if value != default:
                configs.override(configs.Config(), {name: value})
                return type(default)(value)
    raise AssertionError(name)


@pytest.mark.thorough
@pytest.mark.parametrize("is_given", [True, False], ids=["given", "chosen by the machine"])
def test_every_changed_setting_is_taken_refused_or_kept_by_name(
    is_given: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    open_with(tmp_path).close()
    saved = (tmp_path / "config.json").read_bytes()
    outcomes = set()
    for name, field in configs.fields().items():
        if name in sections.OF_A_PROCESS:
            continue
        new, flag = {name: _other(name)}, re.escape(configs.flag(name))
        old, kind = configs.flatten(configs.Config())[name], field.metadata["resumable"]
        (tmp_path / "config.json").write_bytes(saved)
        if kind == "" and is_given:
            with pytest.raises(errors.ResumeError, match=rf"  {flag}: saved .*, given "):
                open_with(tmp_path, new)
            assert (tmp_path / "config.json").read_bytes() == saved
            outcomes.add("refused")
            continue
        is_taken = is_given or (kind == options.ANY_TIME and name not in presets.NO_END)
        with open_with(tmp_path, new if is_given else {}, chosen=new) as run:
            assert configs.flatten(run.config)[name] == (new[name] if is_taken else old), name
            (note,) = run.notes
            assert run_dirs.read_saved(tmp_path).config == run.config
        assert re.match(rf"{flag} was .* from now on$" if is_taken else rf"{flag} stays ", note), note
        outcomes.add("taken" if is_taken else "kept")
    assert outcomes == ({"taken", "refused"} if is_given else {"taken", "kept"})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"env.id": "python:gone:make"}, {"env.id": "python:envs.gone:make"}),
        ({"env.id": "spiel:gone:duel(n=3)"}, {"env.id": "spiel:games:duel(n=3)"}),
        ({"network.module": "a.gone:make"}, {"network.module": "a.b.net:make"}),
        (
            {"env.id": "gym:gone:E-v0", "network.module": "gone:make"},
            {"env.id": "gym:e:E-v0", "network.module": "n:make"},
        ),
    ],
)
def test_a_resume_takes_the_new_name_of_a_module_that_moved(
    tmp_path: pathlib.Path, old: dict[str, str], new: dict[str, str]
) -> None:
    open_with(tmp_path, {**old, "run.seed": 3}).close()
    with open_with(tmp_path, {**new, "run.seed": 3}) as run:
        told = [f"{configs.flag(name)} is {value} from now on: its module has moved" for name, value in new.items()]
        assert run.resumed and sorted(run.notes) == sorted(told)
    saved = run_dirs.read_saved(tmp_path)
    assert saved.given == {**new, "run.seed": "3"}
    assert {name: configs.flatten(saved.config)[name] for name in new} == new


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("python:gone:make", "python:envs.gone:other"),
        ("python:gone:make", "gym:envs.gone:make"),
        ("gym:CartPole-v1", "gym:gone:CartPole-v1"),
        ("python:fake_gcs:FakeGcs", "python:gone:FakeGcs"),
        ("python:seedzero.core.errors:Error", "python:gone:Error"),
    ],
)
def test_another_object_or_a_module_that_is_still_here_has_not_moved(
    tmp_path: pathlib.Path, old: str, new: str
) -> None:
    open_with(tmp_path, {"env.id": old}).close()
    with pytest.raises(errors.ResumeError, match=r"saved .*, given "):
        open_with(tmp_path, {"env.id": new})


SLOTS = "replay.num_slots"


@pytest.mark.parametrize(
    ("before", "then", "refusal"),
    [
        (dict(values={"seed": 3}), dict(values={"seed": 3}), ""),
        (dict(values={"seed": 3}), {}, "--seed: saved 3, given 0"),
        (dict(chosen={SLOTS: 32}), dict(values={SLOTS: 32}), ""),  # given as the machine chose it
        (dict(chosen={SLOTS: 32}), dict(values={SLOTS: 64}), r"replay\.num_slots: saved 32, given 64"),
        (dict(chosen={"network.width": 32}), dict(chosen={"network.width": 64}, preset="cartpole"), r"network\.width"),
        (
            dict(values={"seed": 3}),
            dict(values={"seed": 4, "network.width": 32, "workers": 7}),
            "--seed: saved 3, given 4(?s:.*)--network.width: saved 64, given 32(?s:.*)--run_dir",
        ),
    ],
)
def test_a_resume_is_refused_where_a_value_that_somebody_gave_differs(
    before: dict[str, Any], then: dict[str, Any], refusal: str, tmp_path: pathlib.Path
) -> None:
    open_with(tmp_path, **before).close()
    saved = (tmp_path / "config.json").read_bytes()
    if refusal:
        with pytest.raises(errors.ResumeError, match=refusal) as refused:
            open_with(tmp_path, **then)
        assert "worker" not in str(refused.value)  # the number of workers may change
        assert (tmp_path / "config.json").read_bytes() == saved
        open_with(tmp_path, **before).close()  # the directory is free
        return
    with open_with(tmp_path, **then) as run:
        assert run.resumed and run.notes == ()
    with open_with(tmp_path, **before) as run:
        assert run.resumed and run.notes == ()


def test_what_another_machine_would_choose_stays_as_it_was(tmp_path: pathlib.Path) -> None:
    open_with(tmp_path, {"seed": 3}, chosen={"replay.num_slots": 32, "training.num_devices": 4}).close()
    for _ in range(2):  # the first values survive a resume
        with open_with(tmp_path, {"seed": 3}, chosen={"replay.num_slots": 64, "training.num_devices": 1}) as run:
            assert run.config.replay.num_slots == 32 and run.config.training.num_devices == 4
            assert re.match("--replay.num_slots .* 32 .* 64", run.notes[0])
    assert run_dirs.read_saved(tmp_path).config.replay.num_slots == 32
    chosen = {"replay.num_slots": 32, "training.num_devices": 2}
    with open_with(tmp_path, {"seed": 3, "training.num_devices": 2}, chosen=chosen) as run:  # somebody asks for it
        assert run.config.training.num_devices == 2 and "num_devices was 4, is 2 from now on" in run.notes[0]


def test_devices_that_cannot_share_the_rings_are_refused_before_a_save(tmp_path: pathlib.Path) -> None:
    chosen = {"replay.num_slots": 20, "training.num_devices": 8, "replay.batch_size": 120}
    open_with(tmp_path, {"training.acting_devices": 4}, chosen=chosen).close()
    with pytest.raises(errors.ConfigError, match=r"num_slots=20 .*acting_devices=2 or 4 or 5"):
        open_with(tmp_path, {"training.acting_devices": 0}, chosen={**chosen, "replay.num_slots": 24})
    assert run_dirs.read_saved(tmp_path).config.training.acting_devices == 4
    open_with(tmp_path, {"training.acting_devices": 2}, chosen=chosen).close()


def test_a_run_of_an_earlier_version_keeps_its_rings(tmp_path: pathlib.Path) -> None:
    open_with(tmp_path, chosen={"replay.num_slots": 1024}).close()
    file = tmp_path / "config.json"
    content = json.loads(file.read_text())
    del content["config"]["replay.num_envs"]
    file.write_text(json.dumps(content))
    for _ in range(2):
        with open_with(tmp_path, chosen={"replay.num_slots": 512, "replay.num_envs": 256}) as run:
            assert run.config.replay.num_sharing == 1024
    with pytest.raises(errors.ResumeError, match=r"replay\.num_envs: saved 0, given 256"):
        open_with(tmp_path, {"replay.num_envs": 256})


def test_a_refused_start_deletes_what_it_made_and_nothing_else(tmp_path: pathlib.Path) -> None:
    empty, with_logs = tmp_path / "empty", tmp_path / "with_logs"
    for path in (empty, with_logs):
        with run_dirs.open_run_dir(path, configs.Config(), preset="catch", given={}) as run:
            (run.logs / run_dirs.LEARNER_LOG).write_text("a refusal, which the console shows, too")
            if path is with_logs:
                (run.logs / "local-0.log").write_text("a reason")
            run.abandon()
    assert not empty.exists()
    assert {file.name for file in with_logs.iterdir()} == {"logs", "checkpoints", "config.json", "lock"}
    open_with(tmp_path / "run").close()
    with open_with(tmp_path / "run") as run:
        assert run.resumed
        run.abandon()
        assert run.is_ours() and run.logs.exists()


def test_a_refused_resume_leaves_the_settings_as_they_were(tmp_path: pathlib.Path) -> None:
    open_with(tmp_path).close()
    before = (tmp_path / "config.json").read_bytes()
    with open_with(tmp_path, {"worker.num": 3}) as run:
        assert (tmp_path / "config.json").read_bytes() != before
        run.abandon()
    assert (tmp_path / "config.json").read_bytes() == before


def test_a_disk_that_does_not_answer_is_no_lost_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(path: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    with open_with(tmp_path) as run, monkeypatch.context() as patch:
        patch.setattr(os, "stat", stale)
        assert run.is_ours()
        patch.undo()
        patch.setattr(os, "fstat", stale)  # the locked file itself is gone
        assert not run.is_ours()


def test_a_program_may_change_its_directory_after_it_has_named_the_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_with(pathlib.Path("run")) as run:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        run.check_ours()
        assert run.write_status({"updates": 1}) is None
    assert run.path == tmp_path / "run" and (tmp_path / "run" / "status.json").exists()


@pytest.mark.parametrize("replaced", [False, True])
def test_learner_of_a_deleted_directory_notices_and_leaves_another_ones_files(
    tmp_path: pathlib.Path, replaced: bool
) -> None:
    path = tmp_path / "run"
    with contextlib.ExitStack() as other:
        with open_with(path) as run:
            run.check_ours()
            shutil.rmtree(path)
            if replaced:
                other.enter_context(open_with(path)).write_learner("127.0.0.1:5000", 12.5)
            with pytest.raises(errors.TrainingFailure, match=f"{path} "):
                run.check_ours()
            assert run.write_status({"updates": 1}) is None
        assert run_dirs.read_status(path) is None
        assert (run_dirs.read_learner(path) is not None) == replaced


def test_learner_killed_at_once_leaves_the_directory_free(tmp_path: pathlib.Path) -> None:
    script = (
        "from seedzero.config import configs as config; from seedzero.storage.checkpoints import run_dirs as run_dir\n"
        f"run = run_dir.open_run_dir({str(tmp_path)!r}, config.Config(), preset='catch', given={{}})\n"
        "(run.checkpoints / 'steps' / '000000000001').mkdir(parents=True)\n"
        "print('open', flush=True); input()"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "open\n"
        told = f"^{re.escape(str(tmp_path))} is in use .* pid {child.pid};.*--run_dir"
        with pytest.raises(errors.Occupied, match=told):
            open_with(tmp_path)
        child.kill()
        child.wait()
    with open_with(tmp_path) as run:
        assert run.resumed


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """Root may write anywhere; nobody may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def read_only_path() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name)
        path.chmod(0o555)
        yield path
        path.chmod(0o755)


def test_read_only_directory_is_refused(read_only_path: pathlib.Path) -> None:
    with without_privileges():
        with pytest.raises(errors.ResumeError, match=r"Permission denied; .*--run_dir=DIR"):
            open_with(read_only_path)
        with pytest.raises(errors.ResumeError, match="Permission denied"):
            open_with(read_only_path / "new")


def test_read_saved_says_what_is_no_run_directory(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.ResumeError, match=r"config\.json.*--run_dir=DIR"):
        run_dirs.read_saved(tmp_path)
    with pytest.raises(errors.ResumeError, match=r"/missing .*--run_dir=DIR"):
        run_dirs.read_saved(tmp_path / "missing")
    (tmp_path / "file").touch()
    for use in (run_dirs.read_saved, open_with):
        with pytest.raises(errors.ResumeError, match=r"/file .*--run_dir=DIR"):
            use(tmp_path / "file")


DAMAGED = ["", "{", "[]", "null", "[" * 100_000, '{"preset": "catch"}']
DAMAGED += ['{"preset": "", "given": {}, "config": 1}', '{"format": 2, "preset": "", "given": null, "config": {}}']
OTHER = '{"preset": "catch", "given": {}, "config": {"evaluation.policy": "best"}}'
DAMAGE = [*((text, "is damaged") for text in DAMAGED), (OTHER, r"does .*--evaluation\.policy is 'best'; choose one")]


@pytest.mark.parametrize(("content", "told"), DAMAGE)
def test_damaged_configuration_is_named(tmp_path: pathlib.Path, content: str, told: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(errors.ResumeError, match=rf"config\.json {told}"):
        run_dirs.read_saved(tmp_path)


def test_a_setting_that_a_run_lacks_has_its_default(tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.json").write_text('{"format": 2, "preset": "catch", "given": {}, "config": {"run.seed": 5}}')
    assert run_dirs.read_saved(tmp_path).config == configs.override(configs.Config(), {"run.seed": 5})


def test_learner_file_says_where_it_listens_and_goes_with_the_learner(tmp_path: pathlib.Path) -> None:
    with open_with(tmp_path) as run:
        run.write_learner("127.0.0.1:5000", 12.5, local="unix:/x")
        assert run_dirs.read_learner(tmp_path) == {
            "address": "127.0.0.1:5000",
            "local": "unix:/x",
            "pid": os.getpid(),
            "started": 12.5,
        }
    assert run_dirs.read_learner(tmp_path) is None


READ = {"learner.json": run_dirs.read_learner, "status.json": run_dirs.read_status}
IMPOSSIBLE = [json.dumps({"address": "127.0.0.1:5000", "pid": pid}) for pid in (-1, 0, 2**40, None)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((name, content) for name in READ for content in ("null", "[]", "5", '{"a":' * 100_000)),
        *(("learner.json", content) for content in ('{"pid": "x", "address": 5}', *IMPOSSIBLE)),
    ],
)
def test_files_that_hold_something_else_are_named(tmp_path: pathlib.Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    what = "learner.json lacks" if content in IMPOSSIBLE else name
    with pytest.raises(errors.ResumeError, match=f"{what}.*delete it"):
        READ[name](tmp_path)


LINKS = ["config.json", "lock", "learner.json", "learner.sock", "status.json", "status.json.tmp", "config.json.tmp"]
LINKS += ["spec.json", "metrics.jsonl", "league.jsonl", "wandb.json", "copy.json", "logs", "logs/worker-0.log"]
LINKS += ["tensorboard", "tensorboard/events", "wandb", "xla"]
LINKS += ["checkpoints", "checkpoints/steps", "checkpoints/segments", "checkpoints/best"]
LINKS += ["checkpoints/steps/000000000002", "checkpoints/segments/mine", "checkpoints/best/000000000002"]


@pytest.mark.parametrize("dangling", [False, True])
@pytest.mark.parametrize("name", LINKS)
def test_a_link_in_a_run_directory_is_refused_by_name_and_what_is_behind_it_stays(
    name: str, dangling: bool, tmp_path: pathlib.Path
) -> None:
    path, behind, link = tmp_path / "run", tmp_path / "behind", tmp_path / "run" / name
    open_with(path).close()
    if not dangling:
        (behind / "mine").mkdir(parents=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.exists():
        link.rename(tmp_path / "earlier")
    link.symlink_to(behind)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(errors.ResumeError, match=f"{link} "):
        open_with(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_directory_may_be_a_link_and_hold_links_of_the_user(tmp_path: pathlib.Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    open_with(tmp_path / "runs" / "one").close()
    (tmp_path / "two").symlink_to(tmp_path / "disk" / "one")
    (tmp_path / "disk" / "one" / "notes").symlink_to(tmp_path)
    with open_with(tmp_path / "two") as run:
        assert run.resumed


def test_a_link_that_appears_beside_a_file_is_not_followed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with open_with(tmp_path / "run") as run:
        for name in ("status.json.tmp", "status.json"):
            (tmp_path / "run" / name).symlink_to(tmp_path / "mine")
        assert run.write_status({"updates": 1}) is None
    assert (tmp_path / "mine").read_text() == "mine"
    assert run_dirs.read_status(tmp_path / "run") == {"updates": 1}


def test_status_is_kept_and_a_disk_that_is_full_is_only_reported(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with open_with(tmp_path) as run:
        assert run.write_status({"updates": 1, "last_evaluation": None}) is None
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            report = run.write_status({"updates": 2})
    assert report is not None and os.strerror(errno.ENOSPC) in report and "status.json" in report
    assert run_dirs.read_status(tmp_path) == {"updates": 1, "last_evaluation": None}


def test_atomic_write_leaves_the_old_file_until_the_new_one_is_whole(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "value.json"
    run_dirs.write_json_atomic(path, 1)
    seen = []
    fsync = os.fsync

    def look(descriptor: int) -> None:
        seen.append(path.read_text())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    with path.open() as reader:
        run_dirs.write_json_atomic(path, 2)
        assert reader.read() == "1\n"  # who reads the old file reads it to its end
    assert seen == ["1\n", "2\n"]  # the file's content first, then the directory after the rename


def test_new_paths_of_one_second_differ(tmp_path: pathlib.Path) -> None:
    now = datetime.datetime(2030, 1, 2, 3, 4, 5)
    paths = [run_dirs.new_path(tmp_path / "runs", "catch", now) for _ in range(3)]
    assert [path.name for path in paths] == [
        "catch-20300102-030405",
        "catch-20300102-030405-2",
        "catch-20300102-030405-3",
    ]
    assert all(path.is_dir() for path in paths)


@pytest.mark.parametrize(
    ("text", "place", "player"),
    [
        ("/runs/one", "/runs/one", ""),
        ("/runs/one:main", "/runs/one", "main"),
        ("/runs/one:main-0123456789ab", "/runs/one", "main-0123456789ab"),
        ("/runs/12:30", "/runs/12:30", ""),
        ("gs://bucket/one", "gs://bucket/one", ""),
        ("gs://bucket/one:wolf", "gs://bucket/one", "wolf"),
    ],
)
def test_a_player_follows_the_run(text: str, place: str, player: str) -> None:
    found = run_dirs.parse_origin(text)
    assert found == (place, player)
    assert found.text == text and run_dirs.parse_origin(found.text) == found


def test_a_path_becomes_absolute_and_a_directory_keeps_its_colon(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one:two").mkdir()
    assert run_dirs.parse_origin("one:three") == (str(tmp_path / "one"), "three")
    assert run_dirs.parse_origin("one:two") == (str(tmp_path / "one:two"), "")


def test_settings_that_explain_other_shapes_are_those_of_network_and_agent() -> None:
    here = configs.of_agent("ppo")
    there = configs.override(here, {"network.width": 32, "ppo.squash": True, "run.seed": 4, "optimizer.clip_norm": 9})
    assert run_dirs.differing(there, here) == [
        "--network.width=32 there, 64 here",
        "--ppo.squash=true there, false here",
    ]


DISCRETE = types.EnvSpec((4, 5), "uint8", 3, 0, 255, frames_per_step=4)
ARRAYS = types.EnvSpec.of_arrays(
    [types.ArraySpec("image", (4, 5, 1), "uint8", 0, 255), types.ArraySpec("robot/arm", (3,), "float32")],
    num_actions=6,
)
CONTINUOUS = types.EnvSpec((3,), "float32", 0, action_low=(-1.0, 0.5), action_high=(1.0, 2.5))

TASKS = types.EnvSpec((3,), "float32", 2, tasks=("walk", "run"))


@pytest.mark.parametrize("spec", [DISCRETE, CONTINUOUS, ARRAYS, TASKS])
def test_a_spec_is_read_as_it_was_written(tmp_path: pathlib.Path, spec: types.EnvSpec) -> None:
    assert run_dirs.read_spec(tmp_path) is None
    run_dirs.write_spec(tmp_path, spec)
    assert run_dirs.read_spec(tmp_path) == spec


def _spaces(text: str) -> str:
    return json.dumps({"observation": {"kind": text}, "action": {}})


def test_other_spaces_are_another_environment_unless_one_side_is_silent() -> None:
    run, other = (dataclasses.replace(DISCRETE, spaces=_spaces("x" * 10**6 + end)) for end in ("A", "B"))
    for silent in (DISCRETE, run):
        run_dirs.check_equal_spec(silent, run)
        run_dirs.check_equal_spec(run, dataclasses.replace(silent))
    with pytest.raises(errors.SpecMismatch, match=r"spaces is .*xA\W.* expected .*xB\W") as refusal:
        run_dirs.check_equal_spec(run, other)
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("observation_shape", [4.0, 5]),
        ("observation_shape", ["4"]),
        ("num_actions", 3.0),
        ("num_players", 1.5),
        ("frames_per_step", "4"),
        ("num_states", None),
        ("tasks", [3]),
        ("spaces", "{"),
        ("spaces", '{"observation": 1}'),
        ("spaces", 7),
        ("observation_dtype", "complex"),
        ("packed", [{"name": "a", "shape": [2.5], "dtype": "uint8", "low": 0, "high": 1}]),
    ],
)
def test_a_damaged_file_is_named_with_the_value(tmp_path: pathlib.Path, name: str, value: object) -> None:
    run_dirs.write_spec(tmp_path, DISCRETE)
    values = json.loads((tmp_path / "spec.json").read_text()) | {name: value}
    (tmp_path / "spec.json").write_text(json.dumps(values))
    with pytest.raises(errors.ResumeError, match=r"spec\.json is damaged"):
        run_dirs.read_spec(tmp_path)


@pytest.mark.parametrize(
    ("came", "expected", "difference"),
    [
        (dataclasses.replace(CONTINUOUS, action_high=(1.0, 9.0)), CONTINUOUS, r"action_high is \(1.0, 9.0\), .*2.5\)"),
        *(
            (types.EnvSpec((3,), "int32", 2, low, math.inf), types.EnvSpec((3,), "int32", 2, -5.0, math.inf), str(low))
            for low in (-math.inf, -7.0, 2.0**31 - 1)
        ),
    ],
)
def test_other_bounds_are_another_environment(came: types.EnvSpec, expected: types.EnvSpec, difference: str) -> None:
    with pytest.raises(errors.SpecMismatch, match=difference):
        run_dirs.check_equal_spec(came, expected)
    run_dirs.check_equal_spec(expected, expected)


def test_other_names_of_actions_are_the_same_environment_and_another_number_is_named() -> None:
    named = types.EnvSpec((4,), "float32", 2, action_names=("left", "right"))
    run_dirs.check_equal_spec(dataclasses.replace(named, action_names=()), named)
    with pytest.raises(errors.SpecMismatch, match="num_actions is 3, expected 2"):
        run_dirs.check_equal_spec(types.EnvSpec((4,), "float32", 3), named)


def test_who_does_not_tell_the_number_of_states_is_believed() -> None:
    silent = types.EnvSpec((4,), "float32", 3)
    telling = dataclasses.replace(silent, num_states=4)
    run_dirs.check_equal_spec(silent, telling)
    run_dirs.check_equal_spec(telling, silent)
    with pytest.raises(errors.SpecMismatch, match=r"observation_shape is \(1,\), expected \(4,\)"):
        run_dirs.check_equal_spec(types.EnvSpec((1,), "int32", 3), telling)
    with pytest.raises(errors.SpecMismatch, match=r"num_states .* 5, .*\(4,\)"):
        dataclasses.replace(telling, num_states=5)
