"""What a learner says about its replay when it starts."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import jax
import loop_world
import pytest

from seedzero.config import configs, options, sections
from seedzero.core import errors
from seedzero.device import states
from seedzero.learner import run_memory
from seedzero.learner.league_play import snapshot_pools
from seedzero.storage.checkpoints import checkpoint, checkpointers, trees


@pytest.mark.parametrize(
    ("settings", "is_saved", "told"),
    [
        ({}, False, True),
        ({"run.deterministic": True}, True, False),
        ({"checkpoint.replay": "on"}, True, False),
        ({"checkpoint.replay": "off"}, False, False),  # the user knows
    ],
)
def test_a_replay_that_is_too_large_for_checkpoints_is_told(
    settings: dict[str, options.Value], is_saved: bool, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = loop_world.make_device(loop_world.MUZERO)
    size = trees.num_bytes(device.actor.rings)
    assert checkpoint.saves_replay(configs.Config().checkpoint, size)
    monkeypatch.setattr(checkpoint, "_REPLAY_LIMIT_BYTES", size - 1)
    config = configs.override(configs.Config(), {**device.settings, **settings})
    found, _, text = run_memory.place_replay(config, [device.setup], [states.Shapes(device.train, device.actor)])
    assert (found, "--checkpoint.replay=on saves it" in text) == (is_saved, told)


@pytest.mark.parametrize("num_places", [1, 2])
def test_frozen_players_count_in_the_memory_that_is_needed(num_places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    device, found = loop_world.make_device(loop_world.MUZERO), []
    monkeypatch.setattr(
        run_memory, "fit_replay", lambda replay, needed, *args, **options: found.append(needed) or (0, "")
    )
    for every in (0, 100):
        settings: dict[str, options.Value] = {"league.freeze_every": every, "league.active": 3}
        config = configs.override(configs.Config(), {**device.settings, **settings})
        shapes = [states.Shapes(device.train, device.actor)] * num_places
        run_memory.place_replay(config, [device.setup] * num_places, shapes)
    without, needed = found
    size = trees.num_bytes(device.setup.agent.acting(device.train))
    most = num_places * (3 + 2 + checkpointers.MAX_FREEZES) + snapshot_pools._ON_HOST  # the host's cache is one
    assert needed == without._replace(state_copies=without.state_copies + most * size)


GIB = 2**30
NEEDED = checkpoint.Needed(frames=8 * GIB, rest=GIB, frame_copies=GIB, rest_copies=GIB // 2, state_copies=GIB // 2)


class _Device:
    """An accelerator; free: in GiB, None: it does not tell."""

    platform = "gpu"

    def __init__(self, free: float | None) -> None:
        self._free = free

    def memory_stats(self) -> dict[str, int] | None:
        return None if self._free is None else {"bytes_limit": int((self._free + 3) * GIB), "bytes_in_use": 3 * GIB}


def _place(
    placement: str,
    free: float | None,
    host: float = 100.0,
    *,
    num_devices: int = 1,
    num_envs: int = 0,
    needed: checkpoint.Needed = NEEDED,
) -> tuple[bool, str]:
    device: Any = _Device(free)
    replay = sections.ReplayConfig(capacity=1_000, placement=placement, num_slots=8, num_envs=num_envs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_memory, "_free_host_bytes", lambda: int(host * GIB))
        return run_memory.fit_replay(replay, needed, device, num_devices=num_devices)


@pytest.mark.parametrize(
    ("placement", "free", "on_host"),
    [
        ("auto", 14, False),
        ("auto", 13, True),  # room for the replay, but hardly for anything else
        ("auto", None, False),
        ("device", 11, False),
        ("device", None, False),
        ("host", 50, True),
        ("host", 2, True),
    ],
)
def test_observations_are_with_the_host_where_the_device_has_no_room(
    placement: str, free: float | None, on_host: bool
) -> None:
    assert _place(placement, free)[0] == on_host


def test_a_replay_that_only_the_device_may_hold_is_refused_where_it_has_no_room() -> None:
    device: Any = _Device(5.0)
    auto = sections.ReplayConfig(capacity=1_000, placement="auto", num_slots=8)
    with pytest.raises(errors.CapacityError, match=r"would fit$"):  # nor does it offer the host
        run_memory.fit_replay(auto, NEEDED, device, num_devices=1, may_be_host=False)
    assert not run_memory.fit_replay(auto, NEEDED, _Device(13.0), num_devices=1, may_be_host=False)[0]  # type: ignore[arg-type]


def test_devices_share_the_replay() -> None:
    assert not _place("device", 5.8, num_devices=2)[0]  # each has the whole training state
    with pytest.raises(errors.CapacityError, match=r"needs 5\.75 GiB"):
        _place("device", 5.7, num_devices=2)


def test_it_says_how_much_lies_where() -> None:
    one, two = _place("auto", 20)[1], _place("auto", 3, num_envs=5)[1]
    assert "1000 steps of 8 environments in 9.00 GiB of 20.0 GiB free on each device" in one
    assert " 5 environments (and room for 3 more)" in two and " 8.00 GiB of 100.0 GiB free of the host's memory" in two
    assert " 1.00 GiB of 3.0 GiB free on each device" in two


@pytest.mark.parametrize(
    ("placement", "free", "host", "message"),
    [
        ("device", 5.5, 100, r"capacity=1000 .* 11\.00 GiB .* gpu .*--replay\.capacity=350 .*placement=host"),
        ("auto", 1.5, 100, r" 2\.00 GiB .* gpu, .*--replay\.capacity=450 [^;]*$"),
        ("auto", 5, 4.5, r" 9\.00 GiB .* host \(8\.00 GiB .*, 1\.00 GiB .*--replay\.capacity=393 "),
        ("device", 1.5, 100, r"; lower --replay\.capacity, or the network, and --replay\.placement=host"),
    ],
)
def test_what_fits_nowhere_is_refused_with_what_would_fit(
    placement: str, free: float, host: float, message: str
) -> None:
    with pytest.raises(errors.CapacityError, match=message) as raised:
        _place(placement, free, host)
    if found := re.search(r"--replay\.capacity=([0-9]+) would fit", str(raised.value)):
        share = int(found[1]) / 1_000
        frames, rest, frame_copies, rest_copies, state_copies = NEEDED
        frame_copies = min(frame_copies, int(share * frames))
        smaller = checkpoint.Needed(
            int(share * frames), int(share * rest), frame_copies, int(share * rest_copies), state_copies
        )
        assert _place(placement, free, host, needed=smaller)


def test_the_room_for_more_environments_is_named_where_it_does_not_fit() -> None:
    room = "--replay.num_slots=5 leaves out the room for 3 more environments"
    for placement, free in (("device", 5.5), ("host", 1.5)):
        with pytest.raises(errors.CapacityError, match=room):
            _place(placement, free, num_envs=5)
        with pytest.raises(errors.CapacityError) as refused:
            _place(placement, free)
        assert "num_slots" not in str(refused.value)


@pytest.mark.parametrize(
    ("limit", "stat", "expected"),
    [
        (None, "", 8 * GIB),
        ("max", "", 8 * GIB),
        (str(6 * GIB), "", GIB),
        (str(6 * GIB), f"anon {2 * GIB}\ninactive_file {2 * GIB}\nactive_file {GIB}\nshmem 5\n", 4 * GIB),
        (str(64 * GIB), f"inactive_file {2 * GIB}\n", 8 * GIB),
    ],
)
def test_memory_of_cached_files_is_free_within_a_control_group_too(
    limit: str | None, stat: str, expected: int, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable:   {8 * GIB // 1024} kB\n")
    group = tmp_path / "sys" / "fs" / "cgroup"
    group.mkdir(parents=True)
    for name, text in {"max": limit, "current": str(5 * GIB), "stat": stat}.items():
        if text:
            (group / f"memory.{name}").write_text(f"{text.strip()}\n")
    assert run_memory._free_host_bytes(tmp_path) == expected


def test_a_cpu_keeps_all_in_one_memory_unless_it_is_told_otherwise() -> None:
    (cpu, *_) = jax.devices("cpu")
    small = checkpoint.Needed(GIB // 1024, 1024, 0, 0, 0)
    auto, host = (sections.ReplayConfig(placement=name) for name in ("auto", "host"))
    assert not run_memory.fit_replay(auto, small, cpu, num_devices=1)[0]
    assert run_memory.fit_replay(host, small, cpu, num_devices=1)[0]
    huge = small._replace(frames=2**60)
    with pytest.raises(errors.CapacityError, match="on cpu") as refused:
        run_memory.fit_replay(auto, huge, cpu, num_devices=1)
    assert "placement" not in str(refused.value)
    # What its devices hold is the host's memory too.
    part = int(0.6 * (run_memory.free_bytes(cpu) or 0))
    with pytest.raises(errors.CapacityError, match="host"):
        run_memory.fit_replay(host, small._replace(frames=part, rest=part), cpu, num_devices=1)


@pytest.mark.parametrize(("number", "fits"), [(1, True), (2, True), (3, True), (4, False)])
def test_learning_players_beyond_the_memory_are_refused_with_how_many_fit(number: int, *, fits: bool) -> None:
    device: Any = _Device(17.5)  # 11 of them for the replay and its checkpoints
    if fits:
        run_memory.check_players(number, 2 * GIB, NEEDED, device)
        return
    with pytest.raises(
        errors.CapacityError, match=r"\b4\b.*\b2\.00\b.* 3 would fit.*--league\.main_exploiters.*--replay\.capacity"
    ):
        run_memory.check_players(number, 2 * GIB, NEEDED, device)
    run_memory.check_players(number, 2 * GIB, NEEDED, _Device(None))  # type: ignore[arg-type]
