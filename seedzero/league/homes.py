"""Deals groups of environments to the players at home there, when players come and go; it is deterministic."""

from __future__ import annotations

from collections.abc import Sequence


def deal(homes: Sequence[int], learning: Sequence[int]) -> list[int]:
    """Returns the number of the player at home in each group [G] after some players came or left.

    All players get equally many groups, to within one, and as few groups as possible change their home. A player gives
    away and receives groups at equal distances. So even if the last groups have no environments yet, the others are
    shared about equally, too.

    Args:
      homes: [G] numbers of the players at home so far; groups of players that no longer learn are given away.
      learning: numbers of the learning players, at least one.
    """
    held = {player: [group for group, home in enumerate(homes) if home == player] for player in learning}
    least, num_more = divmod(len(homes), len(learning))
    by_size = sorted(learning, key=lambda player: len(held[player]), reverse=True)
    richest = by_size[:num_more]  # these keep what they have
    wanted = {player: least + (player in richest) for player in learning}
    free = [group for group, home in enumerate(homes) if home not in held]
    for player, groups in held.items():
        number = max(0, len(groups) - wanted[player])
        free += [groups[(2 * at + 1) * len(groups) // (2 * number)] for at in range(number)]
        wanted[player] -= len(groups)  # from here on, how many groups the player lacks
    found = list(homes)
    for group in sorted(free):
        found[group] = max(learning, key=lambda player: wanted[player])
        wanted[found[group]] -= 1
    return found
