"""Events of the time line about very many partitions, made from columns; and their texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from barnabas.monitor.changes import Change
from barnabas.monitor.columns import UNKNOWN, IntArray, unique_rows
from barnabas.monitor.delta import TopicName
from barnabas.monitor.merged_texts import merged, skeleton
from barnabas.monitor.packed_changes import KINDS, Cause, PackedChanges
from barnabas.monitor.severity import Severity

#: Partitions that an event names, and moves in its text.
_SAMPLE: Final = 20
_MOVES_SHOWN: Final = 8


def joined_parts(changes: Iterable[PackedChanges]) -> list[tuple[PackedChanges, list[PackedChanges]]]:
    """Returns the changes that can be shown as one, each with its parts: a poll sees a decision page by page, and each
    page is a version, and so is each part of a decision about very many.
    """
    groups: list[list[PackedChanges]] = []
    topics: dict[int, TopicName] = {}
    for each in changes:
        if groups and each.fits(groups[-1][-1], topics):
            groups[-1].append(each)
            topics |= each.topics
        else:
            groups.append([each])
            topics = dict(each.topics)
    return [(PackedChanges.joined(parts), parts) for parts in groups]


def packed_groups(packed: PackedChanges, folded_from: int) -> Iterator[tuple[NDArray[np.intp], bool]]:
    """Yields the rows of each event: those with the same kind and cause, except for offsets and delays in the cause's
    text. The second value is True if the rows are so few that each becomes an event of its own.
    """
    if not len(packed):
        return
    skeletons: dict[str, int] = {}
    by_cause = [skeletons.setdefault(skeleton(each.text), len(skeletons)) for each in packed.causes]
    # The last one is that of the rows without a cause.
    shapes = np.array([*by_cause, UNKNOWN], np.int32)[packed.cause]
    keys = np.stack([packed.kinds(), shapes], axis=1)
    _, first, inverse, _ = unique_rows(keys)
    for group in np.argsort(first).tolist():
        places = np.flatnonzero(inverse == group)
        yield places, len(places) < folded_from


def packed_event(packed: PackedChanges, places: NDArray[np.intp], event_id: int) -> dict[str, Any]:
    """Returns the event of some rows, as the page gets it."""
    numbers = [number for number in np.unique(packed.cause[places]).tolist() if number != UNKNOWN]
    causes = [packed.causes[number] for number in numbers]
    sample = list(packed.changes(places[:_SAMPLE].tolist()))
    topics = np.unique(packed.after.topic[places])
    severity = Severity(int(packed.severities()[places].max()))
    return {
        "id": event_id,
        "time_ms": _time_ms(packed, places, causes),
        "kind": KINDS[int(packed.kinds()[places[0]])],
        "subject": f"{len(places):,} partitions",
        "topic": packed.topics[int(topics[0])].name if len(topics) == 1 else None,
        "partition": None,
        "broker": None,
        "severity": severity.name.lower(),
        "text": _text(packed, places),
        "cause": merged(list(dict.fromkeys(each.text for each in causes))) if causes else None,
        "codes": list(causes[0].known_codes) if causes else [],
        "before": None,
        "after": None,
        "count": len(places),
        "sample": [
            {"topic": each.topic, "partition": each.after.partition} for each in sample if each.after is not None
        ],
    }


def _time_ms(packed: PackedChanges, places: NDArray[np.intp], causes: list[Cause]) -> int:
    """Returns the last time of the changes: that of the cause, if one is known."""
    unexplained: list[int] = packed.times[places][packed.cause[places] == UNKNOWN].tolist()
    return max([*(each.time_ms for each in causes), *unexplained[-1:]])


def _text(packed: PackedChanges, places: NDArray[np.intp]) -> str:
    """Returns the moves of the partitions in words; equal ones are found as columns, and formatted once."""
    was, now = packed.before, packed.after
    columns: list[IntArray] = [
        was.leader[places, None],
        now.leader[places, None],
        now.min_isr[places, None],
        np.sort(was.isr[places], axis=1),
        np.sort(now.isr[places], axis=1),
        now.replicas[places],
    ]
    _, first, _, counts = unique_rows(np.hstack(columns))
    samples = packed.changes(places[first].tolist())
    return moves_text(zip(samples, counts.tolist(), strict=True))


def moves_text(kinds: Iterable[tuple[Change, int]]) -> str:
    """Returns the moves of many partitions, the most frequent first. `kinds` has the number of equal changes."""
    moves: Counter[str] = Counter()
    total = 0
    for change, partitions in kinds:
        total += partitions
        for text in _moves(change):
            moves[text] += partitions
    shown = moves.most_common(_MOVES_SHOWN)
    return ", ".join(text if number == total else f"{text} ({number:,})" for text, number in shown)


def _moves(change: Change) -> Iterator[str]:
    before, after = change.before, change.after
    if before is None or after is None:
        return
    if before.leader != after.leader:
        yield f"leader {_name(before.leader)} -> {_name(after.leader)}"
    for gone in set(before.isr) - set(after.isr):
        yield f"{gone} left the ISR"
    for new in set(after.isr) - set(before.isr):
        yield f"{new} joined the ISR"
    if after.severity is not before.severity or after.severity is not Severity.OK:
        yield f"now {after.state}"


def _name(leader: int) -> str:
    return "none" if leader < 0 else str(leader)
