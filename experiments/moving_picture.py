"""Draws trained agents at play in one moving picture, with the search's policy next to each.

    python experiments/moving_picture.py OUT.gif RUN_DIR... [--columns=3] [--seconds=12] [--fps=10] [--colours=48]

A run directory becomes a panel: the environment's picture, a bar for each action's probability under the search, and
the position's value, explained by a legend below. For an agent without a search, or with continuous actions, a
narrower panel has the picture and the return so far. After an episode the next one begins, with the next seed.
RUN_DIR#STEP plays an early checkpoint, to stand beside a later one: that of `seedzero train --max_updates=1 ...` has
learned little yet. Without a display MuJoCo draws with MUJOCO_GL=egl.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import seedzero
from seedzero.core import types
from seedzero.envs import env_base, registry
from seedzero.storage.checkpoints import run_dirs

SIDE = 216
"""Side of a picture in pixels."""
_BARS = 92
"""Width of an action's name and bar in pixels."""
_MARGIN, _TITLE = 12, 28
WIDTH = SIDE + _BARS + 3 * _MARGIN
"""Width of a panel with bars in pixels."""
_DARK, _LIGHT, _TEXT, _CHOSEN = (24, 26, 31), (70, 76, 88), (222, 226, 230), (242, 142, 43)

ACTIONS = {
    "gym:LunarLander-v3": ("none", "left", "main", "right"),
    "gym:MinAtar/Breakout-v1": ("none", "left", "right"),
}
"""Names of actions; in other environments they are numbers."""
KWARGS = {"gym:InvertedDoublePendulum-v5": '{"default_camera_config": {"distance": 2.6, "lookat": [0, 0, 0.4]}}'}
"""Arguments of environments that make pictures show more; other environments have their run's."""
LEGEND = (
    ("bar", "the search's probability of an action"),
    ("orange", "the chosen action"),
    ("value", "expected return"),
)
"""Words in the panels, and their meaning."""
TITLES = {
    "gym:LunarLander-v3": "LunarLander",
    "gym:MinAtar/Breakout-v1": "MinAtar Breakout",
    "spiel:connect_four(rows=4,columns=5)": "Connect four, 4x5",
}
"""Titles of panels; other environments are named by their id."""


@dataclasses.dataclass(frozen=True)
class Moment:
    """A moment of play: the environment's picture [H, W, 3] uint8, the search's policy [A], its value and its choice.

    Without a search the value is the return so far.
    """

    picture: np.ndarray
    policy: np.ndarray
    value: float
    action: int


NOTHING = np.zeros(0)
"""The policy of an agent that has no bars."""


def play(path: pathlib.Path, *, every: float, step: int | None = None) -> Iterator[Moment]:
    """Yields moments of greedy play, one episode after another, forever.

    every: steps between moments; below 1, each step is shown 1 / every times. step: of a checkpoint; None means the
    best.

    Raises:
      UsageError: not a run directory.
      CheckpointError: no checkpoint.
    """
    config = run_dirs.read_saved(path).config
    settings = dataclasses.replace(config.env.of_evaluation, random_opening=0)
    settings = dataclasses.replace(settings, kwargs=KWARGS.get(config.env.id, settings.kwargs))
    policy, repeats = seedzero.load(path, step), max(1, round(1 / every))
    has_bars = "search" in config.agent.SECTIONS
    with env_base.closing(registry.make(config.env.id, settings, 1, render=True)) as env:
        for seed in itertools.count(1):
            shown, is_over, count, total = env.reset([seed]), False, 0, 0.0
            has_bars = has_bars and not env.spec.is_continuous
            last = Moment(_picture(config.env.id, env, shown), NOTHING, total, -1)
            policy.reset()
            while not is_over:
                mask = {} if shown.action_mask is None else {"action_mask": shown.action_mask}
                if count % max(1, round(every)) == 0:
                    last = Moment(_picture(config.env.id, env, shown), NOTHING, total, -1)
                    if has_bars:
                        found = policy.search(shown.observation, **mask)
                        values = dict(value=float(found.value[0]), action=int(found.action[0]))
                        last = dataclasses.replace(last, policy=found.policy[0], **values)
                    yield from itertools.repeat(last, repeats)
                shown = env.step(policy(shown.observation, reward=shown.reward, **mask))
                is_over, count, total = bool(shown.final[0]), count + 1, total + float(shown.reward[0])
            picture = _picture(config.env.id, env, shown)
            last = Moment(picture, np.zeros_like(last.policy), total, -1)
            yield from itertools.repeat(last, 2 * repeats)


