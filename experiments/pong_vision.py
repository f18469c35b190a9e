"""Measures what MuZero's network can see and foresee in Pong, by supervised learning alone.

    python experiments/pong_vision.py [--steps=30000] [--passes=10] [--run_dir=RUN] [SETTING ...]

Settings are those of `seedzero train` (`--network.channels=32 --env.frame_size=84 ...`) on top of preset `atari` on a
CPU. A player that follows the ball's place in ALE's memory, with many random moves, records games with sticky actions.
MuZero's own representation and dynamics then learn from its windows

- where the ball will reach the agent's paddle, from the root alone;
- the places of the ball and of the paddle after 0 to 5 unrolled steps with the actions taken, with MuZero's gradients.

It prints the median errors in other games, in pixels of the screen (the paddle is 16 high), and the processor seconds
of learning. What a supervised network cannot see, no reward will teach it. With --run_dir the network is that of a
run's last checkpoint, and only the readouts learn: the errors tell what rewards have taught it to see.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import ale_py
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from ale_py import roms

from seedzero.agents import muzero_loss, muzero_model
from seedzero.config import configs, presets
from seedzero.core import types
from seedzero.networks import observations
from seedzero.ops import nstep
from seedzero.storage.checkpoints import saved_files

BALL_X, BALL_Y, PADDLE_Y = 49, 54, 51
"""ALE's memory cells of Pong (Anand et al. 2019, "Unsupervised State Representation Learning in Atari")."""
PADDLE_X = 188
"""The ball's cell when it is at the agent's paddle."""
UNROLL, BATCH = 5, 128
MIDDLE, SCALE = 125.0, 50.0
"""The place in pixels at which the networks' outputs are 0, and pixels for each unit of them."""


class Games(NamedTuple):
    """Steps of games, one after the other: T steps of size N frames."""

    frames: np.ndarray  # [T, N, N] uint8
    cells: np.ndarray  # [T, 3] ball x, ball y, paddle y
    action: np.ndarray  # [T] int32, taken after the frame
    first: np.ndarray  # [T] bool


def area(before: int, after: int) -> np.ndarray:
    """Returns the matrix [after, before] that averages pixels by the area that they share."""
    edges = np.linspace(0, before, after + 1)
    low, high = edges[:-1, None], edges[1:, None]
    pixel = np.arange(before)[None]
    return np.clip(np.minimum(high, pixel + 1) - np.maximum(low, pixel), 0, None) / (high - low)


def record(num_steps: int, size: int, seed: int) -> Games:
    """Plays with sticky actions and four frames a step, as the preset does."""
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.25)
    ale.loadROM(roms.get_rom_path("pong"))
    actions, generator = ale.getMinimalActionSet(), np.random.default_rng(seed)
    rows, columns = area(210, size), area(160, size)
    found: list[list[Any]] = [[], [], [], []]
    frame, first, held, left = ale.getScreenGrayscale(), True, 0, 0
    for _ in range(num_steps):
        ram = ale.getRAM()
        ball_y, paddle = int(ram[BALL_Y]), int(ram[PADDLE_Y])
        if left:
            left -= 1
        elif generator.random() < 0.15:
            held, left = int(generator.integers(len(actions))), int(generator.integers(1, 8))
        else:
            off = ball_y - paddle - 8 + generator.normal(0, 6)
            held = 0 if abs(off) < 4 else 3 if off > 0 else 2  # RIGHT is up, LEFT is down
        found[0].append(np.rint(rows @ frame @ columns.T).astype(np.uint8))
        found[1].append([int(ram[cell]) for cell in (BALL_X, BALL_Y, PADDLE_Y)])
        found[2].append(held)
        found[3].append(first)
        first = False
        pictures = []
        for number in range(4):
            ale.act(actions[held])
            if number >= 2:
                pictures.append(ale.getScreenGrayscale())
        frame = np.maximum(*pictures)
        if ale.game_over():
            ale.reset_game()
            frame, first = ale.getScreenGrayscale(), True
    return Games(*(np.array(x, dtype) for x, dtype in zip(found, (np.uint8, np.float32, np.int32, bool), strict=True)))


