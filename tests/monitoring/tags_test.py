"""The groups of metrics."""

import pytest

from seedzero.monitoring import tags


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
    assert tags.tag(name) == tag
