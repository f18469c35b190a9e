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
from typing import Any, NamedTuple

import ale_py
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from ale_py import roms

from seedzero.agents import muzero_model, muzero_unroll
from seedzero.checkpoints import saved_files
from seedzero.config import configs, presets
from seedzero.core import types
from seedzero.networks import network_inputs
from seedzero.ops import nstep

BALL_X, BALL_Y, PADDLE_Y = 49, 54, 51
"""ALE's memory cells of Pong (Anand et al. 2019, "Unsupervised State Representation Learning in Atari")."""
PADDLE_X = 188
"""The ball's cell when it is at the agent's paddle."""
UNROLL, BATCH = 5, 128
SCALE = 50.0
"""Pixels for each unit of the networks' outputs."""


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
    index = np.array(good)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--run_dir", type=pathlib.Path, help="read the hidden states of this run's network")
    arguments, settings = parser.parse_known_args()
    given = dict(setting.removeprefix("--").split("=", 1) for setting in settings)
    base = presets.get("atari", "muzero")
    config = configs.override(base, {**presets.cpu_values("atari", "muzero", explicit=set()), **given})
    size = config.env.frame_size
    learn, test = (windows(record(arguments.steps // share, size, seed=share)) for share in (1, 3))
    spec = types.EnvSpec((size, size, 1), "uint8", 6, 0, 255)
    parts = muzero_model.make_parts(config, spec, "cpu")
    lands, places = Readout(1), Readout(3)
    keys = jax.random.split(jax.random.key(0), 4)
    network: Any = muzero_model.init(parts, keys[0])
    if arguments.run_dir is not None:
        network, _ = saved_files.restore_params(arguments.run_dir / "checkpoints", "last", network)
    params: Any = {"model": network}
    moments = params["model"].pop(network_inputs.MOMENTS, None)
    if moments is not None and arguments.run_dir is None:
        for start in range(0, min(len(learn.seen), 4096), BATCH):
            batch = jnp.asarray(learn.seen[start : start + BATCH])
            moments = parts.network.add_moments(moments, {types.OBSERVATION: batch}, jnp.ones(len(batch), bool), None)
    with_moments = lambda model: model if moments is None else {**model, network_inputs.MOMENTS: moments}  # noqa: E731
    hidden = parts.network.represent(with_moments(params["model"]), {types.OBSERVATION: learn.seen[:1]})
    params |= {"lands": lands.init(keys[1], hidden), "places": places.init(keys[2], hidden)}

    def outputs(params: Any, seen: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        model = with_moments(params["model"])
        if arguments.run_dir is not None:
            model = jax.lax.stop_gradient(model)
        hidden = parts.network.represent(model, {types.OBSERVATION: seen})
        landing, states = lands.apply(params["lands"], hidden)[:, 0], [hidden]
        for k in range(UNROLL):
            hidden, _ = parts.network.dynamics(
                model, nstep.scale_gradient(hidden, muzero_unroll.HIDDEN_GRADIENT_SCALE), action[:, k]
            )
            states.append(hidden)
        stacked = jnp.stack(states, axis=1)
        found = places.apply(params["places"], stacked.reshape(-1, *stacked.shape[2:]))
        return landing, found.reshape(*stacked.shape[:2], 3)

    def loss(params: Any, seen: Any, action: Any, cells: Any, landing: Any) -> jax.Array:
        lands_at, places_at = outputs(params, seen, action)
        known = jnp.isfinite(landing)
        off = jnp.where(known, lands_at - (jnp.nan_to_num(landing) - 125) / SCALE, 0.0)
        weights = jnp.array([1.0] + [1 / UNROLL] * UNROLL)[:, None]
        total = jnp.mean(jnp.sum(weights * optax.huber_loss(places_at, (cells - 125) / SCALE, delta=0.2), axis=1))
        return total + jnp.mean(optax.huber_loss(off, delta=0.2))

    num_updates = arguments.passes * (len(learn.seen) // BATCH)
    decay = 1e-4 if arguments.run_dir is None else 0.0  # it would shrink the network that is only read
    optimizer = optax.chain(
        optax.clip_by_global_norm(5.0), optax.adamw(optax.cosine_decay_schedule(1e-3, num_updates), weight_decay=decay)
    )
    moved = optimizer.init(params)

    @jax.jit
    def update(params: Any, moved: Any, *batch: Any) -> tuple[Any, Any, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(params, *batch)
        step, moved = optimizer.update(gradients, moved, params)
        return optax.apply_updates(params, step), moved, value

    generator = np.random.default_rng(0)
    update(params, moved, *(x[:BATCH] for x in learn))
    began = time.process_time()
    for _ in range(arguments.passes):
        order = generator.permutation(len(learn.seen))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            params, moved, _ = update(params, moved, *(x[order[start : start + BATCH]] for x in learn))
    seconds = time.process_time() - began
    predict = jax.jit(outputs)
    found = [predict(params, test.seen[i : i + 512], test.action[i : i + 512]) for i in range(0, len(test.seen), 512)]
    landing = np.concatenate([x for x, _ in found]) * SCALE + 125
    cells = np.concatenate([x for _, x in found]) * SCALE + 125
    off, known = np.abs(landing - test.landing), np.isfinite(test.landing)
    error = np.median(np.abs(cells - test.cells), axis=0)
    still = np.median(np.abs(test.cells[:, :1] - test.cells), axis=0)
    print(
        json.dumps(
            {
                "settings": settings,
                "windows": len(learn.seen),
                "landing": round(float(np.median(off[known])), 2),
                "landing_above_8": round(float(np.mean(off[known] > 8)), 3),
                "ball_x": [round(float(e), 2) for e in error[:, 0]],
                "ball_y": [round(float(e), 2) for e in error[:, 1]],
                "paddle_y": [round(float(e), 2) for e in error[:, 2]],
                "paddle_y_if_still": [round(float(e), 2) for e in still[:, 2]],
                "processor_seconds": round(seconds, 1),
                "ms_an_update": round(1000 * seconds / num_updates, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
