"""Checks that a change left saved agents as they were: their actions, returns, records and findings.

    python experiments/actor_fixtures.py write FILE         # in a checkout before the change
    python experiments/actor_fixtures.py compare FILE       # in one after it

Small agents with random parameters act through all doors: `load`, evaluations, matches, a person's games, records,
thoughts, policy servers, exports, engines and judges. There are agents with and without memory, frame stacks, masks,
continuous actions, chance and seats, with two seeds each. Bits differ between CPUs and versions of JAX, so both parts
run on one machine. The exit code of `compare` is 1 if anything differs.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import pathlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests"))
sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests" / "interfaces" / "serving"))
import quick_xla

os.environ["XLA_FLAGS"] = quick_xla.flags()  # most of the time is compilation

import jax
import large_games
import numpy as np
import play_runs
import policy_world
import saved_league
from jax import export as jax_export

import seedzero
from seedzero.acting.tables import match, scoring
from seedzero.api import exploitability, leagues, runs
from seedzero.cli import main as commands
from seedzero.core import errors
from seedzero.interfaces.page import thoughts
from seedzero.interfaces.serving import acting_engine, policy_serving
from seedzero.storage.checkpoints import checkpoint, checkpoint_dir, run_dirs

SEEDS = (0, 7)
STEPS, ROWS = 4, 3
CLOSE = 1e-5
"""Largest difference of numbers that differ only by rounding; such differences are reported, too."""
_WHOLE = {"evaluation__num_envs": 16, "evaluation__episodes": 16, "worker__envs_per_group": 16}
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "cartpole, lstm": ("gym:CartPole-v1", "ppo", {"network__lstm_width": 4}),
    "pendulum": ("gym:Pendulum-v1", "sac", {}),
    "catch": ("catch", "muzero", {"network__frame_stack": 3}),
    "catch, memory": ("catch", "muzero", {"muzero__memory": "lstm", "muzero__memory_width": 4}),
    "tictactoe": ("spiel:tic_tac_toe", "muzero", {}),
    "tictactoe, other": ("spiel:tic_tac_toe", "muzero", {"search__num_simulations": 6}),
    "tictactoe, rules": ("pgx:tic_tac_toe", "alphazero", {}),
    "connect four": ("spiel:connect_four(rows=4,columns=5)", "muzero", {}),
    "hex": ("spiel:hex(board_size=3)", "muzero", {}),
    "pig": ("spiel:pig(winscore=10)", "muzero", {"env__by_turns": True, "env__random_opening": 0}),
    "kuhn": ("spiel:kuhn_poker", "ppo", {}),
    "kuhn, lstm": ("spiel:kuhn_poker", "ppo", {"network__lstm_width": 4}),
    "roshambo": ("spiel:matrix_brps", "ppo", {}),
    "herd": ("pettingzoo:own_agents:Herd", "ppo", {}),
    "herd, policies": ("pettingzoo:own_agents:Herd", "ppo", {"seats__policies": '{"ant": "one", "*": "rest"}'}),
    "teams": ("pettingzoo:own_agents:Teams", "ppo", {**_WHOLE, "league__freeze_every": 400}),
}
"""Environment, agent and settings of each run."""
IN_TURN = ("tictactoe", "pig")
SEATS = ("kuhn, lstm", "roshambo")
AGENTS = ("herd", "herd, policies")
ENGINE = f"gtp:{sys.executable} {pathlib.Path(__file__).parents[1] / 'tests' / 'envs' / 'fake_gtp.py'} plays"


@functools.cache
def run(name: str) -> pathlib.Path:
    """Returns the directory of a run of this name."""
    env_id, agent, changes = RUNS[name]
    path = _ROOT / name.replace(", ", "-")
    if name.startswith("kuhn"):
        return saved_league.make_seats(path, env_id.partition(":")[2], **changes)
    path = play_runs.make(path, env_id, agent, **changes)
    if "seats__policies" in changes:
        config, spec = run_dirs.read_saved(path).config, run_dirs.read_spec(path)
        assert spec is not None
        params = play_runs.params_of(config, spec)
        of_players = {"one": params, "rest": jax.tree.map(lambda x: -x, params)}
        parts = checkpoint.by_player({player: {"params": each} for player, each in of_players.items()})
        arrays = {part: {part: tree} for part, tree in parts.items()}
        files = checkpoint_dir.CheckpointDir(path / "checkpoints", config.checkpoint, lambda: 0.0)
        files.write(91, arrays, {"num_updates": 91}, (), None)
    return path


_ROOT = pathlib.Path(tempfile.mkdtemp(prefix="seedzero-actors-"))


def _load(name: str, seed: int) -> Any:
    return seedzero.load(run(name), seed=seed, trust_run_dir=True)


def _inputs(policy: Any, seed: int, rows: int = ROWS) -> Iterator[dict[str, Any]]:
    """Yields observations of several rows, with masks and rewards where the policy needs them."""
    random = np.random.default_rng(seed)
    space, spec = policy.spec.observation_space, policy.spec
    for number in range(STEPS):
        shape, dtype = (rows, *space.shape), space.dtype
        bound = 2 if np.issubdtype(dtype, np.integer) else 1
        given: dict[str, Any] = {"observation": (bound * random.random(shape)).astype(dtype)}
        if spec.has_action_mask:
            legal = random.random((rows, spec.num_actions)) < 0.6
            legal[:, number % spec.num_actions] = True
            given["action_mask"] = legal
        given["reward"] = random.random(rows).astype(np.float32)
        yield given


def loaded(name: str, seed: int) -> Any:
    """Acts, explores, searches and thinks with `seedzero.load`."""
    policy, found = _load(name, seed), []
    for number, given in enumerate(_inputs(policy, seed)):
        frame = given.pop("observation")
        found.append(policy(frame, **given))
        if number == 1:
            policy.reset([0])
            found.append(policy(frame, explore=True, **given))
    with contextlib.suppress(errors.UsageError):
        found.append(policy.search(frame, **given)._replace(tree=None))
        if name == "tictactoe":
            policy.reset()
            found.append(policy.search(frame, num_simulations=2, **given)._replace(tree=None))
    policy.reset()
    with contextlib.suppress(errors.UsageError):
        found.append(policy.think(frame[0], **{key: value[0] for key, value in given.items()}).to_json())
    return found


def evaluated(name: str, seed: int, episodes: int = 4, **given: Any) -> Any:
    """Evaluates; all random numbers follow from the seed."""
    found = seedzero.evaluate(run(name), episodes, seed=seed, trust_run_dir=True, **given)
    return {**found.to_json(), "opponent": given.get("opponent") and "given"}


def against(name: str, other: str, seed: int) -> Any:
    return evaluated(name, seed, opponent=run(other))


def against_engine(name: str, seed: int) -> Any:
    return evaluated(name, seed, opponent=ENGINE)


def matched(name: str, players: Sequence[str], seed: int) -> Any:
    choice = runs.choose(run(name), seed=seed, trusted=True)
    return leagues.play(choice, "RUN", players, 6)


def _command(*words: str, lines: str = "") -> str:
    """Returns what a command prints on standard output."""
    output, before = os.dup(1), sys.stdin
    sys.stdin = io.StringIO(lines)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            with contextlib.redirect_stdout(io.TextIOWrapper(os.fdopen(os.dup(1), "wb"), write_through=True)):
                code = commands.main(words)
        finally:
            os.dup2(output, 1)
            os.close(output)
            sys.stdin = before
        file.seek(0)
        text = file.read().decode()
    assert code == 0, (words, code, text)
    return text.replace(str(_ROOT), "ROOT")


def _record_of(path: pathlib.Path) -> Any:
    record = seedzero.read_record(path)
    arrays = {key: value for key, value in record.arrays.items() if key not in ("render", "observation")}
    return {"header": {**record.header, "spec": None}, "arrays": arrays}


def recorded(name: str, seed: int) -> Any:
    """Records two episodes, and thinks again about some of their steps."""
    out = pathlib.Path(tempfile.mkdtemp(dir=_ROOT))
    _command("record", str(run(name)), f"--out={out / 'out'}", "--episodes=2", f"--seed={seed}", "--trust_run_dir")
    files, agents = sorted((out / "out").glob("*.npz")), thoughts.Agents()
    request = {"run_dir": str(run(name)), "step": "last", "player": None, "num_simulations": None, "trusted": True}
    found = [_record_of(file) for file in files]
    for number in (0, 2):
        thought = agents.answer({**request, "record": str(files[1]), "number": number})
        found.append({key: value for key, value in thought.items() if not key.endswith("seconds")})
    return found


def played(name: str, seat: str, seed: int) -> Any:
    """Plays two games as a person, with hints, thoughts and moves taken back."""
    words = "think\nhint\n0\nundo\n0\n1\n1\n0\n0\nthink\nsides\n1\n0\n1\n0\n1\nresign\nquit\n"
    text = _command("play", str(run(name)), f"--human={seat}", f"--seed={seed}", "--trust_run_dir", lines=words)
    files = sorted((run(name) / "records").glob("human-*.npz"), key=lambda file: file.stat().st_mtime_ns)
    records = [_record_of(file) for file in files]
    for file in files:
        file.unlink()
    return [text, records]


def engine(name: str, seed: int) -> Any:
    lines = "genmove b\ngenmove w\nundo\ngenmove w\nplay b C3\ngenmove w\nquit\n"
    return _command("gtp", f"--run_dir={run(name)}", f"--seed={seed}", lines=lines)


def positions(name: str, seed: int) -> Any:
    """Chooses moves in positions after random openings, several in one call."""
    game, player = scoring.engine(runs.choose(run(name), seed=seed, trusted=True), size=4)
    states = [match.opening(game, np.random.default_rng([seed, number]), 4) for number in range(6)]
    return [player(states), player(states[:1])]


def served(name: str, seed: int) -> Any:
    """Acts through a policy server, and lets it play against the run's own agent."""
    policy, found = _load(name, seed), list[Any]()
    saved = policy._saved
    with policy_world.serving({"main": saved}, seed=seed) as world, seedzero.connect(world.address) as remote:
        for number, given in enumerate(_inputs(policy, seed)):
            frame = given.pop("observation")
            if not number and not saved.agent.reads_reward:
                del given["reward"]
            found.append(remote(frame, **given))
            if number == 1:
                remote.reset([0])
        for look in (remote.search, remote.probabilities):
            with contextlib.suppress(errors.UsageError):
                found.append(look(frame, **given))
        if name in (*IN_TURN, *SEATS):
            found.append(evaluated(name, seed, opponent=world.address))
            found.append({**matched(name, ("main", world.address), seed), "players": None})
    return found


