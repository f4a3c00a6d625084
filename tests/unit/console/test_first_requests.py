"""The first request of a screen, as the page names it."""

from __future__ import annotations

import pytest

from barnabas.console.first_requests import first_request


@pytest.mark.parametrize(
    ("path", "query", "expected"),
    [
        ("/", {}, "/api/overview"),
        ("/", {"cluster": "shop"}, "/api/overview?cluster=shop"),
        ("/topics", {"q": "a-1", "limit": "5"}, "/api/topics?q=a-1&internal=0&sort=name&desc=0&offset=0&limit=100"),
        ("/partition", {"topic": "a", "partition": "3"}, "/api/partition?topic=a&partition=3"),
        ("/map", {"zoom": "2"}, "/api/map"),
        ("/map", {"fill": "size"}, None),
        ("/map", {"ask": "restart"}, None),
        ("/timeline", {"span": "60000"}, None),
        ("/settings", {}, None),
        ("/no/such/page", {}, None),
    ],
)
def test_it_is_that_of_the_screen(path: str, query: dict[str, str], expected: str | None) -> None:
    assert first_request(path, query) == expected


@pytest.mark.parametrize("value", ['"><script>', "a b", "a&b=c", "a*", "~", "é", "a\r\nX: y", "%22"])
def test_what_a_browser_could_write_otherwise_names_none(value: str) -> None:
    assert first_request("/topic", {"name": value}) is None
    assert first_request("/", {"cluster": value}) is None


def test_a_moment_of_the_past_names_none() -> None:
    assert first_request("/", {"at": "1"}) is None
