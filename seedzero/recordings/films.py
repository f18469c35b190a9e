"""Videos of an episode with a saved agent, played without a learner."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from seedzero.checkpoints import saved_files
from seedzero.config import families
from seedzero.envs import env_base
from seedzero.evaluation import agent_choice, scoring
from seedzero.metrics import episodes
from seedzero.recordings import videos

_PLAY_REMOTE = (
    "workers send no pictures: record a video in the environment itself, and score the run by `seedzero evaluate "
    "--listen=HOST:PORT`"
)


def play(choice: agent_choice.AgentChoice, target: str | os.PathLike[str], *, longest_side: int = 0) -> dict[str, Any]:
    """Writes a video, .mp4 or .gif, of one episode with a saved agent.

    A game of two players is self-play; the return is the first mover's.

    target: the file to write. longest_side: larger pictures are thinned to at most so many pixels, both ways alike; 0:
    none is. Returns step, chosen, video, frames, return and length; cut_off is 1 if the limit of steps ended the
    episode; policy as `scoring.evaluate`. Raises as `scoring.evaluate`, and UsageError if the video cannot be written.
    """
    choice, file = choice.absolute(), pathlib.Path(target).absolute()
    config = scoring.read_config(choice, _PLAY_REMOTE)
    group = scoring.EnvPlayer(choice, config, 1, render=True)
    followed = episodes.Episodes(1, group.env.spec.num_players)
    limit = choice.most_steps(config)

    def frames() -> Iterator[np.ndarray]:
        while True:
            step, movers = group.step, group.env.spec.movers(group.step.observation)
            followed.record(np.zeros(1, int), step.reward, group.first, step.final, movers=movers)
            yield videos.thinned(group.env.render(), longest_side)
            if group.step.final[0] or followed.so_far(0).length >= limit:
                return
            group.advance()

    with env_base.closing(group.env):
        usual = families.of(config.env.id).frames_per_second
        fps = getattr(group.env, "frames_per_second", None) or usual
        num_frames = videos.write_video(file, frames(), fps)
    episode = followed.so_far(0)
    shown = {"frames": num_frames, "return": episode.total, "length": episode.length}
    shown |= {} if group.step.final[0] else {"cut_off": 1}
    return {**group.saved.to_json(), "video": os.fspath(target), **shown}


def film(path: pathlib.Path, target: pathlib.Path, max_steps: int, longest_side: int) -> dict[str, Any]:
    """Writes a small video of one episode with the newest checkpoint of a run that is being trained.

    Arguments, result and errors are as in `play`, for a trusted directory; the result has `ledger` and
    `other_hosts`, too: the checkpoint's counts of training steps.
    """
    _, saved, _ = saved_files.find(path / "checkpoints", "last", "params")
    choice = agent_choice.AgentChoice(path, saved.step, trusted=True, max_steps=max_steps)
    result = play(choice, target, longest_side=longest_side)
    return {**result, **{name: saved.counters[name] for name in ("ledger", "other_hosts") if name in saved.counters}}
