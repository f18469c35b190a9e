"""The timeline of a start: spans of imports, calls and JAX's events, and their totals."""

from __future__ import annotations

import importlib

import start


def test_totals_add_up_each_kind_and_end_with_the_first_update() -> None:
    spans = [
        start.Span(0.0, 0.5, "MainThread", "import", "jax", 0.75),
        start.Span(1.0, 2.0, "compile", "XLA", "act", 3.5),
        start.Span(2.0, 0.01, "compile", "XLA", "small", 3.5),
        start.Span(4.0, 0.25, "loop", "call", "first update", 9.125),
    ]
    assert start.totals(spans) == {"import": 0.5, "XLA": 2.01, "first update": 4.25}
    text = start.table(spans)
    assert "small" not in text and text.endswith("import 0.50 s, XLA 2.01 s, first update 4.25 s")
    assert "   9.12  loop" in text
    assert text.index("import jax") < text.index("XLA act") < text.index("call first update")


def test_everything_that_is_watched_is_there() -> None:
    for name, functions in start.CALLED.items():
        for path in functions:
            owner: object = importlib.import_module(name)
            for part in path.split("."):
                owner = getattr(owner, part)
            assert callable(owner), path
