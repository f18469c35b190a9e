from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pytest

from seedzero.config import options
from seedzero.core import errors, types
from seedzero.interfaces.benchmark import acting, replay, subjects, update
from seedzero.replay import sampling

TINY: Mapping[str, options.Value] = {
    "worker.envs_per_group": 8,
    "worker.num_groups": 1,
    "search.num_simulations": 2,
    "network.kind": "mlp",
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "muzero.unroll_steps": 1,
    "muzero.n_step": 2,
    "replay.capacity": 512,
    "replay.batch_size": 16,
    "evaluation.num_envs": 4,
    "training.num_devices": 1,
}
SECONDS = 0.02
FACTS = {"preset", "platform", "device", "devices", "cores", "jax"}


def _check(figures: Mapping[str, Any]) -> None:
    assert figures.keys() >= FACTS and figures["preset"] == "catch"
    for row in figures["rows"]:
        numbers = [value for value in row.values() if isinstance(value, float)]
        assert "milliseconds" in row and all(math.isfinite(number) and number > 0 for number in numbers)


@pytest.mark.thorough
def test_acting_is_measured_over_all_devices() -> None:
    settings = {**TINY, "training.num_devices": 2}
    figures = acting.run("catch", settings, seconds=SECONDS)
    _check(figures)
    (row,) = figures["rows"]
    assert figures["devices"] == 2 and row["batch"] == 8
    assert row["environment_steps_per_second"] == pytest.approx(1e3 * 8 / row["milliseconds"])
    assert row.keys() >= {"ratio_to_act", "ratio_to_network"}


@pytest.mark.thorough
def test_every_compiled_batch_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting.subjects, "interleave", lambda programs, seconds: {x: [1.0] for x in programs})
    figures = acting.run("catch", {**TINY, "batcher.max_batch": 32})
    assert [row["batch"] for row in figures["rows"]] == [8, 16, 32]


@pytest.mark.thorough
def test_replay_is_measured_with_full_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    interleave = subjects.interleave

    # The programs run as often as ever; their times are given, because measured ones depend on the machine's load.
    def timed(programs: Mapping[str, subjects.Program], *, seconds: float) -> subjects.Slices:
        slices = interleave(programs, seconds=seconds)
        assert all(min(measured) > 0 for measured in slices.values())
        return {name: [1e-3, 5e-4, 1e-3] if name in ("gather", "copy") else [4e-3, 4e-3, 5e-3] for name in slices}

    monkeypatch.setattr(subjects, "interleave", timed)
    figures = replay.run("catch", TINY, seconds=SECONDS)
    _check(figures)
    measured = [(row["operation"], row["batch"]) for row in figures["rows"]]
    assert measured == [("sample", 16), ("windows", 16), ("write", 8)]
    assert figures["ring_steps"] == 8 * (512 // 8 + 3)
    # A catch row: 50 pixels (10 x 5), reward, three flags; action, three policies, value, version.
    assert figures["rows"][-1]["bytes"] == 8 * (50 + 4 + 3 + 4 + 12 + 4 + 4)
    for row in figures["rows"]:
        assert (row["milliseconds"], row["peer_milliseconds"]) == pytest.approx((4.0, 1.0))
        assert row["ratio"] == pytest.approx(0.2)  # the median of 1/4, 0.5/4 and 1/5
        assert row["bytes_per_second"] == pytest.approx(250 * row["bytes"])


@pytest.mark.thorough
def test_the_parts_of_an_update_are_measured() -> None:
    figures = update.run("catch", {**TINY, "muzero.target_network_updates": 10}, seconds=SECONDS)
    _check(figures)
    assert [row["part"] for row in figures["rows"]] == ["update", "sample", "targets", "gradient", "optimizer"]
    assert figures["rows"][0]["ratio_to_update"] == 1.0
    assert figures["samples_per_second"] == pytest.approx(16 * figures["updates_per_second"])
    assert 0 < figures["ratio"] < math.inf


def test_rings_are_filled_as_a_learner_would_fill_them() -> None:
    made = subjects.make("catch", TINY)
    rings = subjects.filled_actor(made).rings
    assert np.asarray(rings.cursor).tolist() == [made.setup.slot_length] * 8
    sampleable = int((sampling.sampling_weight(rings, made.num_inserts, 512) > 0).sum())
    # All but the newest row of each slot and the last ones of episodes.
    assert 512 * 0.95 < sampleable < 512
    np.testing.assert_allclose(np.asarray(rings.stored["policy"]).sum(-1), 1.0, rtol=1e-6)


def test_a_batch_holds_each_slot_once_and_pads_what_is_left() -> None:
    made = subjects.make("catch", {**TINY, "batcher.max_batch": 16})
    batch = subjects.batch(made, 16)
    assert batch.slot.tolist() == [*range(12), 12, 12, 12, 12]  # 8 that train, 4 that evaluate, 4 of padding
    assert batch.action_mode.tolist() == [types.EXPLORE] * 8 + [types.GREEDY] * 8
    assert not batch.first.any()


def test_without_a_preset_the_device_chooses() -> None:
    assert jax.default_backend() == "cpu"
    made = subjects.make("", {"training.num_devices": 1})
    assert made.preset == "cartpole" and made.setup.spec.num_actions == 2


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(errors.ConfigError, match="--preset=catch"):
        acting.run("catsh")


@pytest.mark.parametrize("agent", ["vtrace", "apex"])
def test_another_agent_is_refused(agent: str) -> None:
    with pytest.raises(errors.ConfigError, match=f"--agent={agent}: MuZero alone .*leave it out"):
        subjects.make("catch", {"run.agent": agent})


def test_a_preset_whose_seats_no_measured_agent_plays_is_refused() -> None:
    pytest.importorskip("pyspiel")
    with pytest.raises(errors.ConfigError, match=r"--preset=seats: .*; give another preset$"):
        subjects.make("seats", {"training.num_devices": 1})
    with pytest.raises(errors.ConfigError, match=r"--preset=seats: .*; give --agent=ppo$"):
        subjects.make("seats", {"training.num_devices": 1}, ("muzero", "ppo"))
