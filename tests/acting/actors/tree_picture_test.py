"""Pictures of trees: the most visited nodes, escaped texts, one box a place."""

from __future__ import annotations

import re
import xml.dom.minidom

from seedzero.acting.actors import search_traces


def _box(parent: int | None, visits: int, depth: int, **others: object) -> search_traces.Box:
    given = dict(title=f"a{visits}", text="", note="", value=0.5, is_main=False, is_legal=True)
    return search_traces.Box(parent=parent, visits=visits, depth=depth, **{**given, **others})  # type: ignore[arg-type]


_BOXES = [_box(None, 9, 0), _box(0, 5, 1), _box(0, 3, 1), _box(1, 4, 2), _box(1, 1, 2), _box(2, 2, 2)]


def test_the_most_visited_nodes_are_kept_with_their_parents() -> None:
    picture = search_traces.tree_svg("title", range(6), _BOXES, most_nodes=4)
    xml.dom.minidom.parseString(picture)
    assert re.findall(r">(a\d)<", picture) == ["a9", "a5", "a4", "a3"]
    assert "title; 4 of 6 nodes" in picture and picture.count("<path ") == 3


def test_boxes_lie_apart() -> None:
    picture = search_traces.tree_svg("title", range(6), _BOXES)
    places = re.findall(r'<rect x="(\d+)" y="([\d.]+)"', picture)
    assert len(set(places)) == 6 and " nodes" not in picture
    by_column: dict[str, list[float]] = {}
    for x, y in places:
        by_column.setdefault(x, []).append(float(y))
    for column in by_column.values():
        assert all(b - a >= 36 for a, b in zip(sorted(column), sorted(column)[1:], strict=False))


def test_texts_are_escaped_and_long_names_short() -> None:
    name = "<script>&\"'\x00\x1b"
    boxes = [_box(None, 2, 0), _box(0, 1, 1, title=name * 3, note=name, is_legal=False)]
    picture = search_traces.tree_svg(name, range(2), boxes)
    document = xml.dom.minidom.parseString(picture)
    assert not document.getElementsByTagName("script") and "stroke-dasharray" in picture
    assert "\x1b" not in picture and "… illegal" in picture


def test_a_picture_has_a_ground_of_its_own() -> None:
    assert '<rect width="100%" height="100%" rx="6" fill="#ffffff"/>' in search_traces.tree_svg(
        "t", [0], [_box(None, 1, 0)]
    )


def test_bars_show_the_largest_probabilities() -> None:
    picture = search_traces.bar_chart("t", [(f"<{n}>", n / 300) for n in range(25)])
    xml.dom.minidom.parseString(picture)
    assert (
        picture.count('height="16"') == search_traces.MOST_BARS
        and "&lt;24&gt;" in picture
        and "&lt;0&gt;" not in picture
    )
