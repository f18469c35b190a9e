"""Rows and TensorBoard files."""

import contextlib
import json
import pathlib
import resource
import struct
import sys
from collections.abc import Iterator

import pytest
from tensorboardX.proto import event_pb2

from seedzero.monitoring import metrics_log


def make_log(path: pathlib.Path, *, tensorboard: bool = False) -> tuple[metrics_log.MetricsLog, list[str]]:
    reports: list[str] = []
    log = metrics_log.MetricsLog(path, tensorboard=tensorboard, report=reports.append, wall_clock=lambda: 1000.0)
    return log, reports


def rows(path: pathlib.Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def events(path: pathlib.Path) -> list[list[event_pb2.Event]]:
    """Returns the events of each file, in the order of the files' names; a damaged end is left out."""
    files = []
    for file in sorted((path / "tensorboard").iterdir()):
        data, found = file.read_bytes(), []
        while len(data) >= 12:
            (length,) = struct.unpack("<Q", data[:8])
            if len(data) < 16 + length:
                break
            found.append(event_pb2.Event.FromString(data[12 : 12 + length]))
            data = data[16 + length :]
        files.append(found)
    return files


@contextlib.contextmanager
def file_size_limit(num_bytes: int) -> Iterator[None]:
    """Writes beyond so many bytes into any file fail, as on a full disk; what fits is written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_row_is_a_line_of_json_that_begins_with_update_steps_and_seconds(tmp_path: pathlib.Path) -> None:
    log, reports = make_log(tmp_path)
    log.write({"loss": 0.5, "seconds": 2.0, "update": 10, "note": None, "env_steps": 640})
    log.write({"update": 20})
    first, second = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert first == '{"update": 10, "env_steps": 640, "seconds": 2.0, "loss": 0.5, "note": null}'
    assert json.loads(second) == {"update": 20}
    assert reports == []


def test_numbers_that_are_not_finite_stay_strict_json(tmp_path: pathlib.Path) -> None:
    log, _ = make_log(tmp_path)
    log.write({"update": 1, "loss": float("nan"), "limit": float("inf")})

    def refuse(name: str) -> object:
        raise AssertionError(f"{name} is not JSON")

    row = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=refuse)
    assert row == {"update": 1, "loss": "nan", "limit": "inf"}


def test_full_disk_is_reported_once_and_tried_again(tmp_path: pathlib.Path) -> None:
    log, reports = make_log(tmp_path)
    with file_size_limit(0):
        log.write({"update": 1})
        log.write({"update": 2})
    assert len(reports) == 1 and "File too large" in reports[0] and str(tmp_path) in reports[0]
    log.write({"update": 3})
    assert rows(tmp_path) == [{"update": 3}]
    assert reports[1:] == ["metrics are written again"]


def test_a_link_in_place_of_the_metrics_is_not_followed(tmp_path: pathlib.Path) -> None:
    log, reports = make_log(tmp_path)
    (tmp_path / "mine").write_text("mine\n")
    (tmp_path / "metrics.jsonl").symlink_to(tmp_path / "mine")
    log.write({"update": 1})
    with pytest.raises(OSError, match="symbolic links"):
        log.truncate(0, -1)
    assert (tmp_path / "mine").read_text() == "mine\n" and len(reports) == 1


def test_row_that_fits_only_in_part_leaves_no_half_line(tmp_path: pathlib.Path) -> None:
    log, reports = make_log(tmp_path)
    log.write({"update": 1})
    with file_size_limit((tmp_path / "metrics.jsonl").stat().st_size + 5):
        log.write({"update": 2})
    log.write({"update": 3})
    assert rows(tmp_path) == [{"update": 1}, {"update": 3}]
    assert len(reports) == 2


def test_tensorboard_holds_the_numbers_of_a_row_in_groups_over_environment_steps(tmp_path: pathlib.Path) -> None:
    log, reports = make_log(tmp_path, tensorboard=True)
    log.write({"update": 7, "env_steps": 640, "loss": 0.25, "note": "text", "nothing": None})
    ((header, event),) = events(tmp_path)
    assert header.file_version == "brain.Event:2"
    assert (event.step, event.wall_time) == (640, 1000.0)
    found = {value.tag: value.simple_value for value in event.summary.value}
    assert found == {"time/update": 7.0, "time/env_steps": 640.0, "train/loss": 0.25}
    assert reports == []


def test_tensorboard_goes_on_after_a_full_disk_without_a_half_record(tmp_path: pathlib.Path) -> None:
    log, reports = make_log(tmp_path, tensorboard=True)
    with file_size_limit(80):
        log.write({"update": 1, "env_steps": 1})
    assert rows(tmp_path) == [{"update": 1, "env_steps": 1}] and len(reports) == 1
    log.write({"update": 1, "env_steps": 2})
    ((header, event),) = events(tmp_path)
    assert header.file_version and event.step == 2
    assert len(reports) == 2


def test_without_tensorboardx_rows_are_written_and_it_is_said_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    log, reports = make_log(tmp_path, tensorboard=True)
    log.write({"update": 1, "env_steps": 1})
    log.write({"update": 2, "env_steps": 2})
    assert len(rows(tmp_path)) == 2
    assert len(reports) == 1 and "TensorBoard" in reports[0]


def test_truncate_cuts_back_to_a_checkpoint_even_between_rows_of_one_update(tmp_path: pathlib.Path) -> None:
    log, _ = make_log(tmp_path)
    log.write({"update": 10})
    log.write({"update": 20})
    size_bytes = log.size_bytes()
    log.write({"update": 20})
    log.truncate(size_bytes, 20)
    assert rows(tmp_path) == [{"update": 10}, {"update": 20}]
    log.write({"update": 21})
    assert rows(tmp_path)[-1] == {"update": 21}
    log.truncate(0, -1)
    assert rows(tmp_path) == []


def test_truncate_drops_half_a_line_where_a_crash_left_less_than_there_was(tmp_path: pathlib.Path) -> None:
    log, _ = make_log(tmp_path)
    log.write({"update": 10})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"update": 5')
    log.truncate(1000, 20)
    assert rows(tmp_path) == [{"update": 10}]


def test_truncate_without_a_file_does_nothing(tmp_path: pathlib.Path) -> None:
    log, _ = make_log(tmp_path)
    assert log.size_bytes() == 0
    log.truncate(0, 3)
    assert list(tmp_path.iterdir()) == []


def test_truncate_tells_tensorboard_once_to_hide_later_points(tmp_path: pathlib.Path) -> None:
    log, _ = make_log(tmp_path, tensorboard=True)
    log.truncate(0, 20)
    log.write({"update": 1, "env_steps": 30})
    log.write({"update": 2, "env_steps": 40})
    ((_, start, *points),) = events(tmp_path)
    assert (start.step, start.session_log.status) == (21, event_pb2.SessionLog.START)
    assert [point.step for point in points] == [30, 40]


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("evaluation_mean_return", "eval/mean_return"),
        ("episode_return", "rollout/episode_return"),
        ("first_mover_return", "rollout/first_mover_return"),
        ("episode_return/rooms_watermaze", "rollout/episode_return/rooms_watermaze"),
        ("matches/self_play", "matches/self_play"),
        ("info/success", "info/success"),
        ("evaluation_info/success", "eval/info/success"),
        ("env_steps", "time/env_steps"),
        ("env_steps/wolf", "time/env_steps/wolf"),
        ("loss/wolf", "train/loss/wolf"),
        ("updates_per_second", "time/updates_per_second"),
        ("round_trip_seconds", "time/round_trip_seconds"),
        ("link_environments_needed", "time/link_environments_needed"),
        ("batch_wait_seconds", "time/batch_wait_seconds"),
        ("learner_cpu_percent", "system/learner_cpu_percent"),
        ("device_memory_bytes", "system/device_memory_bytes"),
        ("loss_value", "train/loss_value"),
        ("samples_per_insert", "train/samples_per_insert"),
        ("a_metric_of_a_new_agent", "train/a_metric_of_a_new_agent"),
    ],
)
def test_every_metric_has_a_group(name: str, tag: str) -> None:
    assert metrics_log.tag_of(name) == tag
