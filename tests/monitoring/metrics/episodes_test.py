"""Returns and lengths of episodes, step by step, and their quotas."""

import numpy as np
import pytest
from ale_py import roms

from seedzero.core import types
from seedzero.monitoring.metrics import episodes


def _play(lengths: list[int], num_episodes: int, tasks: tuple[str, ...] = (), max_steps: int = 100) -> episodes.Played:
    """Environment i has episodes of `lengths[i]` steps with reward 1 each, and task i modulo the number of tasks."""
    slots = np.arange(len(lengths)) + 7
    played = episodes.Played(slots, num_episodes, tasks, max_steps=max_steps)
    task = np.arange(len(lengths), dtype=np.int32) % len(tasks) if tasks else None
    age = np.zeros(len(lengths), int)
    while not played.done:
        final = age == np.array(lengths)
        reward = (age > 0).astype(np.float32)
        step = types.EnvStep(np.zeros(len(age)), reward, final, np.zeros(len(age), bool), task=task)
        played.record(slots, step, age == 0)
        age = np.where(final, 0, age + 1)
    return played


def test_short_episodes_count_no_more_often_than_long_ones() -> None:
    result = _play([1, 9], num_episodes=4).result()
    assert result == episodes.Scores(
        episodes=4, mean_return=5.0, std_return=4.0, min_return=1.0, max_return=9.0, mean_length=5.0
    )


def test_the_first_environments_play_the_remainder() -> None:
    result = _play([2, 4], num_episodes=3).result()
    assert (result.episodes, result.mean_length) == (3, (2 + 2 + 4) / 3)


def test_seats_play_whole_games_and_rows_that_are_not_shown_count_for_nothing() -> None:
    played = episodes.Played(np.array([4, 5]), 3, ("a", "b"), max_steps=9, num_seats=2)
    assert played.num_expected == 4
    first, tasks = np.ones(2, bool), np.arange(2, dtype=np.int32)
    # In each game the second seat ends with its first step, and the first one goes on alone.
    for shown, final in [("ab", ""), ("ab", "b"), ("a", ""), ("a", "a")] * 2:
        is_shown, is_final = (np.array([name in text for name in "ab"]) for text in (shown, final))
        step = types.EnvStep(
            np.zeros((2, 1)), np.ones(2, np.float32), is_final, np.zeros(2, bool), None, tasks, is_shown
        )
        played.record(np.array([4, 5]), step, first)
        first = np.where(is_shown, is_final, first)
    assert played.done and played.num_steps == 8
    assert played.result().task_returns == {"a": 3.0, "b": 1.0}


def test_games_without_a_turn_of_a_seat_count_for_it_too() -> None:
    """Of two copies; c has a turn in the first game of the second one alone, or an evaluation would never end."""
    slots, tasks = np.arange(6) + 2, np.tile(np.arange(3, dtype=np.int32), 2)
    played = episodes.Played(slots, 12, ("a", "b", "c"), max_steps=9, num_seats=3)
    first, num_steps = np.ones(6, bool), 0
    shown_in_turn = ("ab.abc", "ab.a..", ".b.ab.", "ab.abc", "a..ab.", "ab.ab.")
    for shown, final in zip(shown_in_turn, ("", "a.....", ".b....", "...abc", "", "ab.ab."), strict=True):
        is_shown, is_final = (np.array([name != "." for name in text.ljust(6, ".")]) for text in (shown, final))
        ones, no = np.ones(6, np.float32), np.zeros(6, bool)
        step = types.EnvStep(np.zeros((6, 1)), ones, is_final, no, None, tasks, is_shown)
        assert not played.done
        played.record(slots, step, first)
        first, num_steps = np.where(is_shown, is_final, first), num_steps + 1
    assert played.done and played.num_finished == played.num_expected == 9 and num_steps == 6
    assert played.result().unfinished == 0 and played.result().task_returns.keys() == {"a", "b", "c"}


def test_each_task_has_a_mean_of_its_own() -> None:
    result = _play([2, 8, 4], num_episodes=6, tasks=("a", "b", "unplayed")[:2]).result()
    assert result.task_returns == {"a": 3.0, "b": 8.0}  # environments 0 and 2 play a
    assert result.flat()["mean_return/a"] == 3.0 and "task_returns" not in result.flat()
    assert result.to_json()["task_returns"] == {"a": 3.0, "b": 8.0}


