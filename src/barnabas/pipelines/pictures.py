"""Pictures of the tables, as PNG files and one HTML page: they show a run and the cluster under it.

    revenue_by_hour.png    revenue by hour of event time; marked: hours whose orders were written during a leader change
    latency.png            from a record's arrival in the log to its row: over time, and its distribution
    leaders.png            which broker led each partition when
    leader_share.png  elections.png  under_min_isr.png  unavailable.png  recovery.png      one for each figure of health
    index.html             all that were drawn

A picture whose tables are missing or empty is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
from matplotlib import dates as mdates
from matplotlib import pyplot as plt

from barnabas.pipelines.commits import CommitLog
from barnabas.pipelines.latency import latencies
from barnabas.pipelines.page import write_page
from barnabas.pipelines.query import HEALTH, connect, rows_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SIZE = (10, 4.5)
_TROUBLES = {"unavailable": "#c0392b", "under_min_isr": "#e67e22", "under_replicated": "#f1c40f"}
_NO_LEADER = "#c0392b"
#: Without a red, which means no leader.
_COLOURS = (
    "#2c7fb8",
    "#fdae61",
    "#5aae61",
    "#9970ab",
    "#8c6d31",
    "#c994c7",
    "#737373",
    "#bcbd22",
    "#17becf",
    "#1b4965",
)
_PARTITIONS_MAX = 40
_CAPTIONS = {
    "revenue_by_hour": "Revenue by hour of event time; marked: hours whose orders were written during a leader change",
    "latency": "From a record's arrival in the log to its row",
    "leaders": "Who led each partition",
    "leader_share": "Each broker's share of the time as leader",
    "elections": "Elections by broker and cause",
    "under_min_isr": "Time under min ISR",
    "unavailable": "Longest time without a leader",
    "recovery": "Time to recover",
}
_USERS_TOPICS = "NOT starts_with(topic, '__')"
_FAILOVERS_SQL = f"""
SELECT DISTINCT from_time FROM leader_spans s
WHERE from_time > (SELECT min(from_time) FROM leader_spans f WHERE f.topic = s.topic AND f.partition = s.partition)
  AND {_USERS_TOPICS} ORDER BY 1
