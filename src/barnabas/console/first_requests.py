"""The request with which a screen begins, by the address of the page. A browser that finds it in the page sends it
while it loads the page's script, which then has its answer.

The address must be the one that the script builds: the order of its parameters is that of `ui/screens`. Another one
would be a request in vain, so `tests/browser` counts them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlencode


class _First(NamedTuple):
    """`parameters` are those of the page's address with their defaults, `fixed` come after them. With a parameter of
    `others`, the screen begins with another request.
    """

    route: str
    parameters: tuple[tuple[str, str], ...] = ()
    fixed: tuple[tuple[str, str], ...] = ()
    others: frozenset[str] = frozenset()


_FIRST: Final[Mapping[str, _First]] = {
    "/": _First("/api/overview"),
    "/map": _First("/api/map", others=frozenset({"fill", "ask"})),
    "/topics": _First(
        "/api/topics",
        (("q", ""), ("state", ""), ("internal", "0"), ("sort", "name"), ("desc", "0")),
        (("offset", "0"), ("limit", "100")),
    ),
    "/topic": _First("/api/topic", (("name", ""),)),
    "/partition": _First("/api/partition", (("topic", ""), ("partition", "0"))),
    "/groups": _First("/api/groups", (("q", ""), ("sort", "name"), ("desc", "0")), (("limit", "1000"),)),
    "/brokers": _First("/api/brokers"),
    "/timeline": _First(
        "/api/timeline",
        tuple((name, "") for name in ("q", "kind", "cause", "topic", "partition", "broker", "severity", "from", "to")),
        (("limit", "200"),),
        frozenset({"span"}),
    ),
}
#: Values that every browser and Python write alike into an address, and HTML as they are.
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]*")


def first_request(path: str, query: Mapping[str, str]) -> str | None:
    """Returns the address of the first request of a screen of the present; None if it is not known for certain."""
    first = _FIRST.get(path)
    if first is None or "at" in query or first.others & query.keys():
        return None
    found = {"cluster": query["cluster"]} if "cluster" in query else {}
    found |= {name: query.get(name, default) for name, default in first.parameters}
    found |= dict(first.fixed)
    if not all(_PLAIN.fullmatch(value) for value in found.values()):
        return None
    text = urlencode({name: value for name, value in found.items() if value})
    return f"{first.route}?{text}" if text else first.route
