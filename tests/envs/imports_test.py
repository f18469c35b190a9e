import importlib
import sys

import pytest

from seedzero.envs import imports


def test_a_hidden_module_cannot_be_imported_until_the_end():
    sys.modules.pop("this", None)
    with imports.without("this"), pytest.raises(ImportError):
        importlib.import_module("this")
    assert "this" not in sys.modules
    assert importlib.util.find_spec("this") is not None


def test_what_is_imported_already_stays():
    with imports.without("importlib"):
        assert importlib.import_module("importlib") is importlib
    assert sys.modules["importlib"] is importlib
