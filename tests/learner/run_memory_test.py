"""What a learner says about its replay when it starts."""

from __future__ import annotations

import loop_world
import pytest

from seedzero.checkpoints import checkpoint, checkpointers, trees
from seedzero.config import configs, options
from seedzero.device import states
from seedzero.league_play import snapshot_pools
from seedzero.learner import run_memory


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
        run_memory.capacity, "place", lambda replay, needed, *args, **options: found.append(needed) or (0, "")
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
