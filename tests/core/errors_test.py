from __future__ import annotations

import inspect

from seedzero.core import errors


def test_the_drawing_shows_every_error_below_its_parent() -> None:
    drawn: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        name = line.lstrip(" │├└─").split(" ")[0]
        if name and name in vars(errors):
            drawn.append((line.index(name), name))
    parents = {}
    for position, (indent, name) in enumerate(drawn):
        nearest = [(other_indent, other) for other_indent, other in drawn[:position] if other_indent < indent]
        parents[name] = nearest[-1][1] if nearest else "Exception"
    classes = {name: item for name, item in vars(errors).items() if inspect.isclass(item)}
    assert parents == {name: item.__bases__[0].__name__ for name, item in classes.items()}
