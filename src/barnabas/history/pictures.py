"""Pictures of states as SVG: the replica map of one moment, and the swim lanes of partitions over time.

Colours are those of Okabe and Ito, which people with colour blindness can distinguish, and each comes with a hatch or a
letter. All texts are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Final, NamedTuple

from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.table import ClusterTable

#: A picture of more cells is too large for a notebook; the first partitions by severity are drawn then.
CELLS_MAX: Final = 2_000
_CELL: Final = 11
_COLUMNS: Final = 24
_LABEL: Final = 14
_GAP: Final = 22


class Look(NamedTuple):
    """The look of a replica: its fill, the hatch over it, and its letter."""

    fill: str
    hatch: str
    letter: str
    text: str


LEADER: Final = Look("#0072B2", "", "L", "leader")
IN_SYNC: Final = Look("#56B4E9", "", "", "in sync")
BEHIND: Final = Look("#E69F00", "url(#behind)", "o", "out of sync")
LEADERLESS: Final = Look("#D55E00", "url(#leaderless)", "x", "no leader")
SILENT: Final = Look("#CC79A7", "url(#behind)", "?", "does not answer")
LOOKS: Final = (LEADER, IN_SYNC, BEHIND, LEADERLESS, SILENT)

#: Fills on which a letter is white.
_DARK: Final = frozenset({"#0072B2"})
_HATCHES: Final = (
    '<defs><pattern id="behind" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path d="M0 0V4" stroke="#000" stroke-opacity="0.45" stroke-width="1.2"/></pattern>'
    '<pattern id="leaderless" width="5" height="5" patternUnits="userSpaceOnUse">'
    '<path d="M0 0L5 5M5 0L0 5" stroke="#000" stroke-opacity="0.55" stroke-width="0.9"/></pattern></defs>'
)


def look_of(state: PartitionState, replica: int) -> Look:
    """Returns what one replica of a partition looks like."""
    if state.leader < 0:
        return LEADERLESS
    if replica in state.silent:
        return SILENT
    if replica == state.leader:
        return LEADER
    return IN_SYNC if replica in state.isr else BEHIND


def replica_map(table: ClusterTable) -> str:
    """Returns one block for each broker with a cell for each of its replicas, the worst partitions first."""
    rows = table.by_severity()
    by_broker: dict[int, list[tuple[PartitionState, Look]]] = {broker: [] for broker in sorted(table.brokers)}
    cells = 0
    drawn = 0
    for state in table.values(rows[:CELLS_MAX].tolist()):
        if cells + len(state.replicas) > CELLS_MAX:
            break
        drawn += 1
        for replica in state.replicas:
            by_broker.setdefault(replica, []).append((state, look_of(state, replica)))
            cells += 1
    parts: list[str] = []
    top = 0
    for broker, replicas in sorted(by_broker.items()):
        parts.extend(_block(broker, broker in table.brokers, replicas, top))
        top += _LABEL + _GAP // 2 + _CELL * -(-len(replicas) // _COLUMNS)
    left = len(rows) - drawn
    note = f"; {left} more partitions are not drawn" if left else ""
    title = f"Replicas by broker: {drawn} partitions, the worst first{note}"
    return svg(_COLUMNS * _CELL + 150, max(top, 100) + _LABEL, title, [*parts, *legend(_COLUMNS * _CELL + 20)])


def _block(broker: int, is_there: bool, replicas: list[tuple[PartitionState, Look]], top: int) -> Iterator[str]:
    name = f"broker {broker}{'' if is_there else ' (gone)'}: {len(replicas)}"
    yield text(0, top + _LABEL - 3, name)
    for place, (state, look) in enumerate(replicas):
        x, y = place % _COLUMNS * _CELL, top + _LABEL + place // _COLUMNS * _CELL
        yield cell(x, y, _CELL - 1, _CELL - 1, look, f"{state.key} on {broker}: {look.text}; {state.state}")


def cell(x: float, y: float, width: float, height: float, look: Look, title: str) -> str:
    """Returns a rectangle with its hatch, its letter and a text that appears when the mouse rests on it."""
    box = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    hatch = f'<rect {box} fill="{look.hatch}"/>' if look.hatch else ""
    ink = "#FFFFFF" if look.fill in _DARK else "#000000"
    letter = text(x + width / 2, y + height - 2, look.letter, anchor="middle", size=8, ink=ink) if look.letter else ""
    return f'<g><title>{escape(title)}</title><rect {box} fill="{look.fill}"/>{hatch}{letter}</g>'


def text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 11, ink: str = "#000000") -> str:
    place = f'x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} fill="{ink}">{escape(words)}</text>'


def legend(x: int) -> Iterator[str]:
    for place, look in enumerate(LOOKS):
        yield cell(x, place * 16, 12, 12, look, look.text)
        yield text(x + 18, place * 16 + 10, look.text)


def svg(width: float, height: float, title: str, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="sans-serif"><title>{escape(title)}</title>{_HATCHES}'
        f"{''.join(parts)}</svg>"
    )


#: Fills of leaders in swim lanes, by turns; each has its broker's number as the letter.
LEADERS: Final = ("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#F0E442", "#D55E00")


def fills(brokers: Mapping[int, object] | list[int]) -> dict[int, str]:
    """Returns a fill for each broker."""
    return {broker: LEADERS[place % len(LEADERS)] for place, broker in enumerate(sorted(brokers))}
