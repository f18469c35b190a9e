"""JAX for the tests: four virtual CPU devices, quick compilation, and each program compiled once.

Most of the tests' time is compilation. In these processes it takes a third of the time (`quick_xla`). Programs are
cached, by pytest's processes together, in pytest's cache: later sessions find them, and `pytest --cache-clear` removes
them. Processes that tests start have a cache of their own, and their environment no flags of XLA: they compile as
users' do, save where a test gives them flags, as most of tests/e2e do. Python's bytecode is cached, too, where the
environment forbids it beside the sources: without, each process that imports JAX takes three seconds longer.
"""

import atexit
import functools
import gc
import importlib.util
import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator

if "PYTEST_XDIST_WORKER" not in os.environ:  # xdist's processes inherit the directories
    _directory = pathlib.Path(tempfile.mkdtemp(prefix="seedzero-tests-"))
    atexit.register(shutil.rmtree, _directory, ignore_errors=True)
    _root = pathlib.Path(__file__).parents[1]
    _kept = _root / ".pytest_cache" / "d" / "seedzero" if os.access(_root, os.W_OK) else _directory
    if sum(file.stat().st_size for file in _kept.rglob("*-cache")) > 1_000_000_000:  # programs of many versions
        shutil.rmtree(_kept, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(_kept / "of-programs")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["XDG_STATE_HOME"] = str(_directory / "state")  # not the user's own runs
    os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"  # nobody reads where in the sources an operation comes from
    # What tracing and XLA free they ask for again: the C library keeps it.
    os.environ |= {"MALLOC_TOP_PAD_": str(2**24), "MALLOC_TRIM_THRESHOLD_": str(2**27)}
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        sys.dont_write_bytecode = False
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(_kept / "bytecode")

import jax
import psutil
import pytest
from jax._src import compilation_cache
from jax._src.interpreters import mlir

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # for helpers beside this file, as fake_gcs

import fake_gcs
import quick_python
import quick_xla

from seedzero.device import meshes

_LARGE_BYTES = 1_200_000_000
_MAX_CORES = 8
"""More processes would gain nothing: importing JAX takes each of them seconds."""

# The key of a cached program has flags of the environment alone, so differently compiled ones must not meet.
_own_cache = pathlib.Path(os.environ["JAX_COMPILATION_CACHE_DIR"]).with_name(
    f"of-tests-{zlib.crc32(quick_xla.flags().encode()):x}"
)
jax.config.update("jax_compilation_cache_dir", str(_own_cache))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_num_cpu_devices", 4)

_given = os.environ.get("XLA_FLAGS")
os.environ["XLA_FLAGS"] = quick_xla.flags()
jax.jit(lambda: 0)()  # now XLA has read its flags
if _given is None:
    del os.environ["XLA_FLAGS"]
else:
    os.environ["XLA_FLAGS"] = _given
meshes.CPU_OPTIONS = {}  # a run's own level would be higher

# Most cached programs are read once, or never: they are packed less, in a third of the time.
compilation_cache.compress_executable = functools.partial(zlib.compress, level=1)

# JAX would make a context for each program, and load all operations into it: a fifth of a small program's time.
mlir.make_ir_context = functools.cache(mlir.make_ir_context)


def pytest_configure() -> None:
    """Collects tests without looking for garbage."""
    gc.disable()  # until all tests are collected: what imports make is not garbage


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_xdist_auto_num_workers() -> int:
    """One process more than cores: tests that start processes mostly wait for them; two more take longer."""
    return min(os.cpu_count() or 1, _MAX_CORES) + 1


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_xdist_setupnodes() -> None:
    """Has one process make the bytecode where there is none: each of the others would take as long for it."""
    source = pathlib.Path(__file__).with_name("ops") / "gae_test.py"
    if not pathlib.Path(importlib.util.cache_from_source(str(source))).parent.exists():
        words = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "--numprocesses=0"]
        subprocess.run(words, cwd=source.parents[2], stdout=subprocess.DEVNULL, check=False)


@pytest.hookimpl(trylast=True)  # when all are known that will run
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with the end-to-end tests: one that began last would keep a single core busy.

    xdist's processes get equal, contiguous parts of the list, and later the end of each other's. All parts but the
    last begin with end-to-end tests, whole files of them, which often wait: the last uses the cores meanwhile.
    """
    num_parts = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    size = len(items) // num_parts
    begins: list[list[pytest.Item]] = [[] for _ in range(num_parts)]
    files = itertools.groupby(filter(_is_end_to_end, items), key=lambda item: item.path)
    for number, (_, tests) in enumerate(files):
        begins[number % max(1, num_parts - 1)] += tests
    others = list(itertools.filterfalse(_is_end_to_end, items))
    items.clear()
    for begin in begins:
        room = max(0, size - len(begin))
        items += [*begin, *others[:room]]
        del others[:room]
    items += others


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Has Python look for garbage seldom."""
    gc.collect()
    quick_python.collect_seldom()
    gc.enable()


def _is_end_to_end(item: pytest.Item) -> bool:
    return item.path.parent.name == "e2e"


@pytest.fixture(autouse=True, scope="module")
def _few_programs_in_memory() -> Iterator[None]:
    """Frees compiled programs behind a module once the process is large: the next ones often need the same."""
    yield
    if psutil.Process().memory_info().rss > _LARGE_BYTES:
        jax.clear_caches()
        mlir.make_ir_context.cache_clear()


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[fake_gcs.FakeGcs]:
    """A fake Google Cloud Storage with the bucket "runs", which this process and those it starts use."""
    with fake_gcs.FakeGcs(["runs"]) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("SEEDZERO_SCRATCH", str(tmp_path / "scratch"))
        yield server
