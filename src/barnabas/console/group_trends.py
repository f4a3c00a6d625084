"""Trends of consumer groups, from the sweeps over them: since when they are behind, and when they will be level.

    trends.sample(swept_ms, groups)        after each sweep
    trends.of("billing", {"orders"})       a Trend

The lag of each topic is kept separately, because a visitor with patterns sees some topics of a group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas.monitor.group_sweep import GroupState
from barnabas.monitor.table import ClusterTable

#: Sweeps whose lags are kept: the rate at which a lag falls is that of this time.
_SWEEPS_KEPT: Final = 12


class Trend(NamedTuple):
    """`since_ms` is the time of the first sweep since which records are not read; None if all are read or nothing is
    known. `level_ms` is when all will be read if the lag continues to fall as it does; None if it does not fall.
    """

    since_ms: int | None
    level_ms: int | None


@dataclass(slots=True)
class _Known:
    lags: deque[tuple[int, dict[str, int]]] = field(default_factory=lambda: deque(maxlen=_SWEEPS_KEPT))
    #: The first of the sweeps since which each topic has unread records.
    since_ms: dict[str, int] = field(default_factory=dict)


class GroupTrends:
    def __init__(self, table: ClusterTable) -> None:
        self._table = table
        self._swept_ms: int | None = None
        self._known: dict[str, _Known] = {}

    def sample(self, swept_ms: int | None, groups: Mapping[str, GroupState]) -> None:
        """Notes the lags after a sweep; nothing if there was none since the last call."""
        if swept_ms is None or swept_ms == self._swept_ms:
            return
        self._swept_ms = swept_ms
        self._known = {name: self._known.get(name, _Known()) for name in groups}
        for name, state in groups.items():
            known, lags = self._known[name], self._lags(state)
            known.lags.append((swept_ms, lags))
            known.since_ms = {topic: known.since_ms.get(topic, swept_ms) for topic, lag in lags.items() if lag}

    def of(self, name: str, topics: Collection[str]) -> Trend:
        """Returns the trend of a group in some topics."""
        known = self._known.get(name)
        if known is None:
            return Trend(None, None)
        since_ms = min((known.since_ms[topic] for topic in topics if topic in known.since_ms), default=None)
        begin_ms, first = known.lags[0]
        end_ms, last = known.lags[-1]
        before, now = (sum(lags.get(topic, 0) for topic in topics) for lags in (first, last))
        if now == 0 or now >= before:
            return Trend(since_ms, None)
        return Trend(since_ms, end_ms + round(now * (end_ms - begin_ms) / (before - now)))

    def _lags(self, state: GroupState) -> dict[str, int]:
        """Returns the unread records of each topic, as far as its ends are known."""
        table, found = self._table, dict[str, int]()
        for (topic, partition), committed in state.offsets.items():
            row = table.row_of(topic, partition)
            end = -1 if row is None else int(table.volumes.high_watermark[row])
            found[topic] = found.get(topic, 0) + max(0, end - committed)
        return found
