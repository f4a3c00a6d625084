"""States and histories as HTML for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from barnabas.history.pictures import replica_map
from barnabas.history.swim_lanes import most_changed, swim_lanes
from barnabas.monitor.lines import headline
from barnabas.monitor.texts import at

if TYPE_CHECKING:
    from barnabas.history.past_table import PastTable
    from barnabas.history.reader import History

_LANES: Final = 20
_CHANGES: Final = 2_000


def table_html(table: PastTable) -> str:
    """Returns one moment: the headline of the monitor, and the replica map."""
    gap = "" if table.gap is None else f"<p><b>Nothing is known of this time.</b> {escape(str(table.gap))}</p>"
    return f"<p><b>{escape(at(table.asked_ms))}</b> {escape(headline(table))}</p>{gap}{replica_map(table)}"


def history_html(history: History) -> str:
    """Returns a whole history: its period, the gaps, the partitions that changed most, and the last state."""
    first_ms, last_ms = history.span()
    changes = history.events(limit=_CHANGES, newest=True)
    lines = [f"<p><b>{escape(str(history.path.name))}</b>: {escape(at(first_ms))} to {escape(at(last_ms))}</p>"]
    if history.problem is not None:
        lines.append(f"<p><b>{escape(history.problem)}</b></p>")
    lines += [f"<p>gap: {escape(str(gap))}</p>" for gap in history.gaps()]
    keys = most_changed(changes, _LANES)
    if keys:
        lines.append(swim_lanes(history, keys, first_ms, last_ms))
    return "".join([*lines, table_html(history.at(last_ms))])
