"""Scores of a random player and of a human on 57 Atari games and on the 30 levels of DMLab-30.

Atari, of a professional human: Mnih et al. 2015, "Human-level control through deep reinforcement learning", extended
data table 2, and Badia et al. 2020, "Agent57", appendix H.4; evaluated with up to 30 no-ops at the start and at most
108,000 frames. DMLab-30: Espeholt et al. 2018, "IMPALA", reference scores of the appendix; of the test version where a
level has two.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from seedzero.monitoring.metrics import episodes

_ATARI = """
alien                227.8   7127.7   amidar                 5.8   1719.5   assault              222.4    742.0
asterix              210.0   8503.3   asteroids            719.1  47388.7   atlantis           12850.0  29028.1
bank_heist            14.2    753.1   battle_zone         2360.0  37187.5   beam_rider           363.9  16926.5
berzerk              123.7   2630.4   bowling               23.1    160.7   boxing                 0.1     12.1
breakout               1.7     30.5   centipede           2090.9  12017.0   chopper_command      811.0   7387.8
crazy_climber      10780.5  35829.4   defender            2874.5  18688.9   demon_attack         152.1   1971.0
double_dunk          -18.6    -16.4   enduro                 0.0    860.5   fishing_derby        -91.7    -38.7
freeway                0.0     29.6   frostbite             65.2   4334.7   gopher               257.6   2412.5
gravitar             173.0   3351.4   hero                1027.0  30826.4   ice_hockey           -11.2      0.9
jamesbond             29.0    302.8   kangaroo              52.0   3035.0   krull               1598.0   2665.5
kung_fu_master       258.5  22736.3   montezuma_revenge      0.0   4753.3   ms_pacman            307.3   6951.6
name_this_game      2292.3   8049.0   phoenix              761.4   7242.6   pitfall             -229.4   6463.7
pong                 -20.7     14.6   private_eye           24.9  69571.3   qbert                163.9  13455.0
riverraid           1338.5  17118.0   road_runner           11.5   7845.0   robotank               2.2     11.9
seaquest              68.4  42054.7   skiing            -17098.1  -4336.9   solaris             1236.3  12326.7
space_invaders       148.0   1668.7   star_gunner          664.0  10250.0   surround             -10.0      6.5
tennis               -23.8     -8.3   time_pilot          3568.0   5229.2   tutankham             11.4    167.6
up_n_down            533.4  11693.2   venture                0.0   1187.5   video_pinball      16256.9  17667.9
wizard_of_wor        563.5   4756.5   yars_revenge        3092.9  54576.9   zaxxon                32.5   9173.3
"""
_DMLAB = """
rooms_collect_good_objects_train        0.073      10  rooms_exploit_deferred_effects_train    8.501   85.65
rooms_select_nonmatching_object         0.312    65.9  rooms_watermaze                         4.065      54
rooms_keys_doors_puzzle                 4.135    53.8  language_select_described_object        -0.07   389.5
language_select_located_object          1.929   280.7  language_execute_random_task           -5.913  254.05
language_answer_quantitative_question   -0.33   184.5  lasertag_one_opponent_small            -0.224   12.65
lasertag_three_opponents_small         -0.214   18.55  lasertag_one_opponent_large            -0.083    18.6
lasertag_three_opponents_large         -0.102    31.5  natlab_fixed_large_map                  2.173    36.9
natlab_varying_map_regrowth             2.989   24.45  natlab_varying_map_randomized           7.346   42.35
skymaze_irreversible_path_hard            0.1     100  skymaze_irreversible_path_varied         14.4     100
psychlab_arbitrary_visuomotor_mapping   0.163   58.75  psychlab_continuous_recognition         0.224    58.3
psychlab_sequential_comparison          0.129    39.5  psychlab_visual_search                  0.085    78.5
explore_object_locations_small          3.575   74.45  explore_object_locations_large          4.673   65.65
explore_obstructed_goals_small           6.76     206  explore_obstructed_goals_large           2.61   119.5
explore_goal_locations_small             7.66   267.5  explore_goal_locations_large             3.14   194.5
explore_object_rewards_few              2.073    77.7  explore_object_rewards_many             2.438   106.7
"""


def _read(table: str) -> Mapping[str, tuple[float, float]]:
    rows = np.reshape(table.split(), (-1, 3)).tolist()
    return {name: (float(random), float(human)) for name, random, human in rows}


SCORES = _read(_ATARI)
"""Game -> mean returns of a random player and of a human."""
DMLAB_SCORES = _read(_DMLAB)
"""Level, by the name of its training version -> mean returns of a random player and of a human."""

_BY_KEY = {game.replace("_", ""): scores for game, scores in SCORES.items()}


def normalized(game: str, score: float) -> float | None:
    """Returns the human-normalized score, 0 for a random player and 1 for a human; None for other games.

    Args:
      game: the environment's id, or its name: a game in CamelCase or snake_case, or a level.
      score: mean undiscounted, unclipped return of whole games.
    """
    key = game.removeprefix("atari:").replace("_", "").lower()
    found = _BY_KEY.get(key) or DMLAB_SCORES.get(game.removeprefix("dmlab:"))
    if found is None:
        return None
    random, human = found
    return (score - random) / (human - random)


def of(env_id: str, result: episodes.Scores) -> float | None:
    """Returns the human-normalized score of an evaluation, or None without known human scores.

    For several tasks this is the mean of their scores, each capped at 1 (Espeholt et al. 2018), or None if a level of
    DMLab-30 was not played.
    """
    if not result.task_returns:
        return normalized(env_id, result.mean_return)
    if result.task_returns.keys() != DMLAB_SCORES.keys():
        return None
    scores = [normalized(name, mean_return) for name, mean_return in result.task_returns.items()]
    return float(np.mean([min(score, 1.0) for score in scores if score is not None]))
