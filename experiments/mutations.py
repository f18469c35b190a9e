"""Takes mechanisms out of the package one by one, and reports whether the quick tests notice.

    python experiments/mutations.py [--only NUMBER ...] [--near] [--marks MARKS]

For each entry of `MECHANISMS` it changes one place of seedzero/ in a copy of this working tree, and runs tests there
until one fails: first those of the changed file, then those of its room, then all others. An entry that no test
notices shows what `./run_tests.sh` without `--all` would let through. Forty entries take about an hour on one core.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[1]
QUICK = "not slow and not tpu and not thorough"
"""The marks of the tests that `./run_tests.sh` runs."""

# What the mechanism does; its text, which occurs once in the package; the text without it.
MECHANISMS: tuple[tuple[str, str, str], ...] = (
    ("returns bootstrap from no terminated position", "value = seen.value * ~seen.terminated", "value = seen.value"),
    (
        "a player's reward has its own sign",
        "reward = seen.reward * jnp.concatenate([sign[:, :1], sign[:, :-1]], axis=1)",
        "reward = seen.reward * sign",
    ),
    (
        "traces stop where an episode is cut",
        "decay = jnp.where(is_step, discount * trace_decay, 0.0)",
        "decay = discount * trace_decay * jnp.ones_like(value[:, 1:])",
    ),
    ("importance weights are clipped", "rho = jnp.minimum(clip_rho, jnp.exp(log_rho))", "rho = jnp.exp(log_rho)"),
    (
        "the value layer follows changed statistics",
        "return before.scale / after.scale, (before.mean - after.mean) / after.scale",
        "return before.scale / before.scale, before.mean * 0",
    ),
    ("greedy rows of the search have no noise", "gumbel=jnp.where(explore[:, None], noise, 0.0)", "gumbel=noise"),
    (
        "Dirichlet noise is for legal actions only",
        "dirichlet = jax.nn.softmax(jnp.where(invalid_actions, selection.LOWEST, gammas))",
        "dirichlet = jax.nn.softmax(gammas)",
    ),
    (
        "the search halves by score",
        "order = _best_first(_race_scores(position, race))",
        "order = _best_first(-_race_scores(position, race))",
    ),
    (
        "rows that are overwritten while in use are not sampled",
        "return jnp.where(age < length - oldest, weight, 0.0)",
        "return weight",
    ),
    (
        "a new row cuts the oldest frame stack off",
        "weight = put(rings.weight, (now + stack - 1) % length, jnp.zeros_like(row.reward))",
        "weight = rings.weight",
    ),
    (
        "an episode's last row begins no step",
        "jnp.where(first, jnp.where(final & crosses_episodes, largest, 0.0), given)",
        "given",
    ),
    (
        "training waits for its share of steps",
        "may_update = progress.can_update and not warming_up and surplus < band.half_width",
        "may_update = progress.can_update and not warming_up",
    ),
    (
        "acting waits for training",
        "may_act = progress.can_act and (warming_up or surplus > -band.half_width)",
        "may_act = progress.can_act",
    ),
    (
        "a queue holds rows back at its limit",
        "held: np.ndarray = self._num_ready[slots] >= np.where(self._is_live[slots], self._data.max_lag, 1)",
        "held: np.ndarray = self._num_ready[slots] < 0",
    ),
    ("lost workers' steps are counted", "num_lost = int(np.count_nonzero(was_pending & first))", "num_lost = 0"),
    (
        "a gradient that is not finite changes nothing",
        'accepted = jnp.isfinite(metrics["loss"]) & jnp.isfinite(grad_norm)',
        'accepted = jnp.isfinite(metrics["loss"]) | True',
    ),
    (
        "padding never reaches a loss",
        "return jnp.where(windows.counts.reshape(-1, *[1] * (x.ndim - 1)), x, jnp.zeros_like(x))",
        "return x",
    ),
    (
        "PPO acts greedily where asked",
        "action = jnp.where(draws, jax.random.categorical(key, logits), jnp.argmax(logits, axis=-1))",
        "action = jax.random.categorical(key, logits)",
    ),
    (
        "PPO's learning rate decays",
        "return config.optimizer.learning_rate * share, clip_ratio",
        "return config.optimizer.learning_rate * jnp.ones(()), clip_ratio",
    ),
    (
        "actions behind an end follow the policy",
        "return jnp.argmax(policy_logits + noise, axis=-1).astype(jnp.int32)",
        "return jnp.argmax(noise, axis=-1).astype(jnp.int32)",
    ),
    (
        "the hidden state's gradient is halved",
        "hidden = nstep.scale_gradient(hidden, HIDDEN_GRADIENT_SCALE)",
        "hidden = nstep.scale_gradient(hidden, 1.0)",
    ),
    (
        "a token is compared",
        'if scheme == _SCHEME and hmac.compare_digest(given.encode(errors="replace"), self._token):',
        "if scheme == _SCHEME:",
    ),
    (
        "the page answers its own names only",
        'if len(request.headers.getlist("host")) != 1 or not self._hosts.allows(request.headers["host"]):',
        'if len(request.headers.getlist("host")) != 1:',
    ),
    (
        "the page takes moves from itself only",
        'return site == "same-origin" and request.headers.get("content-type", "").startswith("application/json")',
        "return True",
    ),
    (
        "a request's size is limited before it is read",
        "if (size := int(digits, base)) > self._max_bytes:",
        "if (size := int(digits, base)) < 0:",
    ),
    (
        "a step out of order is refused",
        "if sequence == self.next_sequence and not self.pending:",
        "if sequence >= self.next_sequence and not self.pending:",
    ),
    (
        "an observation that is not finite is refused",
        'if values.dtype.kind == "f" and not codec.all_true(finite := np.isfinite(values)):',
        'if values.dtype.kind == "?" and not codec.all_true(finite := np.isfinite(values)):',
    ),
    (
        "a file is whole or the old one",
        "        temporary.replace(path)\n    except OSError:",
        "        path.write_bytes(content)\n    except OSError:",
    ),
    (
        "a replaced directory survives a crash",
        "if leftover.suffix == REPLACED_SUFFIX and not _place(leftover).exists():",
        "if leftover.suffix == REPLACED_SUFFIX and False:",
    ),
    (
        "a damaged file of a checkpoint is found",
        "is_read = content and num_bytes == expected.num_bytes",
        "is_read = False",
    ),
    (
        "a lease is free after its time only",
        "if holder is None or is_free or self._clock() - changed >= holder.seconds:",
        "if holder is None or is_free or self._clock() >= changed:",
    ),
    (
        "ratings count a virtual draw",
        "before = scores.get((low, high), (0.5, 1.0))  # the virtual draw",
        "before = scores.get((low, high), (0.0, 0.0))",
    ),
    (
        "matches prefer opponents by win rate",
        "weights = WEIGHTINGS[weighting](np.asarray(rates, np.float64))",
        "weights = np.ones_like(np.asarray(rates, np.float64))",
    ),
    (
        "games come in pairs of equal openings",
        "return turn_games.Positions(game, [begun[index // 2] for index in range(num_games)], generator)",
        "return turn_games.Positions(game, [begun[index % len(begun)] for index in range(num_games)], generator)",
    ),
    (
        "Atari's frame limit is not an end of the game",
        "truncated = (self._game_frames - self._noops >= self._frame_limit) & ~first & ~terminated",
        "truncated = np.zeros_like(first)",
    ),
    (
        "a trial is stopped for a worse curve",
        "return sum(value > curves[number][newest] for value in found) >= max(1, len(found) // _KEEP)",
        "return False",
    ),
    ("a dead worker is started again", "worker.pause(delay)", "return self._give_up(index, death)"),
    (
        "a served player changes with its parameters",
        "self._params[player] = params\n                    self._versions",
        "self._versions",
    ),
    (
        "a session's first row is that of an episode",
        "self._total[slots] = np.where(first, 0.0, self._total[slots] + self._sign[slots] * reward)",
        "self._total[slots] = self._total[slots] + self._sign[slots] * reward",
    ),
    (
        "two learners never share a run",
        "        return False\n    return True\n\n\ndef _written_pid",
        "        return True\n    return True\n\n\ndef _written_pid",
    ),
)


def place_of(text: str, root: pathlib.Path = ROOT) -> pathlib.Path:
    """Returns the package's file that has a text, which must occur once."""
    found = [path for path in sorted((root / "seedzero").rglob("*.py")) for _ in range(path.read_text().count(text))]
    if len(found) != 1:
        raise SystemExit(f"{len(found)} places have the text of a mechanism; expected one: {text}")
    return found[0]


