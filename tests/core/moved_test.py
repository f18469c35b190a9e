"""Modules under their former names."""

import importlib

import pytest

from seedzero.core import moved


@pytest.mark.parametrize(("old", "new"), moved.MODULES.items())
def test_a_former_name_is_the_same_module_and_warns(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        found = importlib.import_module(old)
    assert found is importlib.import_module(new)
