"""Pictures of the tables, as PNG files and one HTML page: they show a run and the cluster under it.

    revenue_by_hour.png    revenue by hour of event time; marked: hours whose orders were written during a leader change
    latency.png            from a record's arrival in the log to its row: over time, and its distribution
    leaders.png            which broker led each partition when
    leader_share.png  elections.png  under_min_isr.png  unavailable.png  recovery.png      one for each figure of health
    index.html             all that were drawn

A picture whose tables are missing or empty is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
from matplotlib import pyplot as plt

from barnabas.pipelines import style
from barnabas.pipelines.commits import CommitLog
from barnabas.pipelines.latency import latencies
from barnabas.pipelines.page import write_page
from barnabas.pipelines.query import HEALTH, connect, rows_of
from barnabas.pipelines.style import Mark

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_PARTITIONS_MAX = 40
#: A bar narrower than this share of the picture has no text.
_TEXT_SHARE_MIN = 0.03
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
_Draw = Callable[["DuckDBPyConnection", Path, Sequence[Mark]], Any]
_USERS_TOPICS = "NOT starts_with(topic, '__')"
_FAILOVERS_SQL = f"""
SELECT DISTINCT from_time FROM leader_spans s
WHERE from_time > (SELECT min(from_time) FROM leader_spans f WHERE f.topic = s.topic AND f.partition = s.partition)
  AND {_USERS_TOPICS} ORDER BY 1