def test_an_episode_without_end_is_cut_off_and_counts_with_its_rewards_so_far() -> None:
    played = _play([2, 10**9], num_episodes=6, max_steps=7)
    assert played.num_finished == played.num_expected == 4
    result = played.result()
    assert (result.episodes, result.cut_off) == (4, 1)  # the other environment has played its three
    assert (result.max_return, result.mean_length) == (7.0, (2 + 2 + 2 + 7) / 4)
    assert result.to_json()["cut_off"] == 1 and "cut_off" not in _play([2], 2).result().to_json()


def test_episodes_that_have_not_ended_are_counted_apart() -> None:
    played = episodes.Played(np.arange(2), 3, max_steps=100)
    for place in range(3):
        step = types.EnvStep(
            np.zeros((2, 1)), np.ones(2, np.float32), np.array([place == 2, False]), np.zeros(2, bool)
        )
        played.record(np.arange(2), step, np.full(2, place == 0))
    assert (played.num_steps, played.num_finished, played.done) == (4, 1, False)
    result = played.result()
    assert (result.episodes, result.mean_return, result.unfinished) == (1, 2.0, 2)
    assert result.to_json()["unfinished"] == 2


@pytest.mark.parametrize(("in_a_hurry_after", "lengths"), [(0, [1, 1]), (5, [3, 5])])
def test_in_a_hurry_what_is_longer_than_the_longest_finished_episode_is_cut_off(
    in_a_hurry_after: int, lengths: list[int]
) -> None:
    played = episodes.Played(np.arange(2), 2, max_steps=100)
    for age in range(6):
        if age == in_a_hurry_after:
            played.hurry()
        final = np.array([age == 3, False])
        played.record(
            np.arange(2), types.EnvStep(np.zeros(2), np.ones(2), final, np.zeros(2, bool)), np.full(2, not age)
        )
    assert played.done and played.result().mean_length == np.mean(lengths)
    assert played.result().cut_off == (2 if in_a_hurry_after == 0 else 1)


def test_an_episode_that_ends_with_its_last_step_is_whole() -> None:
    played = _play([7, 7], num_episodes=4, max_steps=7)
    result = played.result()
    assert played.num_expected == 4
    assert (result.episodes, result.cut_off) == (4, 0)


def test_a_cut_off_episode_counts_for_its_task() -> None:
    assert _play([2, 10**9], 2, tasks=("a", "b"), max_steps=5).result().task_returns == {"a": 2.0, "b": 5.0}


def test_a_task_without_an_episode_and_a_run_of_one_task_show_none() -> None:
    assert _play([2], num_episodes=2, tasks=("a", "b")).result().task_returns == {"a": 2.0}
    alone = _play([2], num_episodes=2).result()
    assert "task_returns" not in alone.to_json() and alone.flat() == alone.to_json()


def _play_one(rewards: list[float], num_players: int) -> episodes.Episode:
    """Plays an episode in slot 1, after a few rewards of one that was given up."""
    followed = episodes.Episodes(2, num_players)
    ended: list[episodes.Episode] = []

    def record(reward: float, *, first: bool, final: bool) -> None:
        ended.extend(followed.record(np.array([1]), np.array([reward]), np.array([first]), np.array([final])))

    for number in range(3):
        record(float(number), first=number == 0, final=False)
    record(0.0, first=True, final=False)
    for number, reward in enumerate(rewards):
        record(reward, first=False, final=number == len(rewards) - 1)
    (episode,) = ended
    return episode


@pytest.mark.parametrize(
    ("rewards", "num_players", "total"),
    [([1.0, 2.0, 4.0], 1, 7.0), ([1.0, 2.0, 4.0], 2, 3.0), ([0.0, 0.0, 0.0, 1.0], 2, -1.0), ([1.0], 2, 1.0)],
)
def test_a_return_is_what_the_first_mover_received(rewards: list[float], num_players: int, total: float) -> None:
    assert _play_one(rewards, num_players) == episodes.Episode(slot=1, total=total, length=len(rewards))