def suites(path: pathlib.Path, copy: pathlib.Path, *, near: bool) -> Iterator[str]:
    """Yields tests of a changed file, from near to far, as arguments of pytest. near: up to those of its room."""
    inside = path.relative_to(copy / "seedzero")
    own, room = copy / "tests" / inside.with_name(f"{inside.stem}_test.py"), copy / "tests" / inside.parts[0]
    if own.exists():
        yield str(own)
    if room.is_dir():
        yield str(room)
    if not near:
        yield str(copy / "tests")


def noticed(mechanism: tuple[str, str, str], copy: pathlib.Path, marks: str, *, near: bool) -> str:
    """Returns the first test that fails without a mechanism, or ""."""
    _, text, without = mechanism
    path = place_of(text, copy)
    whole = path.read_text()
    path.write_text(whole.replace(text, without))
    try:
        for suite in suites(path, copy, near=near):
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-x",
                "-q",
                "--no-header",
                "-p",
                "no:cacheprovider",
                "-m",
                marks,
                suite,
            ]
            environment = {**os.environ, "PYTHONPATH": str(copy)}
            done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
            if done.returncode not in (0, 5):  # 5: no test has the marks
                failures = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
                return failures[0].split(" - ")[0] if failures else done.stdout[-200:]
    finally:
        path.write_text(whole)
    return ""


def main() -> None:
    """Reads the command line, and prints a line for each mechanism."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, nargs="*", default=[], help="numbers of mechanisms, from 1")
    parser.add_argument("--near", action="store_true", help="leave out the tests of other rooms")
    parser.add_argument("--marks", default=QUICK, help="marks of the tests to run")
    arguments = parser.parse_args()
    chosen = [(n, one) for n, one in enumerate(MECHANISMS, 1) if not arguments.only or n in arguments.only]
    missed = 0
    with tempfile.TemporaryDirectory() as directory:
        copy = pathlib.Path(directory) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".venv", ".git", "runs", "__pycache__"))
        for number, mechanism in chosen:
            started = time.monotonic()
            test = noticed(mechanism, copy, arguments.marks, near=arguments.near)
            missed += not test
            print(
                f"{number:2} {time.monotonic() - started:5.0f} s  {mechanism[0]}: {test or 'NOT NOTICED'}", flush=True
            )
    print(f"{len(chosen) - missed} of {len(chosen)} mechanisms noticed")


if __name__ == "__main__":
    main()
