"""What a network sees of Pong: windows and shares of pixels worked out by hand, and a small network that learns."""

from __future__ import annotations

import json

import numpy as np
import pong_vision  # see conftest.py
import pytest


def test_a_window_knows_where_a_ball_that_comes_nearer_reaches_the_paddle() -> None:
    x = np.array([160, 150, 140, 150, 164, 176, 186, 190, 180, 170, 160], np.float32)
    cells = np.stack([x, np.arange(100, 111, dtype=np.float32), np.full(11, 90, np.float32)], axis=1)
    frames, first = np.arange(11, dtype=np.uint8)[:, None, None], np.zeros(11, bool)
    games = pong_vision.Games(frames, cells, np.arange(11, dtype=np.int32), first)
    found = pong_vision.windows(games)
    assert found.seen[:, 0, 0].tolist() == [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]]
    assert found.action[0].tolist() == [3, 4, 5, 6, 7] and found.cells[0, :, 0].tolist() == x[3:9].tolist()
    np.testing.assert_allclose(found.landing, 106.5)  # 188 lies in the middle between 186 and 190
    assert pong_vision.windows(games._replace(first=np.arange(11) == 4)).landing.shape == (0,)
    away = games._replace(cells=cells * np.array([-1, 1, 1]) + np.array([300, 0, 0]))
    assert np.isnan(pong_vision.windows(away).landing).all()


@pytest.mark.thorough
def test_a_small_network_learns_and_its_errors_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    network = ["--network.channels=4", "--network.width=16", "--env.frame_size=24"]
    pong_vision.main(["--steps=700", "--passes=2", *network])
    found = json.loads(capsys.readouterr().out)
    assert found["settings"] == network and found["windows"] >= pong_vision.BATCH
    assert found["paddle_y_if_still"][0] == 0.0
    for name in ("ball_x", "ball_y", "paddle_y"):
        assert len(found[name]) == 1 + pong_vision.UNROLL and 0.0 < max(found[name]) < 200.0
