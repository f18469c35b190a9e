"""Imports go one way through the layers; read from the sources, nothing is imported here."""

from __future__ import annotations

import ast
import functools
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "seedzero"

_NUMERIC = {"core", "config", "ops", "networks", "search", "replay", "agents"}
_DEVICE = {*_NUMERIC, "transport"}
_RUNTIME = {"device", "checkpoints", "bucket", "processes", "metrics", "monitoring", "actors", "tables"}
ALLOWED = {
    "core": set(),
    "config": {"core"},
    "envs": {"core", "config", "bucket"},  # of the bucket only what reaches no JAX, see below
    "transport": {"core", "config"},
    "worker": {"core", "config", "envs", "transport"},
    "ops": {"core"},
    "networks": {"core", "config", "ops"},
    "search": {"core", "config", "ops"},
    "replay": {"core", "config", "ops"},
    "agents": _NUMERIC - {"agents"},
    "league": {"core", "config"},
    "device": _DEVICE,
    "checkpoints": {"core", "config", "replay"},
    "bucket": {"core", "config", "checkpoints"},
    "processes": {"core"},
    "metrics": {"core", "config"},
    "live": {"core", "transport"},
    "monitoring": {"core", "config", "transport", "checkpoints", "bucket", "metrics"},
    "actors": {*_DEVICE, "envs", "device", "checkpoints"},
    "tables": {*_DEVICE, "envs", "device", "checkpoints", "metrics", "league", "actors"},
    "serving": {*_DEVICE, "device", "checkpoints", "processes", "monitoring", "actors"},
    "equilibria": {*_DEVICE, "envs", "device", "checkpoints", "actors"},
    "exports": {*_DEVICE, "envs", "device", "checkpoints", "actors"},
    "loop": {*_DEVICE, "device", "league", "metrics", "live"},
    "league_play": {*_DEVICE, "device", "league", "loop", "metrics"},
    "cluster": {"core", "config", "transport", "loop", "metrics"},
    "learner": {*_DEVICE, *_RUNTIME, "loop", "league", "league_play", "live", "cluster", "equilibria"},
    "launch": {"core", "config", "checkpoints", "bucket", "processes"},
    "benchmark": {*_DEVICE, "envs", "device", "checkpoints"},
}
_RULES = "seedzero.envs.pgx_rules"
"""The rules of games are JAX functions: an agent searches by them, and the workers that step such games need JAX."""
WITH_JAX = (_RULES, *(f"seedzero.envs.{name}" for name in ("pgx_env", "pgx_games", "pgx_maker")))
ALLOWED["api"] = {*ALLOWED["learner"], "envs", "learner", "exports"}
ALLOWED["page"] = {"core", "config", "checkpoints", "processes", "live", "monitoring", "actors", "tables", "api"}
ALLOWED["cli"] = set(ALLOWED)
"""Layer -> the layers that it may import from, besides itself. A layer is a folder of the package or of a house."""
HOUSES = (
    ("core", "config", "envs", "transport", "worker"),  # what a worker imports
    ("ops", "networks", "search", "replay", "league", "agents", "device"),  # numeric code
    ("storage", "monitoring"),  # a run's files, and what it shows
    ("acting",),  # saved agents: scores, games, records, judges, exports
    ("learner",),
    ("api", "interfaces", "cli"),  # Python, pages and servers, the command line
)
"""The folders of the package, lower ones first."""
UPWARDS = {("envs", "bucket"), ("agents", "envs")}
"""A worker's level cache may lie in a bucket; AlphaZero searches by the rules of Pgx's games."""

WORKER_SIDE = {"core", "config", "envs", "transport", "worker"}
_CLIENT = "seedzero.acting.actors.remote_policy"
"""The client of a policy server, which runs where JAX is missing, too."""
PURE = {"ops", "networks", "search", "replay", "agents", "league"}
JAX = {"jax", "jaxlib", "flax", "optax", "mctx", "orbax", "chex"}
IMPURE = {"threading", "queue", "asyncio", "multiprocessing", "subprocess", "socket", "time", "os", "pathlib", "grpc"}
OF_THE_HOST = {"asyncio", "multiprocessing", "subprocess", "socket", "signal", "time", "os", "pathlib", "grpc"}


class Import(NamedTuple):
    """One imported name: `from seedzero.core import errors` is seedzero.core.errors. direct: a plain `import`."""

    file: pathlib.Path
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.name}"


def _is_generated(file: pathlib.Path) -> bool:
    return file.stem.endswith(("_pb2", "_pb2_grpc"))


