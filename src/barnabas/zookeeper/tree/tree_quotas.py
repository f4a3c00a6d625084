"""Quotas: limits and figures of a subtree, in two nodes below `/zookeeper/quota` (`Quotas`, `StatsTrack`).

/zookeeper/quota/PATH/zookeeper_limits    count=10,bytes=-1=;byteHardLimit=1000;countHardLimit=20
/zookeeper/quota/PATH/zookeeper_stats     count=3,bytes=120
"""

from __future__ import annotations

import re
from typing import Final

QUOTA_ROOT: Final = "/zookeeper/quota"
LIMITS: Final = "zookeeper_limits"
STATS: Final = "zookeeper_stats"

_SEPARATORS: Final = re.compile("[,;]+")


def limits_path(path: str) -> str:
    return f"{QUOTA_ROOT}{path}/{LIMITS}"


def stats_path(path: str) -> str:
    return f"{QUOTA_ROOT}{path}/{STATS}"


class StatsTrack:
    """The counts in a limits node or a stats node; -1 for a missing count."""

    __slots__ = ("_figures",)

    def __init__(self, data: bytes | None = None) -> None:
        """Reads a node's data. Raises ValueError if it has another form."""
        self._figures: dict[str, int] = {}
        for pair in _SEPARATORS.split((data or b"").decode("utf-8", "replace")):
            if pair:
                name, _, rest = pair.partition("=")
                # A value such as "bytes=5=" has a second "=", for older readers: only the number before it counts.
                self._figures[name] = int(rest.partition("=")[0] or "-1")

    def _of(self, name: str) -> int:
        return self._figures.get(name, -1)

    @property
    def count(self) -> int:
        return self._of("count")

    @property
    def size(self) -> int:
        return self._of("bytes")

    @property
    def count_hard_limit(self) -> int:
        return self._of("countHardLimit")

    @property
    def byte_hard_limit(self) -> int:
        return self._of("byteHardLimit")

    def with_figures(self, count: int, size: int) -> StatsTrack:
        """Returns a copy with this count and this number of bytes."""
        changed = StatsTrack()
        changed._figures = {**self._figures, "count": count, "bytes": size}
        return changed

    def encode(self) -> bytes:
        """Returns the node's data: count and bytes first, then the others by name."""
        text = f"count={self.count},bytes={self.size}"
        others = sorted(self._figures.keys() - {"count", "bytes"})
        if others:
            text += "=" + "".join(f";{name}={self._figures[name]}" for name in others)
        return text.encode()


class QuotaPaths:
    """The paths that have a quota."""

    __slots__ = ("_paths",)

    def __init__(self) -> None:
        self._paths: set[str] = set()

    def add(self, path: str) -> None:
        self._paths.add(_normal(path))

    def remove(self, path: str) -> None:
        self._paths.discard(_normal(path))

    def longest_prefix(self, path: str) -> str | None:
        """Returns the longest path with a quota that is this path or contains it; None if there is none."""
        if not self._paths:
            return None
        while path and path != "/":
            if path in self._paths:
                return path
            path = path[: path.rindex("/")]
        return None


def _normal(path: str) -> str:
    return "/" + "/".join(part for part in path.split("/") if part.strip())
