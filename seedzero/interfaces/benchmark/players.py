"""Compares acting for several players, with a call for each, to one call with all rows.

Each player has its own parameters and an equal part of the rows. The program is the learner's, with rings; the parts
are not padded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax

from seedzero.agents import base
from seedzero.config import presets
from seedzero.device import acting, states, steps
from seedzero.interfaces.benchmark import subjects

AGENTS = ("muzero", "ppo")
PLAYERS = (1, 2, 4, 8)
ROWS = (32, 128, 512)


def run(
    preset: str = "",
    settings: subjects.Settings | None = None,
    *,
    players: Sequence[int] = PLAYERS,
    rows: Sequence[int] = ROWS,
    report: Callable[[subjects.Row], object] = lambda row: None,
    seconds: float = 36.0,
) -> dict[str, Any]:
    """Returns a row for each agent, number of rows and number of players, and passes it to `report` at once.

    It measures the settings' agent, or otherwise those of AGENTS with a part of the preset. seconds: for all rows,
    without compilation.
    """
    settings, found = settings or {}, []
    given = settings.get("run.agent")
    names = [str(given)] if given else [name for name in AGENTS if not preset or preset in presets.PARTS[name]]
    facts: dict[str, Any] = {}
    for name in names or AGENTS[:1]:
        layout = {"worker.envs_per_group": max(rows), "worker.num_groups": 1, "training.num_devices": 1}
        subject = subjects.make(preset, {"worker.num": 1, **layout, **settings, "run.agent": name}, AGENTS)
        facts = facts or subjects.facts(subject)
        made = [states.init_train(subject.setup, subject.config.run.seed + number) for number in range(max(players))]
        params = [subject.setup.agent.acting(train) for train in made]
        for num_rows in rows:
            for row in _rows(subject, params, num_rows, players, seconds / (len(names) * len(rows))):
                found.append({"agent": name, **row})
                report(found[-1])
    return {**facts, "rows": found}


def _rows(
    subject: subjects.Subject, params: Sequence[base.Params], num_rows: int, players: Sequence[int], seconds: float
) -> list[subjects.Row]:
    batch, act = subjects.batch(subject, num_rows), acting.make_act(subject.setup)
    actor, num_inserts, num_calls = subjects.filled_actor(subject), int(subject.num_inserts), 0

    def program(number: int) -> subjects.Program:
        share = num_rows // number
        cuts = [slice(begin, begin + share) for begin in range(0, num_rows, share)]
        parts = [jax.tree.map(operator.itemgetter(cut), batch) for cut in cuts]

        def call() -> Any:
            nonlocal actor, num_calls
            actions = []
            for own, part in zip(params, parts, strict=False):
                num_calls += 1
                actor, action = act(subject.seed, own, actor, part, steps.counters(num_inserts, 0, num_calls))
                actions.append(action)
            return actions

        return call

    several = {f"{number} players": program(number) for number in players}
    slices = subjects.interleave({"one": program(1), **several}, seconds=seconds)
    measured = []
    for number, name in zip(players, several, strict=True):
        milliseconds = subjects.milliseconds(slices, name)
        measured.append(
            {
                "rows": num_rows,
                "players": number,
                "milliseconds": milliseconds,
                "rows_per_second": 1e3 * num_rows / milliseconds,
                "ratio_to_one": subjects.ratio(slices, name, "one"),
            }
        )
    return measured
