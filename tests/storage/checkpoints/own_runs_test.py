"""Own runs: one record in the user's state directory for each, which nothing in a run directory replaces."""

from __future__ import annotations

import os
import pathlib
import shutil
import stat
from collections.abc import Callable, Mapping
from concurrent import futures

import pytest

from seedzero.config import configs
from seedzero.core import errors, json_object, user_code
from seedzero.storage.checkpoints import own_runs, run_dirs

_CODE = {"env.id": "python:my_env:make", "env.kwargs": '{"size": 3}', "network.module": "my_network:make"}
_STRANGER = 12345
"""A user id of nobody."""


@pytest.fixture(autouse=True)
def _here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the user a state directory, and a current directory with two modules, which nothing may import."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for name in ("my_env.py", "my_network.py"):
        pathlib.Path(name).write_text("raise SystemExit('imported')\n")


def _directory(
    name: str = "run", given: Mapping[str, str] = _CODE, values: Mapping[str, str] | None = None
) -> pathlib.Path:
    """Returns a run directory as a training writes it; values: of its configuration, if others."""
    config = configs.flatten(configs.override(configs.Config(), given if values is None else values))
    path = pathlib.Path(name).absolute()
    path.mkdir(exist_ok=True)
    run_dirs.write_json_atomic(
        path / run_dirs.CONFIG_FILE, {"preset": "vector", "given": dict(given), "config": config}
    )
    return path


def _remembered(name: str = "run") -> pathlib.Path:
    path = _directory(name)
    assert _remember(path) == ""
    return path


def _remember(path: pathlib.Path) -> str:
    return own_runs.remember(path, run_dirs.read_saved(path))


def _doubt(path: pathlib.Path) -> str | None:
    return own_runs.run_doubt(path, run_dirs.read_saved(path))


def _records() -> list[pathlib.Path]:
    return sorted((pathlib.Path(os.environ["XDG_STATE_HOME"]) / "seedzero" / "runs").glob("*"))


def test_a_remembered_run_is_the_user_s_own() -> None:
    path = _directory()
    assert _doubt(path) == ""
    assert _remember(path) == ""
    assert _doubt(path) is None
    own_runs.check_consent(path, run_dirs.read_saved(path), trusted=False)


def test_only_the_user_reads_and_writes_the_record() -> None:
    _remembered()
    (record,) = _records()
    modes = [stat.S_IMODE(file.stat().st_mode) for file in (record, record.parent, record.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]


def test_nothing_in_the_directory_alone_is_consent(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    path = _remembered()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of another user"))
    assert _doubt(path) == ""


def _with_agent(changes: Mapping[str, object]) -> pathlib.Path:
    """Returns a run directory with an agent of a module; its settings are read without an import."""
    path = _directory(given={})
    saved = json_object.parse((path / run_dirs.CONFIG_FILE).read_bytes())
    agent = {"run.agent": "my_env:AGENT", "mine.size": 3, "mine.limit": "inf", **changes}
    saved["given"] = {name: str(value) for name, value in agent.items()}
    saved["config"] |= agent
    run_dirs.write_json_atomic(path / run_dirs.CONFIG_FILE, saved)
    return path


@pytest.mark.parametrize("changes", [{"mine.size": 4}, {"mine.more": 1}, {"run.agent": "my_env:OTHER"}], ids=str)
def test_an_agent_and_its_settings_are_remembered(changes: Mapping[str, object]) -> None:
    path = _with_agent({})
    assert _remember(path) == "" and _doubt(path) is None
    assert "changed" in (_doubt(_with_agent(changes)) or "")
    assert _doubt(_with_agent({"run.seed": 3})) is None


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes",
    [
        {"env.id": "python:my_env:other"},
        {"env.id": "gym:my_env:Env-v0"},
        {"env.kwargs": '{"size": 4}'},
        {"env.wrappers": '["FlattenObservation"]'},
        {"env.max_episode_steps": "7"},
        {"network.module": "my_network:other"},
        {"network.width": "7"},
        {"league.builder": "my_network:build"},
        {"league.builder_args": '{"size": 3}'},
        {"run.agent": "vtrace"},
    ],
    ids=str,
)
@pytest.mark.parametrize("part", ["given", "config", "both"])
def test_a_directory_that_came_back_with_other_code_or_arguments_is_a_stranger_s(
    changes: Mapping[str, str], part: str
) -> None:
    path, changed = _remembered(), {**_CODE, **changes}
    _directory("run", _CODE if part == "config" else changed, _CODE if part == "given" else changed)
    with pytest.raises(errors.ResumeError, match="trust_run_dir"):
        own_runs.check_consent(path, run_dirs.read_saved(path), trusted=False)
    own_runs.check_consent(path, run_dirs.read_saved(path), trusted=True)
    _directory()
    assert _doubt(path) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda: _directory("run", {**_CODE, "optimizer.learning_rate": "0.5", "run.max_updates": "7"}),
        lambda: pathlib.Path("my_env.py").write_text("changed = True\n"),
    ],
    ids=["settings of no code", "the module"],
)
def test_settings_of_no_code_and_the_user_s_own_module_may_change(change: Callable[[], object]) -> None:
    path = _remembered()
    change()
    assert _doubt(path) is None


