"""Fixtures of the device loop's tests."""

import loop_world
import pytest


@pytest.fixture(scope="package")
def reanalysing() -> loop_world.Device:
    """MuZero with reanalysis: half a position for each stored step, two in a call."""
    return loop_world.make_device(loop_world.MUZERO)


@pytest.fixture(scope="package")
def device(reanalysing: loop_world.Device) -> loop_world.Device:
    """MuZero: programs of `reanalysing`, one of which is never called."""
    return reanalysing.without_refresh


@pytest.fixture(scope="package")
def queued() -> loop_world.Device:
    """V-trace with an LSTM."""
    return loop_world.make_device(loop_world.VTRACE)


@pytest.fixture
def make(device: loop_world.Device) -> loop_world.Make:
    return lambda **settings: loop_world.World(device, **settings)


@pytest.fixture
def make_refreshing(reanalysing: loop_world.Device) -> loop_world.Make:
    return lambda **settings: loop_world.World(reanalysing, **settings)


@pytest.fixture
def make_queued(queued: loop_world.Device) -> loop_world.Make:
    return lambda **settings: loop_world.World(queued, **settings)
