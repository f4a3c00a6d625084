"""Times, broker ids and leaders as text, as all views of a cluster write them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

NO_NODE: Final = -1


def at(time_ms: int) -> str:
    """Formats a time as ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers)) or "none"


def leader_name(leader: int) -> str:
    return "none" if leader == NO_NODE else str(leader)
