"""Makes videos of episodes played by a saved agent, without a learner."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from seedzero.acting.actors import actor, agent_choice
from seedzero.acting.tables import run_games, table, videos
from seedzero.config import families
from seedzero.core import types
from seedzero.envs import env_base
from seedzero.monitoring.metrics import episodes
from seedzero.storage.checkpoints import saved_files, spec_file

_PLAY_REMOTE = (
    "workers send no pictures: record a video in the environment itself, and score the run by `seedzero evaluate "
    "--listen=HOST:PORT`"
)


def play(choice: agent_choice.AgentChoice, target: str | os.PathLike[str], *, longest_side: int = 0) -> dict[str, Any]:
    """Writes a video, .mp4 or .gif, of one episode with a saved agent.

    In a game of two players the agent plays itself, and the return is the first mover's. If several agents share an
    environment, it is their mean.

    target: the file to write. longest_side: larger pictures are thinned to at most this many pixels in both directions
    alike; 0 for no limit. Returns step, chosen, video, frames, return and length; cut_off is 1 if the limit of steps
    ended the episode; policy as `scoring.evaluate`. Raises as `scoring.evaluate`, and UsageError if the video cannot
    be written.
    """
    choice, file = choice.absolute(), pathlib.Path(target).absolute()
    config = run_games.read_config(choice, _PLAY_REMOTE)
    known = spec_file.read(choice.path)
    num_rows = max(1, known.num_seats(types.Role.EVALUATE) if known else 1)
    seats = table.RunTable(choice, config, num_rows, types.Role.TRAIN, render=True)
    followed = episodes.Episodes(num_rows, seats.env.spec.num_players)
    limit = choice.most_steps(config)

    def is_over() -> bool:
        return bool(np.all(seats.step.final[actor.shown(seats.step)]))

    def frames() -> Iterator[np.ndarray]:
        while True:
            step, rows, movers = (
                seats.step,
                np.flatnonzero(actor.shown(seats.step)),
                seats.env.spec.movers(seats.step.observation),
            )
            followed.record(rows, step.reward[rows], seats.first[rows], step.final[rows], movers=movers)
            yield videos.thinned(seats.env.render(), longest_side)
            if is_over() or followed.length.max() >= limit:
                return
            seats.advance()

    with env_base.closing(seats.env):
        usual = families.of(config.env.id).frames_per_second
        fps = getattr(seats.env, "frames_per_second", None) or usual
        num_frames = videos.write_video(file, frames(), fps)
    totals = [followed.so_far(row).total for row in range(num_rows)]
    played: dict[str, Any] = {
        "frames": num_frames,
        "return": sum(totals) / num_rows,
        "length": int(followed.length.max()),
    }
    played |= {"task_returns": dict(zip(known.tasks, totals, strict=True))} if known and num_rows > 1 else {}
    played |= {} if is_over() else {"cut_off": 1}
    return {**seats.saved.to_json(), "video": os.fspath(target), **played}


def film(path: pathlib.Path, target: pathlib.Path, max_steps: int, longest_side: int) -> dict[str, Any]:
    """Writes a small video of one episode with the newest checkpoint of a run in training.

    Arguments, result and errors are as in `play`, for a trusted directory. The result also has `ledger` and
    `other_hosts`, the checkpoint's counts of training steps.
    """
    _, saved, _ = saved_files.find(path / "checkpoints", "last", "params")
    choice = agent_choice.AgentChoice(path, saved.step, trusted=True, max_steps=max_steps)
    result = play(choice, target, longest_side=longest_side)
    return {**result, **{name: saved.counters[name] for name in ("ledger", "other_hosts") if name in saved.counters}}
