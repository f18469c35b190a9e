"""Values of a request: numbers within bounds, and everything else refused by name."""

from __future__ import annotations

import pytest
from starlette import requests

from seedzero.interfaces.page import queries


def _request(query: str) -> requests.Request:
    return requests.Request({"type": "http", "query_string": query.encode(), "headers": []})


def test_numbers_are_read() -> None:
    request = _request("x=1.5&n=3")
    assert queries.number(request, "x") == 1.5 and queries.number(request, "y") is None
    assert queries.count(request, "n", 0, 3) == 3 and queries.count(request, "m", 2, 3) == 2


@pytest.mark.parametrize("text", ["", "a", "nan", "inf", "-1", "4", "1.5", "1e400"])
def test_other_values_are_refused(text: str) -> None:
    with pytest.raises(queries.BadQuery, match="n: expected"):
        queries.count(_request(f"n={text}"), "n", 0, 3)


def test_a_name_stays_in_the_message() -> None:
    with pytest.raises(queries.BadQuery, match="steps: expected 0 to 3"):
        queries.count(_request("steps=9"), "steps", 0, 3)
