"""Freed memory goes back to the system."""

import ctypes

import pytest

from seedzero.checkpoints import memory


def test_the_heap_is_trimmed_by_the_c_library_and_another_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        trimmed = 0

        def malloc_trim(self, pad: int) -> int:
            self.trimmed += 1
            return pad

    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    memory.trim_heap()
    assert library.trimmed == 1
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    memory.trim_heap()
