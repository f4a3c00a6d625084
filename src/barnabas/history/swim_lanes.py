"""The swim lanes of partitions: one lane each, over time.

The colour and the number are the leader, the height is the number of replicas in sync, a cross-hatch is a time without
a leader, a diagonal hatch one under min ISR. Ticks above a lane are changes, with their causes. Grey columns are gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from barnabas.history.gaps import Gap
from barnabas.history.pictures import Look, cell, fills, svg, text
from barnabas.monitor.changes import Change
from barnabas.monitor.partition_state import Key, PartitionState
from barnabas.monitor.severity import Severity
from barnabas.monitor.texts import at

LANES_MAX: Final = 50
_WIDTH: Final = 640
_LEFT: Final = 150
_LANE: Final = 22
_BAR: Final = 14
_ENDED: Final = frozenset({"topic-deleted", "partition-gone"})


class _Span(NamedTuple):
    """A state that lasted from one change to the next."""

    begin_ms: int
    end_ms: int
    state: PartitionState


def most_changed(changes: Sequence[Change], limit: int) -> list[Key]:
    """Returns the partitions that changed most often, the first one first; among equals, by name."""
    counts: dict[Key, int] = {}
    for change in changes:
        if change.after is not None:
            counts[change.after.key] = counts.get(change.after.key, 0) + 1
    return sorted(counts, key=lambda key: (-counts[key], key))[:limit]


def lanes_picture(lanes: Mapping[Key, Sequence[Change]], gaps: Sequence[Gap], since_ms: int, until_ms: int) -> str:
    """Returns the lanes of partitions, of which all changes are given, in a period."""
    brokers = sorted({each for lane in lanes.values() for change in lane for each in _replicas(change)})
    colours = fills(brokers)
    scale = _Scale(since_ms, max(until_ms, since_ms + 1))
    parts: list[str] = []
    for place, (key, lane) in enumerate(lanes.items()):
        parts.append(text(_LEFT - 6, place * _LANE + _BAR + 3, _short(str(key)), anchor="end"))
        parts += _lane(lane, place * _LANE + 4, colours, scale)
    height = len(lanes) * _LANE + 4
    parts += [_gap(gap, height, scale) for gap in gaps if gap.begin_ms < until_ms]
    parts.append(text(_LEFT, height + 12, at(since_ms)))
    parts.append(text(_LEFT + _WIDTH, height + 12, at(until_ms), anchor="end"))
    for place, broker in enumerate(brokers):
        parts.append(cell(_LEFT + place * 90, height + 20, 12, 12, Look(colours[broker], "", str(broker), ""), ""))
        parts.append(text(_LEFT + place * 90 + 18, height + 30, f"leader {broker}"))
    return svg(_LEFT + _WIDTH + 10, height + 40, f"{len(lanes)} partitions over time", parts)


class _Scale(NamedTuple):
    since_ms: int
    until_ms: int

    def x(self, time_ms: int) -> float:
        part = (min(max(time_ms, self.since_ms), self.until_ms) - self.since_ms) / (self.until_ms - self.since_ms)
        return round(_LEFT + part * _WIDTH, 1)


def _lane(changes: Sequence[Change], top: int, colours: Mapping[int, str], scale: _Scale) -> Iterator[str]:
    for span in _spans(changes, scale.until_ms):
        if span.end_ms <= scale.since_ms or span.begin_ms >= scale.until_ms:
            continue
        x, end, state = scale.x(span.begin_ms), scale.x(span.end_ms), span.state
        height = max(3, _BAR * len(state.isr) / max(1, len(state.replicas)))
        title = f"{at(span.begin_ms)}: leader {state.leader}, {len(state.isr)} of {len(state.replicas)}; {state.state}"
        look = _look(state, colours, wide=end - x >= 8)
        yield cell(x, top + _BAR - height, max(0.5, end - x), height, look, title)
    for change in changes:
        if change.kind != "begin" and scale.since_ms <= change.time_ms <= scale.until_ms:
            x = scale.x(change.time_ms)
            title = escape(f"{at(change.time_ms)} {change.text}, because {change.cause or 'unknown'}")
            mark = f'<path d="M{x:g} {top - 3}v{_BAR + 3}" stroke="#000" stroke-width="1"/>'
            yield f"<g><title>{title}</title>{mark}</g>"


def _look(state: PartitionState, colours: Mapping[int, str], *, wide: bool) -> Look:
    if state.leader < 0:
        return Look("#FFFFFF", "url(#leaderless)", "x" if wide else "", "")
    hatch = "url(#behind)" if state.severity >= Severity.ERROR else ""
    return Look(colours.get(state.leader, "#999999"), hatch, str(state.leader) if wide else "", "")


def _spans(changes: Sequence[Change], until_ms: int) -> Iterator[_Span]:
    begin_ms, state = 0, None
    for change in changes:
        if state is not None:
            yield _Span(begin_ms, change.time_ms, state)
        ended = change.kind in _ENDED
        state = None if ended else change.after or (change.created[0] if change.created else state)
        begin_ms = change.time_ms
    if state is not None:
        yield _Span(begin_ms, until_ms, state)


def _replicas(change: Change) -> tuple[int, ...]:
    state = change.after or (change.created[0] if change.created else None)
    return () if state is None else tuple({*state.replicas, *([state.leader] if state.leader >= 0 else [])})


def _gap(gap: Gap, height: int, scale: _Scale) -> str:
    x, end = scale.x(gap.begin_ms), scale.x(scale.until_ms if gap.end_ms is None else gap.end_ms)
    return (
        f'<g><title>{escape(str(gap))}</title><rect x="{x:g}" y="0" width="{max(1.0, end - x):g}" height="{height}" '
        'fill="#666" fill-opacity="0.35"/></g>'
    )


def _short(name: str) -> str:
    """Returns a name that fits, with the partition's number."""
    return name if len(name) <= 24 else f"{name[:12]}…{name[-11:]}"
