"""Exports: what is written, and that programs give a policy's actions where this package is not."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import policies  # beside this file: see conftest.py
import pytest
import quick_xla
from gymnasium import spaces
from gymnasium.vector import utils as batches
from jax import export as jax_export

from seedzero.acting.actors import acting_policy
from seedzero.acting.exports import exporting
from seedzero.core import errors, types
from seedzero.envs import envpool_env, gym_spaces
from seedzero.storage.checkpoints import durable

flatbuffers = pytest.importorskip("flatbuffers")

_MASKED = types.EnvSpec((4,), "float32", 3, has_action_mask=True)
_VECTOR = types.EnvSpec((4,), "float32", 3)
_GRID = types.EnvSpec((6, 5, 1), "uint8", 3, observation_low=0, observation_high=1)
_CONTINUOUS = types.EnvSpec((4,), "float32", 0, action_low=(-2.0,), action_high=(2.0,))
_STEPS, _ROWS = 3, 5
_RANDOM = np.random.default_rng(1)
_SEEN = _RANDOM.normal(size=(_STEPS, _ROWS, 4)).astype(np.float32)
_REWARD = _RANDOM.normal(size=(_STEPS, _ROWS)).astype(np.float32)
_LEGAL = np.arange(3) != _RANDOM.integers(3, size=(_STEPS, _ROWS, 1))
_FOREIGN = """
import json, sys
import numpy as np
sys.modules["seedzero"] = None  # importing it would fail
from jax import export

def load(folder, name):
    with open(f"{folder}/{name}.stablehlo", "rb") as file:
        exported = export.deserialize(bytearray(file.read()))
    parameters = dict(np.load(f"{folder}/parameters.npz"))
    return lambda **inputs: exported.call(parameters, inputs)

given = dict(np.load("given.npz"))
found = {}
for agent in ("muzero", "vtrace", "memory"):
    act = load(agent, "act")
    inputs = json.load(open(f"{agent}/manifest.json"))["functions"]["act"]["inputs"]
    rows = given["seen"].shape[1]
    state = {
        name: np.zeros([rows, *about["shape"][1:]], about["dtype"])
        for name, about in inputs.items() if name.startswith("state/")
    }
    actions = []
    for step, observation in enumerate(given["seen"]):
        more = {"action_mask": given["legal"][step]} if agent == "muzero" else {"reward": given["reward"][step]}
        first = np.full(rows, step == 0)
        key = np.zeros(2, np.uint32)
        outputs = act(observation=observation, first=first, explore=np.zeros(rows, bool), key=key, **more, **state)
        actions.append(outputs.pop("action"))
        state = outputs
    found[agent] = np.stack(actions)
