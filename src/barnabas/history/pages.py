"""States and histories as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from barnabas.history.gaps import Gap
from barnabas.history.pictures import replica_map
from barnabas.monitor.lines import headline
from barnabas.monitor.table import ClusterTable
from barnabas.monitor.texts import at


def table_html(table: ClusterTable, time_ms: int, gap: Gap | None) -> str:
    """Returns one moment: the headline of the monitor, and the replica map."""
    unknown = "" if gap is None else f"<p><b>Nothing is known of this time.</b> {escape(str(gap))}</p>"
    return f"<p><b>{escape(at(time_ms))}</b> {escape(headline(table))}</p>{unknown}{replica_map(table)}"


def history_html(name: str, span: tuple[int, int], problem: str | None, gaps: Sequence[Gap], lanes: str) -> str:
    """Returns a whole history: its period, its gaps, and the lanes of some partitions."""
    parts = [f"<p><b>{escape(name)}</b>: {escape(at(span[0]))} to {escape(at(span[1]))}</p>"]
    if problem is not None:
        parts.append(f"<p><b>{escape(problem)}</b></p>")
    parts += [f"<p>gap: {escape(str(gap))}</p>" for gap in gaps]
    return "".join([*parts, lanes])
