"""Giving memory back."""

import ctypes

import pytest

from seedzero.checkpoints import memory


def test_giving_back_is_asked_of_the_c_library_and_missing_it_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        trimmed = 0

        def malloc_trim(self, pad: int) -> int:
            self.trimmed += 1
            return pad

    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    memory.give_back()
    assert library.trimmed == 1
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    memory.give_back()