def test_every_free_text_is_covered_or_known_to_name_no_code() -> None:
    texts = {
        name
        for name, field in configs.fields().items()
        if type(field.default) is str and not field.metadata["choices"]
    }
    of_no_code = {"transport.listen", "transport.token_file", "tls.cert_file", "tls.key_file", "metrics.wandb"}
    of_no_code |= {"metrics.console", "cluster.coordinator", "cluster.worker_address", "cluster.interface"}
    of_no_code |= {"cluster.ca_file", "run.init_from", "seats.policies", "serve.token_file"}
    assert {name for name in texts if not name.startswith(own_runs._OF_CODE)} == of_no_code | {"metrics.host"}
    assert {name for name in configs.fields() if name.endswith((".module", ".bonus"))} == set(user_code.NETWORKS)


def test_a_later_version_with_more_settings_knows_the_run() -> None:
    saved = run_dirs.read_saved(_directory())
    plain = configs.flatten(configs.override(configs.Config(), _CODE))
    mine = {name: value for name, value in plain.items() if name != "env.noop_max"}  # which is at its default
    mine["env.action_mask"] = False  # as of versions without masks
    assert own_runs.digest(run_dirs.parse_saved({"preset": "vector", "given": _CODE, "config": mine})) == (
        own_runs.digest(saved)
    )


def test_a_copy_is_a_stranger_s_until_it_is_started_with_consent() -> None:
    path = _remembered()
    copy = pathlib.Path(shutil.copytree(path, "copy")).absolute()
    assert _doubt(copy) == ""
    assert _remember(copy) == ""
    assert _doubt(copy) is None and _doubt(path) is None
    assert len(_records()) == 2


def test_a_renamed_directory_is_one_of_its_new_place() -> None:
    path = _remembered().rename("renamed").absolute()
    assert _doubt(path) == ""
    pathlib.Path("run").symlink_to(path)  # the place is the one behind links
    assert _doubt(pathlib.Path("run").absolute()) == ""
    assert _remember(path) == ""
    assert _doubt(path) is None and _doubt(pathlib.Path("run").absolute()) is None


def test_a_forgotten_run_takes_no_other_with_it() -> None:
    other, path = _remembered("other"), _remembered()
    own_runs.forget(path)
    own_runs.forget(path)
    assert _doubt(path) == "" and _doubt(other) is None


BREAKS: dict[str, Callable[[pathlib.Path], object]] = {
    "record of others": lambda record: record.chmod(0o602),
    "folder of others": lambda record: record.parent.chmod(0o770),
    "upper folder of others": lambda record: record.parent.parent.chmod(0o707),
    "damaged": lambda record: record.write_text('{"run": "/"'),
    "not whole": lambda record: record.write_text('{"run": 7}'),
    "link": lambda record: record.symlink_to(record.rename(record.with_name("kept"))),
    "pipe": lambda record: (record.unlink(), os.mkfifo(record)),
    "linked folder": lambda record: record.parent.symlink_to(record.parent.rename(record.parent.with_name("kept"))),
}