stacked = np.concatenate([given["seen"][0]] * 2, axis=-1)
hidden = load("muzero", "represent")(observation=stacked)
found["value"] = load("muzero", "predict")(**hidden)["value"]
found["reward"] = load("muzero", "dynamics")(**hidden, action=np.zeros(rows, np.int32))["reward"]
np.savez("found.npz", **found)
"""


def _export(agent: Any, directory: pathlib.Path, **options: Any) -> dict[str, Any]:
    return exporting.export(agent, directory, **{"platforms": ["cpu"], "batch_size": None, **options})


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A directory with two exports, and what a process without this package computes with them."""
    path = tmp_path_factory.mktemp("exported")
    _export(policies.saved(_MASKED, network__frame_stack=2), path / "muzero")
    _export(policies.saved(_VECTOR, run__agent="vtrace", network__lstm_width=6), path / "vtrace")
    manifest = _export(policies.saved(_VECTOR, muzero__memory="gru", muzero__memory_width=6), path / "memory")
    assert set(manifest["functions"]) == {"act", "predict", "dynamics"}  # embeddings come from all that was seen
    np.savez(path / "given.npz", seen=_SEEN, reward=_REWARD, legal=_LEGAL)
    package = str(pathlib.Path(flatbuffers.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", _FOREIGN],
        env={**os.environ, "PYTHONPATH": package, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": quick_xla.flags()},
        cwd=path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.thorough
def test_programs_act_like_the_policy_without_this_package(exported: pathlib.Path) -> None:
    found = np.load(exported / "found.npz")
    searching = acting_policy.Policy(policies.saved(_MASKED, network__frame_stack=2))
    value = searching.search(_SEEN[0], action_mask=_LEGAL[0]).network_value
    np.testing.assert_allclose(found["value"], value, rtol=1e-4, atol=1e-5)
    assert found["reward"].shape == (_ROWS,) and np.isfinite(found["reward"]).all()
    actions = [searching(seen, action_mask=legal) for seen, legal in zip(_SEEN, _LEGAL, strict=True)]
    np.testing.assert_array_equal(found["muzero"], actions)
    for name, changes in (
        ("vtrace", {"run__agent": "vtrace", "network__lstm_width": 6}),
        ("memory", {"muzero__memory": "gru", "muzero__memory_width": 6}),
    ):
        recurrent = acting_policy.Policy(policies.saved(_VECTOR, **changes))
        actions = [recurrent(seen, reward=reward) for seen, reward in zip(_SEEN, _REWARD, strict=True)]
        np.testing.assert_array_equal(found[name], actions)


_PARTS = types.EnvSpec.of_arrays(
    [types.ArraySpec("image", (6, 5, 1), "uint8", 0, 255), types.ArraySpec("speed", (2,), "float32", -9, 9)],
    num_actions=3,
)


_NESTED, _, _ = gym_spaces.read(
    "mine",
    spaces.Dict(
        robot=spaces.Dict(arm=spaces.Box(-1.0, 2.0, (2,), np.float64), gear=spaces.Discrete(3, start=-1)),
        more=spaces.Tuple([spaces.MultiBinary(3), spaces.MultiDiscrete([2, 3], start=[4, 0])]),
        alone=spaces.Box(-9, 9, (), np.int64),
        wide=spaces.Box(0, 2**40, (2,), np.int64),
    ),
    spaces.Box(-2.0, 2.0, (2, 2), np.float64),
)
_NUMBERS, _, _ = gym_spaces.read("mine", spaces.Discrete(5, start=2), spaces.MultiDiscrete([2, 3], start=[1, -1]))
_POOL, _, _ = envpool_env.read("mine", spaces.Box(0, 255, (3, 40, 36), np.uint8), spaces.Discrete(3, start=7), ())


def test_a_mask_among_observations_is_an_input_of_its_own(tmp_path: pathlib.Path) -> None:
    parts = spaces.Dict(seen=spaces.Box(-9.0, 9.0, (4,)), action_mask=spaces.Box(0, 1, (3,), np.int8))
    spec, _, _ = gym_spaces.read("mine", parts, spaces.Discrete(3), masks=True)
    _export(policies.saved(spec, run__agent="ppo", network__width=8), tmp_path)
    inputs = json.loads((tmp_path / "manifest.json").read_text())["functions"]["act"]["inputs"]
    assert {"observation/seen", "action_mask"} <= inputs.keys() and "observation/action_mask" not in inputs
    assert inputs["action_mask"] == {"shape": ["B", 3], "dtype": "bool"}


def test_a_mask_of_several_numbers_is_the_environment_s_own(tmp_path: pathlib.Path) -> None:
    read, _, _ = gym_spaces.read("mine", spaces.Box(-9.0, 9.0, (4,)), spaces.MultiDiscrete([2, 3], start=[1, -1]))
    agent = policies.saved(dataclasses.replace(read, has_action_mask=True), run__agent="ppo", network__width=8)
    _export(agent, tmp_path)
    inputs = json.loads((tmp_path / "manifest.json").read_text())["functions"]["act"]["inputs"]
    assert inputs["action_mask"] == {"shape": ["B", 5], "dtype": "bool"}  # as `policy` takes it: 2 + 3
    program = jax_export.deserialize(bytearray((tmp_path / "act.stablehlo").read_bytes()))
    one = [[*first, *second] for first in np.eye(2, dtype=bool) for second in np.eye(3, dtype=bool)]
    mask = np.array([*one, [True] * 5, [True, True, False, True, False]])
    rows = len(mask)
    given = {"observation": _RANDOM.normal(size=(rows, 4)).astype(np.float32), "action_mask": mask}
    nothing = {name: np.zeros([rows, *about["shape"][1:]], about["dtype"]) for name, about in inputs.items()}
    given = {**nothing, **given, "first": np.ones(rows, bool), "key": np.zeros(2, np.uint32)}
    found = np.asarray(program.call(dict(np.load(tmp_path / "parameters.npz")), given)["action"])
    assert found[:6].tolist() == [[first, second] for first in (1, 2) for second in (-1, 0, 1)]
    np.testing.assert_array_equal(found, acting_policy.Policy(agent)(given["observation"], action_mask=mask))


def test_actions_that_need_64_bits_are_refused(tmp_path: pathlib.Path) -> None:
    spec, _, _ = gym_spaces.read("mine", spaces.Discrete(2), spaces.Discrete(3, start=2**31 - 1))
    with pytest.raises(errors.UsageError, match=str(2**31 - 1)):
        _export(policies.saved(spec, run__agent="ppo", network__width=8), tmp_path)


def _samples(space: spaces.Space[Any], rows: int) -> Any:
    space.seed(rows)
    samples = [space.sample() for _ in range(rows)]
    return batches.concatenate(space, samples, batches.create_empty_array(space, rows))


def _named(shown: Any, name: str = "observation") -> dict[str, np.ndarray]:
    if isinstance(shown, np.ndarray):
        return {name: shown}
    parts = shown.items() if isinstance(shown, dict) else enumerate(shown)
    return {title: array for key, part in parts for title, array in _named(part, f"{name}/{key}").items()}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        (_VECTOR, {"run__agent": "ppo", "network__width": 8}),
        (_VECTOR, {"run__agent": "vtrace"}),
        (_VECTOR, {"run__agent": "apex", "network__width": 8}),
        *((spec, {"run__agent": "ppo", "network__width": 8}) for spec in (_PARTS, _NESTED, _NUMBERS, _POOL)),
    ],
    ids=["ppo", "vtrace", "apex", "parts", "nested", "numbers", "pool"],
)
def test_a_program_takes_batches_of_any_size(
    spec: types.EnvSpec, settings: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    agent = policies.saved(spec, **settings)
    _export(agent, tmp_path)
    program = jax_export.deserialize(bytearray((tmp_path / "act.stablehlo").read_bytes()))
    parameters = dict(np.load(tmp_path / "parameters.npz"))
    inputs = json.loads((tmp_path / "manifest.json").read_text())["functions"]["act"]["inputs"]
    policy = acting_policy.Policy(agent)
    for rows in (2, 5):
        shown = _samples(policy.spec.observation_space, rows)
        nothing = {name: np.zeros([rows, *about["shape"][1:]], about["dtype"]) for name, about in inputs.items()}
        seen = {name: array.astype(inputs[name]["dtype"]) for name, array in _named(shown).items()}
        given = {**nothing, **seen, "first": np.ones(rows, bool), "key": np.zeros(2, np.uint32)}
        policy.reset()
        action = policy(shown)
        found = np.asarray(program.call(parameters, given)["action"])
        assert found.shape == np.shape(action)
        np.testing.assert_allclose(found, action, rtol=1e-5, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("agent", ["muzero", "vtrace"])
def test_a_program_that_samples_draws_from_its_key_like_the_policy(agent: str, tmp_path: pathlib.Path) -> None:
    saved = policies.saved(_VECTOR, run__agent=agent)
    sampling = saved._replace(mode=types.SAMPLE)
    best, drawn = (_export(one, tmp_path / "out") for one in (saved, sampling))
    assert "policy" not in best and drawn["policy"] == "sample"
    assert best["functions"]["act"]["inputs"] == drawn["functions"]["act"]["inputs"]
    program = jax_export.deserialize(bytearray((tmp_path / "out" / "act.stablehlo").read_bytes()))
    parameters, policy = dict(np.load(tmp_path / "out" / "parameters.npz")), acting_policy.Policy(sampling, seed=3)
    given = {"observation": _SEEN.reshape(-1, 4), "first": np.ones(15, bool), "explore": np.zeros(15, bool)}
    actions = []
    for call in range(4):
        key = jax.random.key_data(jax.random.fold_in(jax.random.key(3), call))
        actions.append(np.asarray(program.call(parameters, {**given, "key": key})["action"]))
        np.testing.assert_array_equal(actions[-1], policy(given["observation"]))
    assert any((action != actions[0]).any() for action in actions)


def test_the_manifest_says_names_shapes_and_sizes(exported: pathlib.Path) -> None:
    manifest = json.loads((exported / "muzero" / "manifest.json").read_text())
    assert (manifest["step"], manifest["agent"], manifest["batch_size"]) == (7, "muzero", None)
    assert manifest["functions"].keys() == {"act", "represent", "predict", "dynamics"}
    act = manifest["functions"]["act"]
    assert act["inputs"]["observation"] == {"shape": ["B", 4], "dtype": "float32"}
    assert act["inputs"]["action_mask"] == {"shape": ["B", 3], "dtype": "bool"}
    assert act["outputs"]["action"] == {"shape": ["B"], "dtype": "int32"}
    assert (
        act["outputs"]["state/past/observation"]
        == act["inputs"]["state/past/observation"]
        == {"shape": ["B", 4], "dtype": "float32"}
    )
    for part in [*manifest["functions"].values()]:
        assert (exported / "muzero" / part["file"]).stat().st_size == part["num_bytes"]
    with np.load(exported / "muzero" / "parameters.npz") as parameters:
        assert set(parameters) == manifest["parameters"]["arrays"].keys()
    other = json.loads((exported / "vtrace" / "manifest.json").read_text())
    assert other["functions"].keys() == {"act"} and "reward" in other["functions"]["act"]["inputs"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("spec", "changes"),
    [
        pytest.param(_GRID, {"muzero__value_prefix": True, "explore__epsilon": 0.2}, id="sums of rewards"),
        pytest.param(_CONTINUOUS, {"search__num_sampled": 3}, id="continuous"),
    ],
)
def test_any_agent_is_lowered_for_several_platforms(
    spec: types.EnvSpec, changes: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    manifest = _export(policies.saved(spec, **changes), tmp_path, platforms=["cpu", "cuda", "tpu"], batch_size=4)
    assert manifest["platforms"] == ["cpu", "cuda", "tpu"]
    action = manifest["functions"]["act"]["outputs"]["action"]
    assert action["shape"] == [4, *spec.action_shape]


def test_an_export_takes_the_place_of_an_earlier_one_whole_or_not_at_all(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "disk").mkdir()
    out.symlink_to(tmp_path / "disk")
    place = out.resolve()
    exporting._write(place, {"a": np.zeros(1)}, {"act.stablehlo": b"1", "predict.stablehlo": b"1"}, {"step": 1})
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    with pytest.raises(errors.UsageError, match=r"--out=.*/disk cannot be written: No such file"):
        exporting._write(place, {"a": np.ones(1)}, {"missing/act.stablehlo": b"2"}, {"step": 2})
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    exporting._write(place, {}, {"act.stablehlo": b"2"}, {"step": 2})
    assert {file.name for file in out.iterdir()} == {"act.stablehlo", "manifest.json", "parameters.npz"}
    assert out.is_symlink() and {path.name for path in tmp_path.iterdir()} == {"out", "disk"}


class Killed(BaseException):
    """Stands in for kill -9."""


_CHANGES = (
    *((durable, name) for name in ("flush", "flush_tree", "_exchange")),
    *((pathlib.Path, name) for name in ("mkdir", "open", "rename", "unlink", "write_bytes", "write_text")),
    (shutil, "rmtree"),
    (np, "savez"),
)


def _kill_after(num_changes: int, patched: pytest.MonkeyPatch) -> None:
    """Has the process die after as many changes of the disk: none of the later ones is made."""
    done = itertools.count()
    for place, name in _CHANGES:
        change = getattr(place, name)

        def counted(*args: Any, change: Callable[..., Any] = change, **options: Any) -> Any:
            if next(done) >= num_changes:
                raise Killed
            return change(*args, **options)

        patched.setattr(place, name, counted)


@pytest.mark.parametrize("exchanges", [True, False], ids=["exchanges names", "renames twice"])
def test_an_export_killed_at_any_change_of_the_disk_leaves_the_old_or_the_new_one(
    exchanges: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchanges:  # as on NFS
        monkeypatch.setattr(durable, "_exchange", lambda one, other: False)
    seen, empty = [], 0
    for num_changes in itertools.count():
        out = tmp_path / str(num_changes) / "out"
        exporting._write(out, {}, {"act.stablehlo": b"old"}, {"step": 1})
        with monkeypatch.context() as patched:
            _kill_after(num_changes, patched)
            with contextlib.suppress(Killed):
                exporting._write(out, {}, {"act.stablehlo": b"new"}, {"step": 2})
                break
        if not exchanges and not out.exists():
            durable.remove_marked_leftovers(out)
        names = {file.name for file in out.iterdir()} - {durable.MARK}  # which stays after a kill at the very end
        assert names == {"act.stablehlo", "manifest.json", "parameters.npz"}
        seen.append(((out / "act.stablehlo").read_bytes(), json.loads((out / "manifest.json").read_text())["step"]))
        exporting._write(out, {}, {"act.stablehlo": b"later"}, {"step": 3})
        rest = [path for path in out.parent.iterdir() if path != out]
        assert not any(any(path.iterdir()) for path in rest) and not (out / durable.MARK).exists()
        empty += len(rest)
    assert empty == 2, "killed before its mark is there, a directory is empty, and nobody can tell whose it is"
    assert len(seen) > 6 and list(dict.fromkeys(seen)) == [(b"old", 1), (b"new", 2)]


@pytest.mark.parametrize("suffix", durable.LEFTOVERS)
def test_an_export_leaves_its_neighbours_alone(suffix: str, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "policy"
    neighbour = tmp_path / f"policy.20261127{suffix}"
    neighbour.mkdir()
    (neighbour / "thesis").write_text("mine")
    (neighbour / durable.MARK).write_text("12345678")  # a copy of a leftover, renamed
    for step in (1, 2):
        exporting._write(out, {}, {"act.stablehlo": b"1"}, {"step": step})
    assert sorted(tmp_path.iterdir()) == sorted([out, neighbour])
    assert (neighbour / "thesis").read_text() == "mine"


def test_an_export_leaves_what_another_one_still_writes(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "policy"
    with durable.new_directory(out, is_marked=True) as temporary:
        exporting._write(out, {}, {"act.stablehlo": b"1"}, {"step": 1})
        (temporary / "act.stablehlo").write_bytes(b"2")
    assert (out / "act.stablehlo").read_bytes() == b"2"
    assert [path.name for path in tmp_path.iterdir()] == ["policy"] and [path.name for path in out.iterdir()] == [
        "act.stablehlo"
    ]


@pytest.mark.parametrize(
    ("name", "content"), [("notes.txt", "mine"), ("manifest.json", "{}"), ("manifest.json", "no JSON"), ("", "")]
)
def test_an_export_refuses_a_directory_of_something_else(name: str, content: str, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out"
    if name:
        out.mkdir()
    (out / name).write_text(content)
    with pytest.raises(errors.UsageError, match=f"--out={out} "):
        exporting.export(None, out, platforms=(), batch_size=None)  # type: ignore[arg-type]
    assert (out / name).read_text() == content


def test_a_directory_that_cannot_be_written_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.UsageError, match=r"--out=.*file/x "):
        exporting._write(tmp_path / "file" / "x", {}, {}, {})
