"""Changes as CSV and as JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Final

from barnabas.monitor.changes import Change
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.texts import at

_OF_STATES: Final = ("leader", "leader_epoch", "isr", "replicas", "state")
COLUMNS: Final = (
    "time",
    "kind",
    "subject",
    "topic",
    "partition",
    "broker",
    "severity",
    *(f"{name}_{side}" for name in _OF_STATES for side in ("before", "after")),
    "text",
    "cause",
    "causes",
)


def json_lines(changes: Iterable[Change]) -> Iterator[str]:
    for change in changes:
        yield json.dumps(change.to_json(), ensure_ascii=False) + "\n"


def csv_lines(changes: Iterable[Change]) -> Iterator[str]:
    """Yields a head, and one line for each change. Lists of brokers are separated by spaces."""
    yield _line(COLUMNS)
    for change in changes:
        state = change.after or change.before
        sides = zip(_values(change.before), _values(change.after), strict=True)
        yield _line(
            [
                at(change.time_ms),
                change.kind,
                change.subject,
                change.topic,
                None if state is None else state.partition,
                change.broker,
                change.severity.name.lower(),
                *(value for pair in sides for value in pair),
                change.text,
                change.cause,
                " ".join(str(event["cause"]) for event in change.events if event.get("cause")),
            ]
        )


def _values(state: PartitionState | None) -> list[object]:
    if state is None:
        return [None] * len(_OF_STATES)
    brokers = (" ".join(map(str, each)) for each in (state.isr, state.replicas))
    return [state.leader, state.leader_epoch, *brokers, state.state]


def _line(values: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()