def test_where_a_player_moves_again_a_return_follows_the_movers() -> None:
    followed, slots = episodes.Episodes(2, num_players=2), np.array([1])
    movers, rewards = [1, 1, 0, 0, 1], [0.0, 1.0, 2.0, 4.0, 8.0]  # 1 and 2 are player 1's, 4 and 8 the other's
    for number, (mover, reward) in enumerate(zip(movers, rewards, strict=True)):
        flags = np.array([number == 0]), np.array([number == 4])
        ended = followed.record(slots, np.array([reward]), *flags, movers=np.array([mover]))
    assert ended == [episodes.Episode(slot=1, total=1.0 + 2.0 - 4.0 - 8.0, length=4)]


def test_a_mean_over_episodes_has_its_standard_error() -> None:
    played = [episodes.Episode(slot=0, total=total, length=1) for total in (1.0, 2.0, 3.0, 6.0)]
    found = episodes.summarize(played).to_json()
    assert episodes.with_error(found) == {**found, "stderr_return": pytest.approx(np.std([1, 2, 3, 6], ddof=1) / 2)}
    # Two agents in each of two environments: as many as two episodes, whatever the agents have in common.
    of_games = pytest.approx(np.std([1, 2, 3, 6], ddof=0))
    assert episodes.with_error(found, num_seats=2) == {**found, "stderr_return": of_games}
    one = episodes.summarize(played[:1]).to_json()
    assert episodes.with_error(one) == one


def test_numbers_of_the_environment_are_means_over_the_episodes_that_have_them() -> None:
    played = episodes.Played(np.array([3, 5]), 4, max_steps=9)
    yes, no = np.ones(2, bool), np.zeros(2, bool)
    for depth, success in ((1.0, 1.0), (4.0, np.nan)):
        first = types.EnvStep(np.zeros((2, 1)), np.zeros(2, np.float32), no, no)
        played.record(np.array([5, 3]), first, yes)
        info = {"depth": np.array([depth, np.nan], np.float32), "success": np.array([success, 0], np.float32)}
        played.record(np.array([5, 3]), first._replace(terminated=yes, info=info), no)
    result = played.result()
    assert result.info == {"depth": 2.5, "success": 1 / 3}
    assert result.to_json()["info"] == result.info
    assert {"info/depth": 2.5, "info/success": 1 / 3}.items() <= result.flat().items() and "info" not in result.flat()


def test_there_are_57_games_and_ale_has_them_all():
    assert len(episodes.SCORES) == 57
    assert set(episodes.SCORES) <= set(roms.get_all_rom_ids())


def test_humans_beat_random_play_in_every_game():
    assert all(human > random for random, human in episodes.SCORES.values())


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
    assert episodes.normalized(game, score) == pytest.approx(expected)


def test_there_are_30_levels_and_humans_beat_random_play_in_each():
    assert len(episodes.DMLAB_SCORES) == 30
    assert all(human > random for random, human in episodes.DMLAB_SCORES.values())
    assert episodes.normalized("dmlab:rooms_watermaze", 54.0) == 1.0


def _result(task_returns):
    return episodes.Scores(30, 1.0, 0.0, 1.0, 1.0, 5.0, task_returns)


def test_of_several_tasks_the_score_is_the_mean_of_capped_ones():
    halves = {level: (random + human) / 2 for level, (random, human) in episodes.DMLAB_SCORES.items()}
    assert episodes.human_score_of("dmlab:dmlab30", _result(halves)) == pytest.approx(0.5)
    # One at a hundred times a human's counts 1, one at a random player's 0.
    halves["rooms_watermaze"], halves["natlab_fixed_large_map"] = 5400.0, 2.173
    assert episodes.human_score_of("dmlab:dmlab30", _result(halves)) == pytest.approx((28 * 0.5 + 1 + 0) / 30)


def test_without_an_episode_of_every_level_there_is_no_score():
    assert episodes.human_score_of("dmlab:dmlab30", _result({"rooms_watermaze": 5.0})) is None
    assert episodes.human_score_of("atari:Pong", _result({})) == pytest.approx(21.7 / 35.3)


@pytest.mark.parametrize("game", ["catch", "gym:CartPole-v1", "atari:Tetris"])
def test_games_without_published_scores_have_none(game):
    assert episodes.normalized(game, 10.0) is None