@pytest.mark.parametrize("kind", [*BREAKS, "owner"])
def test_a_state_that_others_could_have_written_is_named_and_not_believed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _remembered()
    saved = run_dirs.read_saved(path)
    if kind != "owner":
        BREAKS[kind](_records()[0])
    elif os.geteuid() == 0:
        os.chown(_records()[0], _STRANGER, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: _STRANGER)
    with pytest.raises(errors.ResumeError, match=f"trust_run_dir.*{os.environ['XDG_STATE_HOME']}"):
        own_runs.check_consent(path, saved, trusted=False)
    own_runs.check_consent(path, saved, trusted=True)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_the_next_start_with_consent_replaces_the_record(is_damaged: bool) -> None:
    path = _remembered()
    if is_damaged:
        _records()[0].write_text("{")
    _remembered()
    assert _doubt(path) is None and len(_records()) == 1


@pytest.mark.parametrize("home", ["", "/", "here"])
def test_without_a_home_no_run_is_remembered(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", home)
    path = _directory()
    for found in (_remember(path), own_runs.obstacle(), _doubt(path)):
        assert "XDG_STATE_HOME" in (found or "")


def test_the_state_lies_in_the_home_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    assert _doubt(_remembered()) is None
    assert len(list((tmp_path / "home" / ".local" / "state" / "seedzero" / "runs").iterdir())) == 1


def test_a_state_that_cannot_be_written_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "state").write_text("")
    path = _directory()
    assert str(tmp_path / "state") in _remember(path)
    assert str(tmp_path / "state") in own_runs.obstacle()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_root_writes_nothing_into_the_home_of_another(tmp_path: pathlib.Path) -> None:
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", _STRANGER, -1)
    assert str(tmp_path / "state") in own_runs.obstacle()
    assert not list((tmp_path / "state").iterdir())


def test_the_records_of_the_runs_started_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_runs, "MOST", 3)
    paths = []
    for number in range(5):
        paths.append(_remembered(f"run{number}"))
        for file in _records():
            os.utime(file, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns - 10**9))
    assert [_doubt(path) is None for path in paths] == [False, False, True, True, True]
    os.utime(_records()[0], (2**32, 2**32))  # the clock was set back: the newest record stays nevertheless
    assert _doubt(_remembered("run5")) is None and len(_records()) == 3


def test_learners_that_start_together_disturb_each_other_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_runs, "MOST", 16)
    paths = [_directory(f"run{number}") for number in range(40)]
    saved = run_dirs.read_saved(paths[0])
    with futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda path: own_runs.remember(path, saved), paths)) == {""}
    assert len(_records()) <= 16 + 8  # each may have looked before another one wrote


def test_another_module_of_that_name_is_not_the_user_s(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    path = _remembered()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert "nowhere" in (_doubt(path) or "")
    for name in ("my_env", "my_network"):
        pathlib.Path(f"{name}.py").write_text("")
    assert str(tmp_path / "elsewhere") in (_doubt(path) or "")
    (tmp_path / "link").symlink_to(tmp_path / "work")
    monkeypatch.chdir(tmp_path / "link")
    assert _doubt(path) is None


def test_a_run_directory_brings_no_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    path = _remembered()
    monkeypatch.syspath_prepend(str(tmp_path / "work"))
    assert _doubt(path) is None
    (path / "yaml.py").write_text("")  # my_env might import one
    monkeypatch.chdir(path)
    assert "inside" in (_doubt(path) or "")
    monkeypatch.chdir(tmp_path / "work")
    assert _doubt(path) is None
    monkeypatch.syspath_prepend(str(path / "checkpoints"))
    assert "inside" in (_doubt(path) or "")


@pytest.mark.parametrize("name", ["my_env", "my_runs.one.my_env", "my_runs.one"])
def test_a_module_inside_the_run_directory_is_never_remembered(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pathlib.Path("my_runs").mkdir()
    path = _directory("my_runs/one", {"env.id": f"python:{name}:make"})
    (path / "my_env.py").write_text("")
    if name == "my_env":
        pathlib.Path("my_env.py").unlink()
        pathlib.Path("my_env.py").symlink_to(path / "my_env.py")
    assert name in _remember(path)
    assert not _records()


def test_a_file_of_two_minds_is_never_remembered() -> None:
    path = _directory("run", {**_CODE, "network.module": "evil:run"}, _CODE)  # a resume would keep what it was given
    assert run_dirs.CONFIG_FILE in _remember(path)


def test_a_current_directory_that_was_deleted_is_no_place_of_modules(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _remembered()
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "directory" in (_doubt(path) or "")