class Windows(NamedTuple):
    seen: np.ndarray  # [B, N, N, 4]
    action: np.ndarray  # [B, 5]
    cells: np.ndarray  # [B, 6, 3]
    landing: np.ndarray  # [B] the ball's y at the paddle; NaN unless it is on its way there


def windows(games: Games) -> Windows:
    """Returns all windows whose ball is in play throughout."""
    x, y = games.cells[:, 0], games.cells[:, 1]
    landing = np.full(len(x), np.nan, np.float32)
    for t in range(len(x) - 2, -1, -1):
        if not x[t] < x[t + 1] or games.first[t + 1] or y[t] == 0 or y[t + 1] == 0:
            continue
        if x[t + 1] >= PADDLE_X:
            landing[t] = y[t] + (y[t + 1] - y[t]) * (PADDLE_X - x[t]) / (x[t + 1] - x[t])
        else:
            landing[t] = landing[t + 1]
    landing[x > PADDLE_X] = np.nan
    good = []
    for t in range(3, len(x) - UNROLL):
        inside = slice(t - 2, t + UNROLL + 1)
        if not games.first[inside].any() and (y[inside] > 0).all() and 50 < x[t] < 200:
            good.append(t)
    index = np.array(good, int)
    return Windows(
        np.stack([games.frames[index - k] for k in (3, 2, 1, 0)], axis=-1),
        np.stack([games.action[index + k] for k in range(UNROLL)], axis=1),
        np.stack([games.cells[index + k] for k in range(UNROLL + 1)], axis=1),
        landing[index],
    )


class Readout(nn.Module):
    """Reads numbers off a hidden state."""

    num_outputs: int

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        x = hidden.reshape(hidden.shape[0], -1)
        x = nn.relu(nn.LayerNorm()(nn.Dense(128)(x)))
        return nn.Dense(self.num_outputs)(x)