"""


def draw_all(tables: Path, directory: Path) -> list[Path]:
    """Draws all possible pictures, and returns their files."""
    directory.mkdir(parents=True, exist_ok=True)
    connection = connect(tables)
    there = {name for (name,) in rows_of(connection, "SELECT view_name FROM duckdb_views() WHERE NOT internal")}
    made = []
    for name, needs, draw in _PICTURES:
        if not needs <= there:
            continue
        figure = draw(connection, tables)
        if figure is not None:
            path = directory / f"{name}.png"
            figure.savefig(path, dpi=110, bbox_inches="tight")
            plt.close(figure)
            made.append(path)
    return [*made, write_page(directory, f"Tables of {tables}", made, _CAPTIONS)] if made else []


def _revenue(connection: DuckDBPyConnection, tables: Path) -> Any:
    rows = rows_of(
        connection,
        "SELECT hour, sum(revenue)::DOUBLE, sum(orders) FROM revenue_by_store_hour GROUP BY hour ORDER BY hour",
    )
    if not rows:
        return None
    hours = np.array([row[0].replace(tzinfo=None) for row in rows], dtype="datetime64[us]")
    figure, axes = plt.subplots(figsize=_SIZE)
    axes.fill_between(hours, [row[1] for row in rows], step="post", color="#2c7fb8", alpha=0.75, linewidth=0)
    axes.set_ylabel("revenue per hour, dollars")
    axes.set_title(f"{sum(row[2] for row in rows):,} orders, {sum(row[1] for row in rows):,.2f} in sales")
    for number, (begin, end) in enumerate(_failover_hours(connection, tables)):
        span: Any = (begin, end)
        axes.axvspan(*span, color=_NO_LEADER, alpha=0.3, label=None if number else "written during a leader change")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left")
    axes.set_ylim(bottom=0)
    _time_axis(axes)
    return figure


def _failover_hours(connection: DuckDBPyConnection, tables: Path) -> list[tuple[datetime, datetime]]:
    """Returns the event times of each batch that was being written when a leader changed, or came next."""
    if not (tables / HEALTH / "leader_spans.parquet").exists():
        return []
    failovers = [int(row[0].timestamp() * 1000) for row in rows_of(connection, _FAILOVERS_SQL)]
    before_ms: int | None = None
    found: list[tuple[datetime, datetime]] = []
    for commit in CommitLog(tables).all():
        since_ms = commit.started_ms if before_ms is None else before_ms
        if any(since_ms < at_ms <= commit.recorded_ms for at_ms in failovers):
            days = sorted({file.day for file in commit.files if file.table == "orders" and file.day})
            times = [each.event_time_ms for each in commit.progress.values() if each.event_time_ms is not None]
            if days and times:
                begin = datetime.fromisoformat(days[0])
                end = datetime.fromtimestamp(max(times) / 1000, UTC).replace(tzinfo=None)
                found.append((begin, max(begin, end)))
        before_ms = commit.recorded_ms
    return found


def _latency(connection: DuckDBPyConnection, tables: Path) -> Any:
    found = latencies(tables, CommitLog(tables).all())
    p50, p99 = found.percentile_ms(50), found.percentile_ms(99)
    if p50 is None or p99 is None:
        return None
    figure, (over_time, spread) = plt.subplots(1, 2, figsize=_SIZE, width_ratios=(2, 1), sharey=True)
    order = np.argsort(found.recorded_ms)
    times = (found.recorded_ms[order] * 1000).astype("datetime64[us]")
    over_time.scatter(times, found.latency_ms[order] / 1000, s=6, color="#2c7fb8")
    over_time.set_ylabel("seconds from the log to the table")
    over_time.set_title(f"{int(found.records.sum()):,} records: p50 {p50 / 1000:.2f} s, p99 {p99 / 1000:.2f} s")
    if (tables / HEALTH / "leader_spans.parquet").exists():
        begin, end = times.min(), times.max()
        for (at,) in rows_of(connection, _FAILOVERS_SQL):
            if begin <= np.datetime64(at.replace(tzinfo=None)) <= end:
                over_time.axvline(at.replace(tzinfo=None), color=_NO_LEADER, linewidth=1)
    _time_axis(over_time)
    spread.hist(
        found.latency_ms / 1000, bins=40, weights=found.records, orientation="horizontal", color="#2c7fb8", alpha=0.75
    )
    spread.set_xlabel("records")
    over_time.set_ylim(bottom=0)
    return figure


def _leaders(connection: DuckDBPyConnection, _: Path) -> Any:
    rows = rows_of(
        connection,
        "SELECT topic, partition, leader, from_time, coalesce(to_time, now()) FROM leader_spans "
        f"WHERE {_USERS_TOPICS} ORDER BY topic, partition, from_time",
    )
    if not rows:
        return None
    places = list(dict.fromkeys(row[:2] for row in rows))[:_PARTITIONS_MAX]
    changes = [row[3] for row in rows]
    last = max(changes)
    # A long quiet time after the last change would compress everything before it into one pixel.
    until = last + max((last - min(changes)) * 0.15, _second() * 5)
    figure, axes = plt.subplots(figsize=(_SIZE[0], 1.5 + 0.3 * len(places)))
    for topic, partition, leader, begin, end in rows:
        if (topic, partition) in places:
            line, stop = places.index((topic, partition)), min(end, until)
            colour = _colour(leader)
            axes.barh(line, stop - begin, left=begin, color=colour, height=0.8, label=_broker(leader))
    axes.set_yticks(range(len(places)), [f"{topic}-{partition}" for topic, partition in places])
    axes.invert_yaxis()
    axes.set_title("who led each partition")
    _legend(axes)
    _time_axis(axes)
    return figure


def _leader_share(connection: DuckDBPyConnection, _: Path) -> Any:
    rows = rows_of(
        connection, f"SELECT topic, broker, share FROM leader_share WHERE {_USERS_TOPICS} ORDER BY topic, broker"
    )
    topics = list(dict.fromkeys(row[0] for row in rows))[:_PARTITIONS_MAX]
    if not topics:
        return None
    figure, axes = plt.subplots(figsize=(_SIZE[0], 1.5 + 0.4 * len(topics)))
    ends = dict.fromkeys(topics, 0.0)
    for topic, broker, share in rows:
        if topic in ends:
            colour = _colour(broker)
            axes.barh(topic, share * 100, left=ends[topic], color=colour, label=_broker(broker))
            ends[topic] += share * 100
    axes.set_xlabel("percent of the partitions' time")
    axes.set_title("leaders' share of time")
    _legend(axes)
    return figure


def _elections(connection: DuckDBPyConnection, _: Path) -> Any:
    rows = rows_of(connection, "SELECT broker, cause, sum(count) FROM elections GROUP BY ALL ORDER BY broker, cause")
    if not rows:
        return None
    causes = sorted({row[1] for row in rows})
    brokers = sorted({row[0] for row in rows})
    figure, axes = plt.subplots(figsize=_SIZE)
    bottoms = np.zeros(len(brokers))
    for number, cause in enumerate(causes):
        counts = np.array(
            [sum(row[2] for row in rows if row[:2] == (broker, cause)) for broker in brokers], dtype=float
        )
        axes.bar(
            [f"broker {broker}" for broker in brokers], counts, bottom=bottoms, color=_colour(number + 1), label=cause
        )
        bottoms += counts
    axes.set_ylabel("partitions whose leader it became")
    axes.set_title("elections by broker and cause")
    _legend(axes)
    return figure


def _trouble_bars(column: str, title: str, colour: str) -> Callable[[DuckDBPyConnection, Path], Any]:
    def draw(connection: DuckDBPyConnection, _: Path) -> Any:
        rows = rows_of(
            connection,
            f"SELECT topic || '-' || partition, {column} / 1000.0 FROM partitions "
            f"WHERE {column} > 0 ORDER BY {column} DESC LIMIT {_PARTITIONS_MAX}",
        )
        if not rows:
            return None
        figure, axes = plt.subplots(figsize=(_SIZE[0], 1.5 + 0.3 * len(rows)))
        axes.barh([row[0] for row in rows], [float(row[1]) for row in rows], color=colour)
        axes.invert_yaxis()
        axes.set_xlabel("seconds")
        axes.set_title(title)
        return figure

    return draw


def _recovery(connection: DuckDBPyConnection, _: Path) -> Any:
    rows = rows_of(connection, "SELECT trouble, mean_ms, longest_ms, recovered, lasting FROM recovery")
    rows = [row for row in rows if row[1] is not None]
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=_SIZE)
    names = [f"{row[0].replace('_', ' ')}\n{row[3]} times{f', {row[4]} last' if row[4] else ''}" for row in rows]
    axes.bar(names, [row[1] / 1000 for row in rows], color=[_TROUBLES[row[0]] for row in rows])
    axes.scatter(names, [row[2] / 1000 for row in rows], color="black", marker="_", s=400, label="the longest")
    axes.set_ylabel("seconds")
    axes.set_title("mean time to recover")
    axes.legend()
    return figure


def _colour(broker: int) -> str:
    return _NO_LEADER if broker < 0 else _COLOURS[(broker - 1) % len(_COLOURS)]


def _broker(number: int) -> str:
    return "no leader" if number < 0 else f"broker {number}"


def _legend(axes: Any) -> None:
    """Draws a legend next to the picture, with each label once."""
    named: Mapping[str, Any] = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    names = sorted(named)
    axes.legend([named[name] for name in names], names, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _time_axis(axes: Any) -> None:
    dates: Any = mdates
    locator = dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))


def _second() -> Any:
    return datetime(2000, 1, 1, 0, 0, 1) - datetime(2000, 1, 1)


_PICTURES: tuple[tuple[str, frozenset[str], Callable[[DuckDBPyConnection, Path], Any]], ...] = (
    ("revenue_by_hour", frozenset({"revenue_by_store_hour"}), _revenue),
    ("latency", frozenset({"batches"}), _latency),
    ("leaders", frozenset({"leader_spans"}), _leaders),
    ("leader_share", frozenset({"leader_share"}), _leader_share),
    ("elections", frozenset({"elections"}), _elections),
    (
        "under_min_isr",
        frozenset({"partitions"}),
        _trouble_bars("under_min_isr_ms", "time under min ISR", _TROUBLES["under_min_isr"]),
    ),
    (
        "unavailable",
        frozenset({"partitions"}),
        _trouble_bars("longest_unavailable_ms", "longest time without a leader", _TROUBLES["unavailable"]),
    ),
    ("recovery", frozenset({"recovery"}), _recovery),
)
