"""The list of topics: aggregates over their partitions, filtered, sorted and cut to what the page shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from re import compile as compiled
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from barnabas.common.types import uuid_to_text
from barnabas.console.cluster_view import ClusterView
from barnabas.console.problems import Problem
from barnabas.console.views.partitions import leader_sizes, messages_in
from barnabas.monitor.columns import UNKNOWN, BoolArray, IntArray, LongArray
from barnabas.monitor.severity import STATES, Severity

LIMIT_MAX: Final = 1_000
SORTS: Final = (
    "name",
    "partitions",
    "replication",
    "min_isr",
    "severity",
    "size",
    "messages",
    "rate",
    "out_of_sync",
    "groups",
    "lag",
    "policy",
)


#: The rank of each topic in an order.
Ranks = Mapping[str, int]
_NO_RANKS: Final[Ranks] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TopicsQuestion:
    q: str = ""
    states: frozenset[str] = frozenset()
    internal: bool = True
    sort: str = "name"
    desc: bool = False
    offset: int = 0
    limit: int = 100


@dataclass(slots=True)
class _Totals:
    """The topics of one version, in the order of their names; one value for each in every column."""

    version: int
    names: list[str]
    lower: list[str]
    numbers: IntArray
    internal: BoolArray
    columns: dict[str, LongArray]


class TopicsView:
    """The list of topics. `rates` returns the records per second by row; -1 where they are unknown."""

    def __init__(self, cluster: ClusterView, rates: Callable[[], LongArray]) -> None:
        self._cluster = cluster
        self._rates = rates
        self._known: _Totals | None = None

    def answer(self, question: TopicsQuestion, policies: Ranks = _NO_RANKS) -> dict[str, Any]:
        """Returns a page of the topics that match. `policies`: the ranks of their policies, to sort by these."""
        totals = self._totals()
        order = self._order(totals, question, policies)
        shown = order[question.offset : question.offset + min(question.limit, LIMIT_MAX)]
        return {
            "total": len(totals.names),
            "matched": len(order),
            "offset": question.offset,
            "rows": list(self._rows(totals, shown.tolist())),
        }

    def every(self, question: TopicsQuestion, policies: Ranks = _NO_RANKS) -> Iterator[dict[str, Any]]:
        """Yields all topics that match, in order, for a file."""
        totals = self._totals()
        yield from self._rows(totals, self._order(totals, question, policies).tolist())

    def one(self, name: str) -> dict[str, Any]:
        """Returns the row of one topic. Raises Problem if there is no such topic."""
        totals = self._totals()
        topic = self._cluster.table.topics.by_name.get(name)
        if topic is None or not topic.count:
            raise Problem("not-found", f"there is no topic {name}")
        return next(self._rows(totals, [int(np.flatnonzero(totals.numbers == topic.number)[0])]))

    def names(self) -> list[str]:
        """Returns the names of all topics, in order."""
        return self._totals().names

    def names_like(self, text: str, limit: int) -> list[str]:
        totals = self._totals()
        wanted = text.lower()
        found = (name for name, lower in zip(totals.names, totals.lower, strict=True) if wanted in lower)
        return [name for name, _ in zip(found, range(limit), strict=False)]

    def _totals(self) -> _Totals:
        table = self._cluster.table
        if self._known is not None and self._known.version == table.version:
            return self._known
        names = [name for name in table.topics.names() if table.topics.by_name[name].count]
        numbers = np.array([table.topics.by_name[name].number for name in names], np.int32)
        lower = [name.lower() for name in names]
        if self._known is not None and self._known.names == names:
            lower = self._known.lower
        internal = table.topics.internal()[numbers] if names else np.zeros(0, np.bool_)
        self._known = _Totals(table.version, names, lower, numbers, internal, self._columns(numbers))
        return self._known

    def _columns(self, numbers: IntArray) -> dict[str, LongArray]:
        table = self._cluster.table
        rows, states = table.rows, table.states
        topic = states.topic[rows]
        count = int(topic.max(initial=UNKNOWN)) + 1
        replicas = (states.replicas[rows] != UNKNOWN).sum(axis=1)
        in_sync = (states.isr[rows] != UNKNOWN).sum(axis=1)
        severity = table.severities().astype(np.int64)
        worst = np.zeros(count, np.int64)
        np.maximum.at(worst, topic, severity)
        widest = np.zeros(count, np.int64)
        np.maximum.at(widest, topic, replicas)
        min_isr = np.full(count, UNKNOWN, np.int64)
        min_isr[topic] = states.min_isr[rows]
        found = {
            "partitions": _sums(topic, np.ones(len(rows), np.int64), count),
            "replication": widest,
            "min_isr": min_isr,
            "severity": worst,
            "size": _sums(topic, leader_sizes(table, rows), count),
            "messages": _sums(topic, messages_in(table, rows), count),
            "out_of_sync": _sums(topic, replicas - in_sync, count),
            "leaderless": _sums(topic, states.leader[rows] == UNKNOWN, count),
        }
        return {name: column[numbers] for name, column in found.items()}

    def _column(self, totals: _Totals, sort: str) -> LongArray:
        if sort == "rate":
            table = self._cluster.table
            rows = table.rows
            topic = table.states.topic[rows]
            return _sums(topic, self._rates()[rows], int(topic.max(initial=UNKNOWN)) + 1)[totals.numbers]
        if sort in ("groups", "lag"):
            place = 0 if sort == "groups" else 1
            by_topic = self._groups()
            return np.array([by_topic.get(name, (UNKNOWN, UNKNOWN))[place] for name in totals.names], np.int64)
        return totals.columns[sort]

    def _order(self, totals: _Totals, question: TopicsQuestion, policies: Ranks) -> IntArray:
        keep = np.ones(len(totals.names), np.bool_)
        if question.q:
            keep &= np.fromiter(_matches(totals.lower, question.q.lower()), np.bool_, len(totals.names))
        if question.states:
            wanted = [int(severity) for severity in Severity if severity.name.lower() in question.states]
            keep &= np.isin(totals.columns["severity"], wanted)
        if not question.internal:
            keep &= ~totals.internal
        chosen = np.flatnonzero(keep).astype(np.int32)
        if question.sort == "name":
            return chosen[::-1] if question.desc else chosen
        if question.sort == "policy":
            # Topics whose policy is not known come last, in any order.
            last = UNKNOWN if question.desc else len(policies)
            values = np.array([policies.get(totals.names[place], last) for place in chosen.tolist()], np.int64)
        else:
            values = self._column(totals, question.sort)[chosen]
        return chosen[np.argsort(-values if question.desc else values, kind="stable")]

    def _groups(self) -> dict[str, tuple[int, int]]:
        """Returns the number of groups of each topic, and the sum of their lags."""
        table, found = self._cluster.table, dict[str, tuple[int, int]]()
        for group in self._cluster.groups.values():
            lags: dict[str, int] = {}
            for (topic, partition), offset in group.offsets.items():
                row = table.row_of(topic, partition)
                end = UNKNOWN if row is None else int(table.volumes.high_watermark[row])
                lags[topic] = lags.get(topic, 0) + (max(0, end - offset) if end >= 0 else 0)
            for topic, lag in lags.items():
                before = found.get(topic, (0, 0))
                found[topic] = (before[0] + 1, before[1] + lag)
        return found

    def _rows(self, totals: _Totals, places: Sequence[int]) -> Iterator[dict[str, Any]]:
        topics = self._cluster.table.topics.by_name
        groups = self._groups()
        rates = self._column(totals, "rate")
        for place in places:
            name = totals.names[place]
            values = {column: int(values[place]) for column, values in totals.columns.items()}
            severity = Severity(values["severity"])
            of_groups = groups.get(name)
            yield {
                "topic": name,
                "topic_id": _id_text(topics[name].identity.topic_id),
                "is_internal": bool(totals.internal[place]),
                "partitions": values["partitions"],
                "replication": values["replication"],
                "min_isr": _known(values["min_isr"]),
                "severity": severity.name.lower(),
                "state": STATES[severity],
                "out_of_sync": values["out_of_sync"],
                "leaderless": values["leaderless"],
                "size_bytes": _known(values["size"]),
                "messages": _known(values["messages"]),
                "rate": _known(int(rates[place])),
                "groups": None if of_groups is None else of_groups[0],
                "lag": None if of_groups is None else of_groups[1],
            }


def _sums(topic: IntArray, values: Any, count: int) -> LongArray:
    """Returns the sum of each topic's known values; -1 if none is known."""
    is_known = values >= 0
    sums: LongArray = np.bincount(topic[is_known], weights=values[is_known], minlength=count).astype(np.int64)
    sums[np.bincount(topic[is_known], minlength=count) == 0] = UNKNOWN
    return sums


def _matches(names: Sequence[str], wanted: str) -> Iterator[bool]:
    if "*" in wanted:
        pattern = compiled(translate(wanted))
        return (pattern.match(name) is not None for name in names)
    return (wanted in name for name in names)


def _known(value: int) -> int | None:
    return None if value == UNKNOWN else value


def _id_text(topic_id: bytes) -> str | None:
    return uuid_to_text(topic_id) if any(topic_id) else None
