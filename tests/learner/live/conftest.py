"""A watched device loop."""

import loop_world
import pytest


@pytest.fixture(params=[loop_world.MUZERO, loop_world.VTRACE], ids=["a replay", "a queue"])
def make_any(request: pytest.FixtureRequest) -> loop_world.Make:
    device = loop_world.make_device(request.param).without_refresh
    return lambda **settings: loop_world.World(device, **settings)


@pytest.fixture
def make() -> loop_world.Make:
    device = loop_world.make_device(loop_world.MUZERO).without_refresh
    return lambda **settings: loop_world.World(device, **settings)