class Network:
    """MuZero's network with readouts; `params` are what learns: the model, and both readouts."""

    def __init__(self, config: configs.Config, learn: Windows, run_dir: pathlib.Path | None) -> None:
        """run_dir: the run whose network is only read; None to learn it, too."""
        size = config.env.frame_size
        self._parts = muzero_model.make_parts(config, types.EnvSpec((size, size, 1), "uint8", 6, 0, 255), "cpu")
        self._lands, self._places, self.is_fixed = Readout(1), Readout(3), run_dir is not None
        keys = jax.random.split(jax.random.key(0), 4)
        model: Any = muzero_model.init(self._parts, keys[0])
        if run_dir is not None:
            model, _ = saved_files.restore_params(run_dir / "checkpoints", "last", model)
        self._moments = model.pop(observations.MOMENTS, None)
        if self._moments is not None and not self.is_fixed:
            self._add_moments(learn.seen[:4096])
        hidden = self._parts.network.represent(self._whole(model), {types.OBSERVATION: learn.seen[:1]})
        lands, places = self._lands.init(keys[1], hidden), self._places.init(keys[2], hidden)
        self.params: Any = {"model": model, "lands": lands, "places": places}

    def _add_moments(self, seen: np.ndarray) -> None:
        """Takes the mean and the spread of inputs from the first windows; they do not learn."""
        for start in range(0, len(seen), BATCH):
            batch = jnp.asarray(seen[start : start + BATCH])
            is_valid = jnp.ones(len(batch), bool)
            self._moments = self._parts.network.add_moments(self._moments, {types.OBSERVATION: batch}, is_valid, None)

    def _whole(self, model: Any) -> Any:
        return model if self._moments is None else {**model, observations.MOMENTS: self._moments}

    def outputs(self, params: Any, seen: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns where the ball lands [B], and the cells [B, 6, 3] at the root and after each action; see `SCALE`."""
        model = self._whole(params["model"])
        if self.is_fixed:
            model = jax.lax.stop_gradient(model)
        hidden = self._parts.network.represent(model, {types.OBSERVATION: seen})
        landing, states = self._lands.apply(params["lands"], hidden)[:, 0], [hidden]
        for k in range(UNROLL):
            scaled = nstep.scale_gradient(hidden, muzero_loss.HIDDEN_GRADIENT_SCALE)
            hidden, _ = self._parts.network.dynamics(model, scaled, action[:, k])
            states.append(hidden)
        stacked = jnp.stack(states, axis=1)
        found = self._places.apply(params["places"], stacked.reshape(-1, *stacked.shape[2:]))
        return landing, found.reshape(*stacked.shape[:2], 3)

    def loss(self, params: Any, seen: Any, action: Any, cells: Any, landing: Any) -> jax.Array:
        """Returns the loss of a batch of `Windows`; unrolled steps count as in MuZero."""
        lands_at, places_at = self.outputs(params, seen, action)
        off = jnp.where(jnp.isfinite(landing), lands_at - (jnp.nan_to_num(landing) - MIDDLE) / SCALE, 0.0)
        weights = jnp.array([1.0] + [1 / UNROLL] * UNROLL)[:, None]
        at_places = weights * optax.huber_loss(places_at, (cells - MIDDLE) / SCALE, delta=0.2)
        return jnp.mean(jnp.sum(at_places, axis=1)) + jnp.mean(optax.huber_loss(off, delta=0.2))


def learn_from(network: Network, learn: Windows, passes: int) -> tuple[Any, float, int]:
    """Returns the parameters after some passes over the windows, the processor seconds, and the number of updates."""
    num_updates = passes * (len(learn.seen) // BATCH)
    decay = 0.0 if network.is_fixed else 1e-4  # it would shrink the network that is only read
    optimizer = optax.chain(
        optax.clip_by_global_norm(5.0), optax.adamw(optax.cosine_decay_schedule(1e-3, num_updates), weight_decay=decay)
    )

    @jax.jit
    def update(params: Any, moved: Any, *batch: Any) -> tuple[Any, Any]:
        gradients = jax.grad(network.loss)(params, *batch)
        step, moved = optimizer.update(gradients, moved, params)
        return optax.apply_updates(params, step), moved

    params, generator = network.params, np.random.default_rng(0)
    moved = optimizer.init(params)
    update(params, moved, *(x[:BATCH] for x in learn))  # compiles it
    began = time.process_time()
    for _ in range(passes):
        order = generator.permutation(len(learn.seen))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            params, moved = update(params, moved, *(x[order[start : start + BATCH]] for x in learn))
    return params, time.process_time() - began, num_updates


def measure(network: Network, params: Any, test: Windows) -> dict[str, Any]:
    """Returns the errors in pixels: medians, and the part of landings that miss by more than half a paddle."""
    predict = jax.jit(network.outputs)
    found = [predict(params, test.seen[i : i + 512], test.action[i : i + 512]) for i in range(0, len(test.seen), 512)]
    landing, cells = (np.concatenate(x) * SCALE + MIDDLE for x in zip(*found, strict=True))
    off = np.abs(landing - test.landing)[np.isfinite(test.landing)]
    error = np.median(np.abs(cells - test.cells), axis=0)
    still = np.median(np.abs(test.cells[:, :1] - test.cells), axis=0)
    return {
        "landing": round(float(np.median(off)), 2),
        "landing_above_8": round(float(np.mean(off > 8)), 3),
        "ball_x": [round(float(e), 2) for e in error[:, 0]],
        "ball_y": [round(float(e), 2) for e in error[:, 1]],
        "paddle_y": [round(float(e), 2) for e in error[:, 2]],
        "paddle_y_if_still": [round(float(e), 2) for e in still[:, 2]],
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--run_dir", type=pathlib.Path, help="read the hidden states of this run's network")
    arguments, settings = parser.parse_known_args(argv)
    given = dict(setting.removeprefix("--").split("=", 1) for setting in settings)
    base = presets.get("atari", "muzero")
    config = configs.override(base, {**presets.cpu_values("atari", "muzero", explicit=set()), **given})
    size = config.env.frame_size
    learn, test = (windows(record(arguments.steps // share, size, seed=share)) for share in (1, 3))
    network = Network(config, learn, arguments.run_dir)
    params, seconds, num_updates = learn_from(network, learn, arguments.passes)
    found = {"settings": settings, "windows": len(learn.seen), **measure(network, params, test)}
    found |= {"processor_seconds": round(seconds, 1), "ms_an_update": round(1000 * seconds / num_updates, 1)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
