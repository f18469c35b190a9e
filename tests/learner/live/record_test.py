"""The newest items, by number, within bounds of number and bytes."""

from __future__ import annotations

from seedzero.learner.live import record


def test_items_have_numbers_and_the_newest_are_kept() -> None:
    kept = record.Buffer[str](3, first=1)
    for letter in "abcde":
        kept.add(letter)
    assert (kept.next, kept.since(0), kept.since(4), kept.since(0, 4)) == (6, ["c", "d", "e"], ["d", "e"], ["c", "d"])
    kept.clear()
    kept.add("f")
    assert (kept.next, kept.since(0)) == (7, ["f"])


def test_bytes_are_bounded_of_what_is_kept_and_of_what_is_told() -> None:
    kept = record.Buffer[int](9, 20)
    for item in range(4):
        kept.add(item, 8)
    assert (kept.since(0), kept.since(0, most_bytes=15), kept.since(0, most_bytes=7)) == ([2, 3], [3], [])
    kept.add(4, 99)
    assert kept.since(0) == [4]  # the newest one at any rate
