"""Runs of the page, and its application in this process; the helpers beside this file are importable."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import page_client
import page_runs

from seedzero.core import host_names
from seedzero.interfaces.page import app


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory with a run."""
    page_runs.write(tmp_path / "runs" / "a", page_runs.row(1, loss=1.0))
    return tmp_path / "runs"


@pytest.fixture
def page(root: pathlib.Path) -> app.Page:
    return app.Page(root)


@pytest.fixture
def client(page: app.Page) -> page_client.Client:
    return page_client.Client(app.make(page, hosts=host_names.HostNames("127.0.0.1")))
