"""The causes of packed changes: bulk events of the journal matched with the rows of a version, all at once.

The newest event whose state after is that of a row explains it; if its state before is not that of the row, earlier
events of the partition are part of the cause, up to the one that left the old state. Events after the time at which the
row was seen to change explain it only if no other one does: then the clocks differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barnabas.monitor.bulk_transitions import Transitions
from barnabas.monitor.columns import UNKNOWN, BoolArray, IntArray, unique_rows
from barnabas.monitor.packed_changes import Cause, PackedChanges


@dataclass(slots=True)
class _Walk:
    """The state of a search from the newest event to the oldest, by row."""

    #: The rows that have no cause yet.
    is_waiting: BoolArray
    #: The newest event that reached the state, and all from there back, as numbers of causes.
    last: IntArray
    chain: IntArray
    is_open: BoolArray
    is_done: BoolArray


def explain(packed: PackedChanges, bulks: Callable[[], Iterable[tuple[dict[str, Any], NDArray[np.uint8]]]]) -> None:
    """Finds the causes of rows that have none. `bulks` returns bulk events, the newest first, each with its rows that
    have explained a change; the rows that now do are marked.
    """
    for is_timely in (True, False):
        if (packed.cause == UNKNOWN).any():
            _walk(packed, bulks(), is_timely=is_timely)


def _walk(packed: PackedChanges, bulks: Iterable[tuple[dict[str, Any], NDArray[np.uint8]]], *, is_timely: bool) -> None:
    by_name = packed.numbers_by_name()
    waiting = packed.cause == UNKNOWN
    count = len(packed)
    unknown, nothing = np.full(count, UNKNOWN, np.int32), np.zeros(count, np.bool_)
    walk = _Walk(waiting, unknown, unknown.copy(), nothing, nothing.copy())
    for event, used in bulks:
        _step(packed, walk, event, used, by_name, is_timely=is_timely)
    # Only the event that reached the new state is known if none left the old state.
    found = np.where(walk.is_open | (walk.chain == UNKNOWN), walk.last, walk.chain)
    packed.cause[waiting] = found[waiting]


def _step(
    packed: PackedChanges,
    walk: _Walk,
    event: dict[str, Any],
    used: NDArray[np.uint8],
    by_name: dict[str, int],
    *,
    is_timely: bool,
) -> None:
    """Takes one event. If `is_timely`, rows that changed before it are left for other events."""
    topics = np.repeat(
        np.array([by_name.get(each[0], UNKNOWN) for each in event["topics"]], np.int32),
        np.array([each[3] for each in event["topics"]], np.intp),
    )
    places = packed.find(topics, np.asarray(event["partition"], np.int32))
    rows = np.flatnonzero((places != UNKNOWN) & (used == 0))
    rows = rows[walk.is_waiting[places[rows]]]
    # An event before those that explain a row explains no later change of the partition.
    used[rows[walk.is_done[places[rows]]]] = 1
    rows = rows[~walk.is_done[places[rows]]]
    if not len(rows):
        return
    places = places[rows]
    transitions = Transitions(event, packed.after.width)
    numbers = np.asarray(event["transition"], np.int32)[rows]
    epochs = np.asarray(event["leader_epoch"], np.int32)[rows]
    is_new = walk.last[places] == UNKNOWN
    reaches = is_new & transitions.after.agrees(numbers, epochs, packed.after, places)
    if is_timely:
        reaches &= packed.times[places] >= int(event["time_ms"])
    takes = reaches | walk.is_open[places]
    rows, places, numbers, epochs, reaches = (each[takes] for each in (rows, places, numbers, epochs, reaches))
    if not len(rows):
        return
    causes = _causes_of(packed, event, rows, numbers)
    walk.last[places[reaches]] = causes[reaches]
    walk.chain[places] = _joined(packed, causes, walk.chain[places])
    leaves = transitions.before.agrees(numbers, epochs - transitions.steps[numbers], packed.before, places)
    walk.is_open[places] = ~leaves
    walk.is_done[places] = leaves
    used[rows] = 1


def _causes_of(packed: PackedChanges, event: dict[str, Any], rows: NDArray[np.intp], numbers: IntArray) -> IntArray:
    """Returns the number of the cause of each row."""

    def cause(text: str, code: Any) -> int:
        return packed.number_of(Cause((text,), (str(code) if code else None,), int(event["time_ms"])))

    steps = event["transitions"]
    codes = [each.get("cause", event["cause"]) for each in steps]
    # Only transitions of these rows, because the others are not causes of anything here.
    by_step = np.full(len(steps), UNKNOWN, np.int32)
    for step in np.unique(numbers).tolist():
        by_step[step] = cause(str(steps[step].get("text", event["text"])), codes[step])
    found: IntArray = by_step[numbers]
    own = event.get("own") or {}
    if own:
        for place, row in enumerate(rows.tolist()):
            text = own.get(str(row), {}).get("text")
            if text is not None:
                found[place] = cause(str(text), codes[numbers[place]])
    return found


def _joined(packed: PackedChanges, causes: IntArray, later: IntArray) -> IntArray:
    """Returns the number of a cause for each row: the events of the row's cause in `causes`, followed by those of its
    later cause, if that is known.
    """
    if (later == UNKNOWN).all():
        return causes
    pairs, _, inverse, _ = unique_rows(np.stack([causes, later], axis=1))
    numbers = np.array(
        [
            one if other == UNKNOWN else packed.number_of(packed.causes[other].after(packed.causes[one]))
            for one, other in pairs.tolist()
        ],
        np.int32,
    )
    found: IntArray = numbers[inverse]
    return found