def _imports(file: pathlib.Path) -> Iterator[Import]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (Import(file, node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative import; write it out"
            yield from (Import(file, node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def _layer(name: str) -> str:
    """Returns the room of a name: seedzero.learner.loop.inboxes is in loop, seedzero.learner.saving in learner."""
    return _room(name.split(".")[1:])


def _room(parts: Sequence[str]) -> str:
    """Returns the innermost folder of a path of the package, which is a room."""
    folders = [part for number, part in enumerate(parts[:2], 1) if PACKAGE.joinpath(*parts[:number]).is_dir()]
    return folders[-1] if folders else ""


FILES = sorted(file for file in PACKAGE.rglob("*.py") if not _is_generated(file))


@functools.cache  # not at import: every process of a session imports this file, and one of them runs its tests
def _all_imports() -> list[Import]:
    return [found for file in FILES for found in _imports(file)]


def _own_imports() -> list[Import]:
    return [found for found in _all_imports() if found.name.split(".")[0] == "seedzero"]


def _layer_of_file(file: pathlib.Path) -> str:
    return _room(file.relative_to(PACKAGE).parts[:-1])


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file() or _is_generated(path)


def _is_worker_side(module: str) -> bool:
    return _layer(module) in WORKER_SIDE or module == _CLIENT


def _listing(bad: list[Import]) -> str:
    return "\n".join(map(str, bad))


def test_every_folder_of_the_package_has_a_layer() -> None:
    folders = {file.parent.relative_to(PACKAGE).parts for file in FILES if file.parent != PACKAGE}
    houses = {name for group in HOUSES for name in group}
    assert {parts[0] for parts in folders} <= houses
    assert {parts[-1] for parts in folders} <= ALLOWED.keys() | houses
    assert max(map(len, folders)) == 2


def test_imports_between_houses_go_one_way() -> None:
    rank = {name: number for number, group in enumerate(HOUSES) for name in group}
    inside = [found for found in _own_imports() if found.file.parent != PACKAGE]
    bad = [
        found
        for found in inside
        if (house := [*found.name.split("."), ""][1]) in rank
        and rank[house] > rank[found.file.relative_to(PACKAGE).parts[0]]
        and (_layer_of_file(found.file), _layer(found.name)) not in UPWARDS
    ]
    assert not bad, _listing(bad)


@pytest.mark.parametrize("layer", ALLOWED)
def test_a_layer_imports_only_from_layers_above_it(layer: str) -> None:
    allowed = {"", layer, *ALLOWED[layer]}
    own = [found for found in _own_imports() if _layer_of_file(found.file) == layer]
    searched = {(PACKAGE / "agents/alphazero.py", _RULES)}
    bad = [found for found in own if _layer(found.name) not in allowed and (found.file, found.name) not in searched]
    assert not bad, _listing(bad)


def test_modules_are_imported_not_names() -> None:
    elsewhere = [
        found for found in _own_imports() if found.file.name != "__init__.py"
    ]  # that one lists a package's public names
    assert not (bad := [found for found in elsewhere if not _is_module(found.name)]), _listing(bad)


def test_what_runs_on_a_worker_never_imports_jax() -> None:
    worker_side = [found for found in _all_imports() if _is_worker_side(_module(found.file))]
    bad = [found for found in worker_side if found.name.split(".")[0] in JAX and _module(found.file) not in WITH_JAX]
    assert not bad, _listing(bad)


def test_the_league_imports_numpy_alone() -> None:
    league = {found.name.split(".")[0] for found in _all_imports() if _layer_of_file(found.file) == "league"}
    assert league - sys.stdlib_module_names == {"numpy", "seedzero"}


def test_what_a_worker_imports_through_others_never_imports_jax() -> None:
    graph = _graph()
    worker_side = [name for name in graph if _is_worker_side(name) and name not in WITH_JAX]
    reached = set(worker_side).union(*(_reachable(graph, name) for name in worker_side))
    bad = [found for found in _all_imports() if _module(found.file) in reached and found.name.split(".")[0] in JAX]
    assert not bad, _listing(bad)
    assert "seedzero.storage.bucket.bucket" in reached  # a worker's level cache


def test_numeric_layers_have_no_threads_clocks_or_files() -> None:
    pure = [found for found in _all_imports() if _layer_of_file(found.file) in PURE]
    assert not (bad := [found for found in pure if found.name.split(".")[0] in IMPURE]), _listing(bad)


def test_the_loop_decides_submits_and_counts_without_files_screens_or_signals() -> None:
    loop = [found for found in _all_imports() if _layer_of_file(found.file) == "loop"]
    bad = [found for found in loop if found.name.split(".")[0] in OF_THE_HOST]
    assert loop and not bad, _listing(bad)


def test_mctx_is_a_peer_to_measure_against_and_nothing_more() -> None:
    assert {found.file for found in _all_imports() if found.name.split(".")[0] == "mctx"} == {
        PACKAGE / "interfaces/benchmark/search.py"
    }


def test_no_module_imports_itself_through_others() -> None:
    graph = _graph()
    for module in graph:
        assert module not in _reachable(graph, module), f"{module} imports itself through others"


def _module(file: pathlib.Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _graph() -> dict[str, set[str]]:
    """Returns what each module imports of the package."""
    graph: dict[str, set[str]] = {}
    for found in _own_imports():
        graph.setdefault(_module(found.file), set()).add(found.name)
    return graph


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = set(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting |= graph.get(module, set())
    return seen
