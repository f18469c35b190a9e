"""TensorBoard's file: the run's configuration, hyperparameters and videos; rows are tested in metrics_test.py."""

from __future__ import annotations

import pathlib
import struct
import sys
from typing import Any

import imageio.v3 as imageio
import numpy as np
import pytest
from tensorboardX.proto import event_pb2, plugin_hparams_pb2

from seedzero.config import configs
from seedzero.monitoring import metrics_log


def make(path: pathlib.Path, **settings: Any) -> metrics_log.EventFile:
    values = {name.replace("__", "."): value for name, value in settings.items()}
    config = configs.override(configs.Config(), {"run.agent": "ppo", **values})
    return metrics_log.EventFile(path / "tensorboard", pytest.fail, lambda: 1000.0, config)


def events(path: pathlib.Path) -> list[event_pb2.Event]:
    """Returns the events of the only file."""
    (file,) = (path / "tensorboard").iterdir()
    data, found = file.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        found.append(event_pb2.Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return found


def described(path: pathlib.Path) -> dict[str, Any]:
    """Returns the values of the second event, which describes the run, by tag."""
    return {value.tag: value for value in events(path)[1].summary.value}


def hyperparameters(path: pathlib.Path) -> plugin_hparams_pb2.HParamsPluginData:
    content = described(path)["_hparams_/session_start_info"].metadata.plugin_data.content
    return plugin_hparams_pb2.HParamsPluginData.FromString(content)


def test_a_file_begins_with_the_configuration_as_a_table(tmp_path: pathlib.Path) -> None:
    log = make(tmp_path, optimizer__learning_rate=0.25, env__kwargs='{"a|b":\n1}')
    log.write({"env_steps": 30, "loss": 1.0})
    log.write({"env_steps": 40, "loss": 2.0})
    header, _, *rows = events(tmp_path)
    assert header.file_version and [row.step for row in rows] == [30, 40]
    value = described(tmp_path)["configuration"]
    assert value.metadata.plugin_data.plugin_name == "text"
    lines = value.tensor.string_val[0].decode().splitlines()
    assert (
        "| optimizer.learning_rate | `0.25` |" in lines
        and r"| env.kwargs | `{\"a\|b\":\n1}` |".replace(r"\"", '"') in lines
    )
    assert not any("muzero." in line for line in lines)  # no setting of another agent


def test_writing_runs_no_code_of_tensorboardx_that_imports_pytorch(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "tensorboardX")
    make(tmp_path).write({"env_steps": 30, "loss": 1.0})
    assert len(events(tmp_path)) == 3 and "tensorboardX" not in sys.modules


def test_hyperparameters_have_numbers_texts_and_truth_values(tmp_path: pathlib.Path) -> None:
    make(tmp_path, optimizer__learning_rate=0.25, env__id="gym:CartPole-v1").write({"env_steps": 0})
    found = hyperparameters(tmp_path).session_start_info.hparams
    assert found["optimizer.learning_rate"].number_value == 0.25
    assert found["env.id"].string_value == "gym:CartPole-v1"
    assert found["run.deterministic"].WhichOneof("kind") == "bool_value"


def test_hyperparameters_leave_out_machines_budgets_and_values_that_are_no_json() -> None:
    values = {"run.agent": "ppo", "run.max_updates": 7, "transport.listen": "127.0.0.1:0", "run.seed": 3}
    found = metrics_log.hyperparameters(configs.override(configs.Config(), values))
    assert found["run.seed"] == 3 and found["run.agent"] == "ppo"
    assert not {"run.max_updates", "run.stop_at_return", "transport.listen", "env.kwargs"} & found.keys()
    assert not {name for name in found if name.startswith(("muzero.", "sac.", "metrics."))}


def test_the_table_of_hyperparameters_shows_the_last_and_the_best_return(tmp_path: pathlib.Path) -> None:
    make(tmp_path).write({"env_steps": 5, "evaluation_mean_return": 2.0, "evaluation_best_score": 3.0})
    content = described(tmp_path)["_hparams_/experiment"].metadata.plugin_data.content
    experiment = plugin_hparams_pb2.HParamsPluginData.FromString(content).experiment
    shown = [metric.name.tag for metric in experiment.metric_infos]
    assert shown[:2] == ["eval/mean_return", "eval/best_score"]
    assert {value.tag for value in events(tmp_path)[-1].summary.value} > set(shown[:2])
    assert {info.name for info in experiment.hparam_infos} == hyperparameters(
        tmp_path
    ).session_start_info.hparams.keys()


def test_a_video_is_a_moving_picture_of_its_size(tmp_path: pathlib.Path) -> None:
    gif = imageio.imwrite("<bytes>", np.zeros((4, 20, 30, 3), np.uint8), extension=".gif")
    make(tmp_path).write_video(gif, 77)
    last = events(tmp_path)[-1]
    (value,) = last.summary.value
    assert (last.step, value.tag) == (77, "eval/video")
    assert (value.image.height, value.image.width, value.image.encoded_image_string) == (20, 30, gif)
