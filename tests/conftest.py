"""Four virtual CPU devices, so that data-parallel code can be tested; must be said before JAX starts.

Most of the tests' time is compilation, so LLVM optimizes nothing here: a quarter less time. Processes that tests start
compile as users' do: XLA has read its flags, and the environment is as it was, before there are any.
"""

import os
import pathlib
import sys
from collections.abc import Iterator

import jax
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # for helpers beside this file, as fake_gcs and certificates

import fake_gcs

jax.config.update("jax_num_cpu_devices", 4)

_given = os.environ.get("XLA_FLAGS")
os.environ["XLA_FLAGS"] = f"{_given or ''} --xla_backend_optimization_level=0"
jax.jit(lambda: 0)()
if _given is None:
    del os.environ["XLA_FLAGS"]
else:
    os.environ["XLA_FLAGS"] = _given


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[fake_gcs.FakeGcs]:
    """A fake Google Cloud Storage with the bucket "runs", which this process and those it starts use."""
    with fake_gcs.FakeGcs(["runs"]) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("SEEDZERO_SCRATCH", str(tmp_path / "scratch"))
        yield server