def _picture(env_id: str, env: env_base.VectorEnv, step: types.EnvStep) -> np.ndarray:
    """Returns the environment's own picture, or draws discs for connect four."""
    return discs(step.observation[0]) if env_id.startswith("spiel:connect_four") else env.render()


def discs(planes: np.ndarray, size: int = 43) -> np.ndarray:
    """Draws a board of connect four from OpenSpiel's planes [H, W, C], the players' discs from the lowest row up."""
    height, width, _ = planes.shape
    image = Image.new("RGB", (size * width, size * height), (33, 66, 120))
    draw = ImageDraw.Draw(image)
    for row, column in itertools.product(range(height), range(width)):
        mine, theirs = planes[height - 1 - row, column, :2]
        colour = (214, 64, 69) if mine else (237, 201, 72) if theirs else _DARK
        left, top = column * size + 4, row * size + 4
        draw.ellipse((left, top, left + size - 9, top + size - 9), colour)
    return np.asarray(image)


def panel(title: str, names: Sequence[str], moment: Moment) -> Image.Image:
    """Draws a panel: a title, the environment's picture, and a bar for each action, if any."""
    width = WIDTH if len(moment.policy) else WIDTH - _BARS
    image = Image.new("RGB", (width, SIDE + _TITLE + 2 * _MARGIN), _DARK)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(14)
    draw.text((_MARGIN, _MARGIN), title, _TEXT, font)
    image.paste(_fitted(moment.picture), (_MARGIN, _MARGIN + _TITLE))
    if not len(moment.policy):
        draw.text((_MARGIN + 4, _TITLE + SIDE - 8), f"return {moment.value:,.0f}", _TEXT, font)
        return image
    value = f"value {moment.value:+.2f}" if moment.action >= 0 else "the end"
    draw.text((SIDE + 2 * _MARGIN, _MARGIN), value, _TEXT, font)
    height = min(44, SIDE // len(names))
    for index, (name, share) in enumerate(zip(names, moment.policy, strict=True)):
        left, top = SIDE + 2 * _MARGIN, _MARGIN + _TITLE + index * height
        colour = _CHOSEN if index == moment.action else _LIGHT
        draw.text((left, top), name, _TEXT, ImageFont.load_default(12))
        draw.rectangle((left, top + 16, left + _BARS - 1, top + height - 8), _DARK, _LIGHT)
        draw.rectangle((left, top + 16, left + round(float(share) * (_BARS - 1)), top + height - 8), colour)
    return image


def _fitted(picture: np.ndarray) -> Image.Image:
    """Scales a picture to a square of side SIDE; small ones by a whole number."""
    image = Image.fromarray(picture)
    scale = SIDE / max(image.size)
    resized = image.resize(tuple(round(scale * x) for x in image.size), Image.Resampling.BOX)
    square = Image.new("RGB", (SIDE, SIDE), _DARK)
    square.paste(resized, tuple((SIDE - x) // 2 for x in resized.size))
    return square


def beside(panels: Sequence[Image.Image]) -> Image.Image:
    """Puts panels of one height side by side."""
    image = Image.new("RGB", (sum(part.width for part in panels), panels[0].height), _DARK)
    for part, left in zip(panels, itertools.accumulate((part.width for part in panels), initial=0), strict=False):
        image.paste(part, (left, 0))
    return image


def below(rows: Sequence[Image.Image]) -> Image.Image:
    """Puts images of any width below one another."""
    image = Image.new("RGB", (max(row.width for row in rows), sum(row.height for row in rows)), _DARK)
    for row, top in zip(rows, itertools.accumulate((row.height for row in rows), initial=0), strict=False):
        image.paste(row, (0, top))
    return image


def legend(width: int) -> Image.Image:
    """Draws a line that explains the panels, of a given width in pixels; breaks it in two if it does not fit."""
    font = ImageFont.load_default(13)
    texts = [f"{word}: {meaning}" for word, meaning in LEGEND]
    lines = ["     ".join(texts)] if font.getlength("     ".join(texts)) <= width - 2 * _MARGIN else texts
    image = Image.new("RGB", (width, 20 * len(lines) + _MARGIN), _DARK)
    draw = ImageDraw.Draw(image)
    for index, line in enumerate(lines):
        left, top = _MARGIN, 20 * index
        before, orange, after = line.partition("orange")
        for text, colour in ((before, _TEXT), (orange, _CHOSEN), (after, _TEXT)):
            draw.text((left, top), text, colour, font)
            left += round(font.getlength(text))
    return image


def whole(panels: Sequence[Image.Image], columns: int) -> Image.Image:
    """Draws a frame: rows as wide as a number of panels with bars, and the legend."""
    rows: list[list[Image.Image]] = [[]]
    for part in panels:
        if sum(other.width for other in rows[-1]) + part.width > columns * WIDTH:
            rows.append([])
        rows[-1].append(part)
    images = [beside(row) for row in rows]
    return below([*images, legend(max(image.width for image in images))])


def write(path: pathlib.Path, images: Sequence[Image.Image], *, fps: float, colours: int) -> None:
    """Writes a .gif that repeats; all frames share a palette, so that equal pixels are stored once."""
    sample = beside(images[:: max(1, len(images) // 8)])
    palette = sample.quantize(colours, Image.Quantize.MEDIANCUT)
    frames = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=round(1000 / fps), loop=0, optimize=True)


def main() -> None:
    arguments = _parser().parse_args()
    plays: list[Iterator[Moment]] = []
    labels: list[tuple[str, Any]] = []
    for item in arguments.run_dirs:
        run, _, label = item.partition("=")
        name, _, every = run.partition("@")
        path, _, step = name.partition("#")
        env_id = run_dirs.read_saved(pathlib.Path(path)).config.env.id
        plays.append(play(pathlib.Path(path), every=float(every or 1), step=int(step) if step else None))
        when = f", update {step}" if step else ""
        labels.append((label or TITLES.get(env_id, env_id) + when, ACTIONS.get(env_id)))
    images = []
    for moments in itertools.islice(zip(*plays, strict=True), round(arguments.seconds * arguments.fps)):
        parts = [
            panel(title, names or [str(i) for i in range(len(moment.policy))], moment)
            for (title, names), moment in zip(labels, moments, strict=True)
        ]
        images.append(whole(parts, arguments.columns))
    write(arguments.out, images, fps=arguments.fps, colours=arguments.colours)
    print(f"{arguments.out}: {len(images)} frames, {arguments.out.stat().st_size / 1e6:.2f} MB")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, metavar="OUT.gif")
    parser.add_argument(
        "run_dirs",
        nargs="+",
        metavar="RUN_DIR[#STEP][@EVERY][=TITLE]",
        help="#STEP: of a checkpoint (default: the best); @EVERY: steps from frame to frame; below 1: slower; =TITLE: "
        "the panel's, such as 'CartPole, before'",
    )
    parser.add_argument("--columns", type=int, default=3, help="panels with bars in a row (default 3)")
    parser.add_argument("--seconds", type=float, default=12, help="length of the picture (default 12)")
    parser.add_argument("--fps", type=float, default=10, help="frames a second (default 10)")
    parser.add_argument("--colours", type=int, default=48, help="colours of the palette (default 48)")
    return parser


if __name__ == "__main__":
    main()
