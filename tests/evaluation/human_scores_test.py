import pytest
from ale_py import roms

from seedzero.evaluation import human_scores


def test_there_are_57_games_and_ale_has_them_all():
    assert len(human_scores.SCORES) == 57
    assert set(human_scores.SCORES) <= set(roms.get_all_rom_ids())


def test_humans_beat_random_play_in_every_game():
    assert all(human > random for random, human in human_scores.SCORES.values())


@pytest.mark.parametrize(
    ("game", "score", "expected"),
    [
        ("pong", -20.7, 0.0),
        ("pong", 14.6, 1.0),
        ("atari:Pong", 21.0, 41.7 / 35.3),
        ("Breakout", 30.5, 1.0),
        ("MsPacman", 307.3, 0.0),
        ("ms_pacman", 6951.6, 1.0),
        ("atari:SpaceInvaders", 148.0, 0.0),
    ],
)
def test_scores_are_linear_between_random_and_human(game, score, expected):
    assert human_scores.normalized(game, score) == pytest.approx(expected)


@pytest.mark.parametrize("game", ["catch", "gym:CartPole-v1", "atari:Tetris"])
def test_games_without_published_scores_have_none(game):
    assert human_scores.normalized(game, 10.0) is None