def by_http(name: str, seed: int) -> Any:
    """Asks a policy server's application for actions by HTTP."""
    policy, found = _load(name, seed), list[Any]()
    acting = acting_engine.ActingEngine({"main": policy._saved}, num_slots=4, max_batch=1, seed=seed)
    acting.compile()  # an answer waits only some seconds
    app = policy_serving.HttpActing(acting, "")
    thread = threading.Thread(target=acting.run, args=(lambda answers: None, lambda versions: None))
    thread.start()
    for given in _inputs(policy, seed, 1):
        fields = {"observation": given["observation"][0].tolist(), "findings": acting.offer().has_probabilities}
        if "action_mask" in given:
            fields["action_mask"] = given["action_mask"][0].tolist()
        content = json.dumps(fields).encode()
        environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/act", "REMOTE_ADDR": "127.0.0.1"}
        environ |= {"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(content))}
        answer = app({**environ, "wsgi.input": io.BytesIO(content)}, lambda *started: None)
        found.append(json.loads(b"".join(answer)))
    acting.stop()
    thread.join()
    return found


def exported(name: str, seed: int) -> Any:
    """Acts with the exported program, twice."""
    out = pathlib.Path(tempfile.mkdtemp(dir=_ROOT)) / "out"
    manifest = seedzero.export(run(name), out, trust_run_dir=True)
    program = jax_export.deserialize(bytearray((out / "act.stablehlo").read_bytes()))
    parameters, random = dict(np.load(out / "parameters.npz")), np.random.default_rng(seed)
    inputs: dict[str, Any] = {}
    for key, about in manifest["functions"]["act"]["inputs"].items():
        shape = [ROWS if size == "B" else size for size in about["shape"]]
        is_float = np.issubdtype(np.dtype(about["dtype"]), np.floating)
        inputs[key] = (random.random(shape) if is_float else np.ones(shape)).astype(about["dtype"])
    found = []
    for first in (True, False):
        outputs = program.call(parameters, {**inputs, "first": np.full(ROWS, first)})
        found.append(outputs)
        inputs |= {key: value for key, value in outputs.items() if key in inputs}
    return [sorted(manifest["functions"]), found]


def judged(name: str, seed: int) -> Any:
    if seed == SEEDS[0]:
        return exploitability.judge(run(name), "RUN", trusted=True).to_json()
    return large_games.judge(run(name), "RUN", num_moves=2_000, num_games=100, seed=seed, trusted=True).to_json()


def cases() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yields names of cases and functions that take the seed."""

    def named(door: Callable[..., Any], names: Sequence[str], *words: Any, **given: Any) -> Iterator[Any]:
        text = " ".join(map(str, (*words, *given.values())))
        for name in names:
            yield f"{door.__name__}: {name} {text}".strip(), functools.partial(door, name, *words, **given)

    yield from named(evaluated, ["cartpole, lstm", *AGENTS], max_episode_steps=12)
    yield from named(evaluated, ["teams", *SEATS])
    yield from named(against, ["kuhn, lstm"], "kuhn")
    yield from named(matched, ["kuhn, lstm"], ("main", saved_league.OLD))
    yield from named(matched, ["teams"], ("main", "main"))
    yield from named(judged, ["kuhn", "kuhn, lstm"])
    yield from named(loaded, ["cartpole, lstm", "pendulum", "tictactoe"])
    yield from named(evaluated, ["tictactoe"], opponent="mcts-4")
    yield from named(evaluated, ["tictactoe"], opponent="exhaustive")
    yield from named(evaluated, ["tictactoe"], policy="sample")
    yield from named(evaluated, ["tictactoe", "connect four", "tictactoe, rules", "pig"], episodes=70)
    yield from named(evaluated, ["connect four"], episodes=70, policy="sample")
    yield from named(evaluated, ["connect four", "tictactoe, rules"], opponent="mcts-4")
    yield from named(against_engine, ["hex"])
    yield from named(positions, ["connect four", "tictactoe, rules"])
    yield from named(matched, ["tictactoe", "connect four", "tictactoe, rules", "pig"], ("main", "main"))
    yield from named(matched, ["connect four"], ("random", "main"))
    yield from named(matched, ["tictactoe"], ("main", "mcts-4"))
    yield from named(played, ["tictactoe", "herd"], "1")
    yield from named(played, ["kuhn, lstm"], "2")
    yield from named(recorded, ["cartpole, lstm", "tictactoe", "catch, memory"])
    yield from named(served, ["cartpole, lstm", "tictactoe", "kuhn, lstm"])
    yield from named(by_http, ["tictactoe"])
    yield from named(exported, ["cartpole, lstm"])
    yield from named(engine, ["hex"])
    yield from named(against, ["tictactoe"], "tictactoe, other")
    yield from named(loaded, ["catch", "catch, memory"])
    yield from named(evaluated, ["catch", "pendulum"], max_episode_steps=12)
    yield from named(evaluated, ["pig"])
    yield from named(played, ["tictactoe, rules", "roshambo"], "1")
    yield from named(exported, ["catch"])


def _json(value: Any) -> Any:
    """Returns a value as JSON; numbers keep all their bits."""
    if isinstance(value, dict):
        return {str(key): _json(each) for key, each in value.items()}
    if hasattr(value, "_asdict"):
        return _json(value._asdict())
    if isinstance(value, (list, tuple)):
        return [_json(each) for each in value]
    return _json(np.asarray(value).tolist()) if isinstance(value, (np.ndarray, np.generic, jax.Array)) else value


def differences(one: Any, other: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """Yields the places where two values differ, and by how much; infinity unless both are fractions."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key in one:
            yield from differences(one[key], other[key], f"{place}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{place}/{number}")
    elif one != other and not (one != one and other != other):
        are_fractions = isinstance(one, float) and isinstance(other, float)
        yield place, abs(one - other) if are_fractions else float("inf")


def main(words: Sequence[str]) -> int:
    command, file = words[0], pathlib.Path(words[1])
    before = json.loads(file.read_text()) if file.exists() else {}
    found: dict[str, Any] = {}
    num_wrong = 0
    for name, case in cases():
        if words[2:] and not any(word in name for word in words[2:]):  # a part of the cases
            continue
        began = time.monotonic()
        try:
            found[name] = json.loads(json.dumps(_json([case(seed=seed) for seed in SEEDS])))
        except Exception as error:  # the other cases are worth knowing
            found[name] = f"{type(error).__name__}: {error}"
            print(found[name])
        text = f"{time.monotonic() - began:5.1f} s  {name}"
        if command == "compare":
            wrong = list(differences(before.get(name), found[name]))
            most = max((size for _, size in wrong), default=0.0)
            num_wrong += bool(wrong)
            kind = "equal" if not wrong else "rounded" if most < CLOSE else "DIFFERENT"
            text += f": {kind}" + "".join(f"; {place} by {size:.2g}" for place, size in wrong[:3])
        print(text, flush=True)
        if command == "write":
            file.write_text(json.dumps({**before, **found}))
    print(f"{len(found)} cases, {num_wrong} differ")
    return int(bool(num_wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
