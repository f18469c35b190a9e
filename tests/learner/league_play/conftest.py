"""Fixtures of the tests of a league at play."""

import loop_world
import pytest


@pytest.fixture(scope="package")
def device() -> loop_world.Device:
    """MuZero: programs of reanalysis, one of which is never called."""
    return loop_world.make_device(loop_world.MUZERO).without_refresh