"""


def draw_all(tables: Path, directory: Path, marks: Sequence[Mark] = ()) -> list[Path]:
    """Draws all possible pictures, and returns their files. `marks` are drawn in pictures whose axis is the time of the
    run.
    """
    directory.mkdir(parents=True, exist_ok=True)
    style.apply()
    connection = connect(tables)
    there = {name for (name,) in rows_of(connection, "SELECT view_name FROM duckdb_views() WHERE NOT internal")}
    made = []
    for name, needs, draw in _PICTURES:
        if not needs <= there:
            continue
        figure = draw(connection, tables, marks)
        if figure is not None:
            path = directory / f"{name}.png"
            figure.savefig(path)
            plt.close(figure)
            made.append(path)
    return [*made, write_page(directory, f"Tables of {tables}", made, _CAPTIONS)] if made else []


def _revenue(connection: DuckDBPyConnection, tables: Path, _: Sequence[Mark]) -> Any:
    rows = rows_of(
        connection,
        "SELECT hour, sum(revenue)::DOUBLE, sum(orders) FROM revenue_by_store_hour GROUP BY hour ORDER BY hour",
    )
    if not rows:
        return None
    hours = np.array([row[0].replace(tzinfo=None) for row in rows], dtype="datetime64[us]")
    figure, axes = plt.subplots(figsize=style.SIZE)
    axes.fill_between(hours, [row[1] for row in rows], step="post", color=style.BLUE, alpha=0.75, linewidth=0)
    axes.set_ylabel("revenue per hour ($)")
    axes.set_title(f"Revenue by hour: {sum(row[2] for row in rows):,} orders, ${sum(row[1] for row in rows):,.2f}")
    for number, (begin, end) in enumerate(_failover_hours(connection, tables)):
        span: Any = (begin, end)
        axes.axvspan(*span, color=style.FAILURE, alpha=0.3, label=None if number else "written during a leader change")
    if axes.get_legend_handles_labels()[0]:
        style.legend_above(axes)
    axes.set_ylim(bottom=0)
    style.time_axis(axes)
    axes.set_xlabel("event time (UTC)")
    return figure


def _failover_hours(connection: DuckDBPyConnection, tables: Path) -> list[tuple[datetime, datetime]]:
    """Returns the event times of each batch that was being written when a leader changed, or that came next after the
    change.
    """
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


def _latency(connection: DuckDBPyConnection, tables: Path, marks: Sequence[Mark]) -> Any:
    found = latencies(tables, CommitLog(tables).all())
    p50, p99 = found.percentile_ms(50), found.percentile_ms(99)
    if p50 is None or p99 is None:
        return None
    figure, (over_time, spread) = plt.subplots(1, 2, figsize=style.SIZE, width_ratios=(3, 1), sharey=True)
    order = np.argsort(found.recorded_ms)
    times = (found.recorded_ms[order] * 1000).astype("datetime64[us]")
    over_time.scatter(times, found.latency_ms[order] / 1000, s=8, color=style.BLUE)
    over_time.set_ylabel("latency (s)")
    records = int(found.records.sum())
    over_time.set_title(f"From the log to the tables: p50 {p50 / 1000:.2f} s, p99 {p99 / 1000:.2f} s")
    if not marks and (tables / HEALTH / "leader_spans.parquet").exists():
        begin, end = times.min(), times.max()
        changes = (at.replace(tzinfo=None) for (at,) in rows_of(connection, _FAILOVERS_SQL))
        for number, at in enumerate(at for at in changes if begin <= np.datetime64(at) <= end):
            over_time.axvline(at, color=style.FAILURE, linewidth=1, label=None if number else "leader change")
        if over_time.get_legend_handles_labels()[0]:
            style.legend_above(over_time)
    style.time_axis(over_time)
    style.draw_marks(over_time, marks)
    seconds = found.latency_ms / 1000
    spread.hist(seconds, bins=40, weights=found.records, orientation="horizontal", color=style.BLUE, alpha=0.75)
    for value, text in ((p50 / 1000, "p50"), (p99 / 1000, "p99")):
        spread.axhline(value, color=style.GREY, linewidth=1, linestyle=":")
        spread.annotate(
            text, (1.0, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", color=style.GREY
        )
    spread.set_xlabel("records")
    spread.set_title(f"{records:,} records")
    over_time.set_ylim(bottom=0)
    figure.tight_layout()
    return figure


def _leaders(connection: DuckDBPyConnection, _: Path, marks: Sequence[Mark]) -> Any:
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
    until = last + max((last - min(changes)) * 0.15, timedelta(seconds=5))
    figure, axes = plt.subplots(figsize=(style.SIZE[0], 1.5 + 0.3 * len(places)))
    for topic, partition, leader, begin, end in rows:
        if (topic, partition) in places:
            line, stop = places.index((topic, partition)), min(end, until)
            colour = style.series(leader)
            axes.barh(line, stop - begin, left=begin, color=colour, height=0.8, label=_broker(leader))
            if stop - begin > (until - min(changes)) * _TEXT_SHARE_MIN:
                middle = begin + (stop - begin) / 2
                text = "none" if leader < 0 else str(leader)
                axes.text(middle, line, text, ha="center", va="center", color=style.text_on(colour))
    axes.set_yticks(range(len(places)), [f"{topic}-{partition}" for topic, partition in places])
    axes.invert_yaxis()
    axes.set_title("Leader of each partition")
    axes.set_ylabel("partition")
    axes.grid(visible=False, axis="y")
    style.legend(axes)
    style.time_axis(axes)
    style.draw_marks(axes, marks)
    return figure


def _leader_share(connection: DuckDBPyConnection, _: Path, __: Sequence[Mark]) -> Any:
    rows = rows_of(
        connection, f"SELECT topic, broker, share FROM leader_share WHERE {_USERS_TOPICS} ORDER BY topic, broker"
    )
    topics = list(dict.fromkeys(row[0] for row in rows))[:_PARTITIONS_MAX]
    if not topics:
        return None
    figure, axes = plt.subplots(figsize=(style.SIZE[0], 1.5 + 0.4 * len(topics)))
    ends = dict.fromkeys(topics, 0.0)
    for topic, broker, share in rows:
        if topic in ends:
            colour = style.series(broker)
            axes.barh(topic, share * 100, left=ends[topic], color=colour, label=_broker(broker))
            if share > _TEXT_SHARE_MIN:
                text = f"{share * 100:.0f} %"
                middle = ends[topic] + share * 50
                axes.text(middle, topic, text, ha="center", va="center", color=style.text_on(colour))
            ends[topic] += share * 100
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the partitions' time (%)")
    axes.set_ylabel("topic")
    axes.set_title("Share of time of each broker as leader")
    style.legend(axes)
    return figure


def _elections(connection: DuckDBPyConnection, _: Path, __: Sequence[Mark]) -> Any:
    rows = rows_of(connection, "SELECT broker, cause, sum(count) FROM elections GROUP BY ALL ORDER BY broker, cause")
    if not rows:
        return None
    causes = sorted({row[1] for row in rows})
    brokers = sorted({row[0] for row in rows})
    figure, axes = plt.subplots(figsize=style.SIZE)
    bottoms = np.zeros(len(brokers))
    for number, cause in enumerate(causes):
        counts = np.array(
            [sum(row[2] for row in rows if row[:2] == (broker, cause)) for broker in brokers], dtype=float
        )
        axes.bar(
            [f"broker {broker}" for broker in brokers],
            counts,
            bottom=bottoms,
            color=style.series(number + 1),
            label=cause,
        )
        bottoms += counts
    axes.set_ylabel("elections (partitions)")
    axes.set_xlabel("new leader")
    axes.set_title("Elections by new leader and cause")
    style.legend(axes)
    return figure


def _trouble_bars(column: str, title: str, colour: str) -> _Draw:
    def draw(connection: DuckDBPyConnection, _: Path, __: Sequence[Mark]) -> Any:
        rows = rows_of(
            connection,
            f"SELECT topic || '-' || partition, {column} / 1000.0 FROM partitions "
            f"WHERE {column} > 0 ORDER BY {column} DESC LIMIT {_PARTITIONS_MAX}",
        )
        if not rows:
            return None
        figure, axes = plt.subplots(figsize=(style.SIZE[0], 1.5 + 0.3 * len(rows)))
        axes.barh([row[0] for row in rows], [float(row[1]) for row in rows], color=colour)
        axes.invert_yaxis()
        axes.set_xlabel("duration (s)")
        axes.set_ylabel("partition")
        axes.set_title(title)
        return figure

    return draw


def _recovery(connection: DuckDBPyConnection, _: Path, __: Sequence[Mark]) -> Any:
    rows = rows_of(connection, "SELECT trouble, mean_ms, longest_ms, recovered, lasting FROM recovery")
    rows = [row for row in rows if row[1] is not None]
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=style.SIZE)
    names = [f"{row[0].replace('_', ' ')}\n{row[3]} times{f', {row[4]} last' if row[4] else ''}" for row in rows]
    axes.bar(names, [row[1] / 1000 for row in rows], width=0.5, color=[style.TROUBLES[row[0]] for row in rows])
    axes.scatter(names, [row[2] / 1000 for row in rows], color="black", marker="_", s=400, label="the longest")
    axes.set_ylabel("time to recover (s)")
    axes.set_xlabel("trouble")
    axes.set_title("Mean time to recover, and the longest")
    axes.set_xlim(-1.0, len(names))
    style.legend_above(axes)
    return figure


def _broker(number: int) -> str:
    return "no leader" if number < 0 else f"broker {number}"


_PICTURES: tuple[tuple[str, frozenset[str], _Draw], ...] = (
    ("revenue_by_hour", frozenset({"revenue_by_store_hour"}), _revenue),
    ("latency", frozenset({"batches"}), _latency),
    ("leaders", frozenset({"leader_spans"}), _leaders),
    ("leader_share", frozenset({"leader_share"}), _leader_share),
    ("elections", frozenset({"elections"}), _elections),
    (
        "under_min_isr",
        frozenset({"partitions"}),
        _trouble_bars("under_min_isr_ms", "Time under min ISR of each partition", style.TROUBLES["under_min_isr"]),
    ),
    (
        "unavailable",
        frozenset({"partitions"}),
        _trouble_bars(
            "longest_unavailable_ms", "Longest time without a leader of each partition", style.TROUBLES["unavailable"]
        ),
    ),
    ("recovery", frozenset({"recovery"}), _recovery),
)
