import pytest
from ale_py import roms

from seedzero.monitoring.metrics import episodes, human_scores


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


def test_there_are_30_levels_and_humans_beat_random_play_in_each():
    assert len(human_scores.DMLAB_SCORES) == 30
    assert all(human > random for random, human in human_scores.DMLAB_SCORES.values())
    assert human_scores.normalized("dmlab:rooms_watermaze", 54.0) == 1.0


def _result(task_returns):
    return episodes.Scores(30, 1.0, 0.0, 1.0, 1.0, 5.0, task_returns)


def test_of_several_tasks_the_score_is_the_mean_of_capped_ones():
    halves = {level: (random + human) / 2 for level, (random, human) in human_scores.DMLAB_SCORES.items()}
    assert human_scores.of("dmlab:dmlab30", _result(halves)) == pytest.approx(0.5)
    # One at a hundred times a human's counts 1, one at a random player's 0.
    halves["rooms_watermaze"], halves["natlab_fixed_large_map"] = 5400.0, 2.173
    assert human_scores.of("dmlab:dmlab30", _result(halves)) == pytest.approx((28 * 0.5 + 1 + 0) / 30)


def test_without_an_episode_of_every_level_there_is_no_score():
    assert human_scores.of("dmlab:dmlab30", _result({"rooms_watermaze": 5.0})) is None
    assert human_scores.of("atari:Pong", _result({})) == pytest.approx(21.7 / 35.3)


@pytest.mark.parametrize("game", ["catch", "gym:CartPole-v1", "atari:Tetris"])
def test_games_without_published_scores_have_none(game):
    assert human_scores.normalized(game, 10.0) is None
