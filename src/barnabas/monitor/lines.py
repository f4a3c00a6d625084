"""The table and its changes as text: for a pipe, a log file, and the lower half of the live view."""

from __future__ import annotations

from typing import Final

from barnabas.monitor.changes import Change
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.severity import STATES, Severity
from barnabas.monitor.table import ClusterTable
from barnabas.monitor.texts import NO_NODE, at, ids, leader_name

COLUMNS: Final = ("partition", "state", "leader", "replicas", "ISR", "OSR", "followers", "size", "lag")

#: Exit codes of --check; 1 is a cluster that does not answer, 2 an invalid command line.
EXIT_CODES: Final = {
    Severity.OK: 0,
    Severity.NOTICE: 3,
    Severity.WARNING: 4,
    Severity.ERROR: 5,
    Severity.CRITICAL: 6,
}


def row(state: PartitionState) -> tuple[str, ...]:
    """Formats one partition as a row under `COLUMNS`; an unknown value is "?"."""
    return (
        str(state.key),
        state.state,
        leader_name(state.leader),
        ids(state.replicas),
        ids(state.isr),
        ids(state.out_of_sync) if state.out_of_sync else "-",
        ids(state.followers) if state.followers else "-",
        size(state.size_bytes),
        lags(state),
    )


def lags(state: PartitionState) -> str:
    """Returns the lag of each follower as "2:0 3:1200"; without a leader, each log end offset as "2@500 3@480"."""
    if state.leader == NO_NODE:
        ends = ((replica, state.details.get(replica)) for replica in state.replicas)
        known = (f"{replica}@{_count(None if detail is None else detail.log_end_offset)}" for replica, detail in ends)
        return " ".join(known)
    return " ".join(f"{replica}:{_count(state.lag_of(replica))}" for replica in state.followers) or "-"


def _count(value: int | None) -> str:
    return "?" if value is None else str(value)


def size(size_bytes: int | None) -> str:
    """Formats a size in decimal units: 1536 -> "1.5 kB"."""
    if size_bytes is None:
        return "?"
    value = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def headline(table: ClusterTable) -> str:
    """Formats the state of the cluster as one line."""
    counts = table.counts()
    wrong = [
        f"{counts[severity]} {STATES[severity]}" for severity in reversed(Severity) if severity and counts[severity]
    ]
    controller = "no active controller" if table.controller == NO_NODE else f"controller {table.controller}"
    total = len(table)
    parts = [
        f"cluster {table.cluster_id or '?'}",
        f"brokers {ids(sorted(table.brokers))}" + (f" ({ids(sorted(table.silent))} silent)" if table.silent else ""),
        controller,
        f"{total} partition{'' if total == 1 else 's'}: {', '.join(wrong) or 'all in sync'}",
    ]
    return " | ".join(parts)


def change_line(change: Change) -> str:
    """Formats a change as one line: time, severity, subject, what happened, why."""
    level = "ok" if change.severity is Severity.OK else change.severity.name
    line = f"{at(change.time_ms)}  {level:<8}  {change.subject}  {change.kind}: {change.text}"
    return line if change.cause is None else f"{line}, because {change.cause}"
