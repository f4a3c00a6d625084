"""The events that a broker reports about itself and its own replicas, which no controller can know.

The controller decides an unclean election, but only the new leader knows where its log ends, and only the former
leader, when it truncates its log, knows exactly which records are lost. A broker's self-reports are here, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Any, Final

from barnabas.common.host import Clock
from barnabas.common.types import uuid_to_text
from barnabas.journal.event_record import VERSION, record_of
from barnabas.journal.events import Event
from barnabas.journal.self_reports import SelfReport
from barnabas.records.batch import Record

_KEPT_MAX: Final = 5_000
#: Self-reports that wait for a journal; beyond that, the oldest are dropped.
_SELF_REPORTS_MAX: Final = 64


class ReplicaEvents:
    """The bounded queue of events to be written; if some were dropped, the next one contains the number of those."""

    def __init__(self, node_id: int, clock: Clock) -> None:
        self._node_id = node_id
        self._clock = clock
        self._events: deque[Event] = deque()
        self._drawn = 0
        self._reports: deque[Event] = deque()
        self._drawn_reports = 0
        self._count = 0
        self._dropped = 0

    def __bool__(self) -> bool:
        return bool(self._events or self._reports)

    @property
    def need_topic(self) -> bool:
        """Whether any of the events is a reason to create the journal; self-reports alone are not."""
        return bool(self._events)

    def add(self, topic: str, topic_id: bytes, partition: int, what: str, facts: Mapping[str, int]) -> None:
        kind, text = _describe(self._node_id, what, facts)
        fields: dict[str, Any] = {
            "topic": topic,
            "topic_id": uuid_to_text(topic_id),
            "partition": partition,
            **facts,
        }
        if what == "truncation":
            fields["committed_lost"] = _committed_lost(facts)
        self._put(kind, f"{topic}-{partition}", fields, what, text)

    def report(self, report: SelfReport) -> None:
        """Queues a self-report. It is written when there is a journal, with the time of that as `reported_ms`."""
        event = self._event(
            str(report.kind),
            str(report.kind),
            report.fields(self._node_id),
            str(report.kind),
            report.text(self._node_id),
        )
        if report.end_ms is not None:
            event["time_ms"] = report.end_ms
        if len(self._reports) == _SELF_REPORTS_MAX and not self._drawn_reports:
            self._reports.popleft()
        self._reports.append(event)

    def add_gap(self, first_offset: int, last_offset: int) -> None:
        """Queues an event about metadata changes that no controller has reported."""
        text = (
            f"changes from metadata offset {first_offset} to {last_offset} may be missing here: no controller that "
            "had them could report them"
        )
        self._put("journal-gap", "gap", {"first_offset": first_offset, "last_offset": last_offset}, "journal-gap", text)

    def _put(self, kind: str, subject: str, fields: Mapping[str, object], cause: str, text: str) -> None:
        self._queue(self._event(kind, subject, fields, cause, text))

    def _event(self, kind: str, subject: str, fields: Mapping[str, object], cause: str, text: str) -> Event:
        wall_ms = self._clock.wall_ms()
        self._count += 1
        # This id is unique across the restarts of a node, as far as its clock is right.
        name = f"n{self._node_id}.{wall_ms}.{self._count}:{subject}"
        return {
            "v": VERSION,
            "id": name,
            "time_ms": wall_ms,
            "kind": kind,
            "node": self._node_id,
            **fields,
            "cause": cause,
            "actor": f"broker {self._node_id}",
            "text": text,
        }

    def extend(self, events: Iterable[Event]) -> None:
        """Queues events that need no further fields."""
        for event in events:
            self._queue(event)

    def _queue(self, event: Event) -> None:
        if len(self._events) >= _KEPT_MAX:
            self._dropped += 1
            return
        if self._dropped:
            event["dropped"], self._dropped = self._dropped, 0
        self._events.append(event)

    def draw(self, count_max: int) -> list[Record]:
        reports = list(islice(self._reports, self._drawn_reports, self._drawn_reports + count_max))
        self._drawn_reports += len(reports)
        reported_ms = self._clock.wall_ms()
        found = list(islice(self._events, self._drawn, self._drawn + count_max - len(reports)))
        self._drawn += len(found)
        return [*(record_of(event | {"reported_ms": reported_ms}) for event in reports), *map(record_of, found)]

    def waiting(self, count_max: int) -> list[Record]:
        """Returns the events that are not known to be written. They stay in the queue."""
        events = islice(chain(self._reports, self._events), count_max)
        return [record_of(event) for event in events]

    def written(self) -> None:
        for queue, drawn in ((self._events, self._drawn), (self._reports, self._drawn_reports)):
            for _ in range(drawn):
                queue.popleft()
        self.rewind()

    def rewind(self) -> None:
        self._drawn = self._drawn_reports = 0


def _committed_lost(facts: Mapping[str, int]) -> int:
    return max(0, facts["high_watermark"] - facts["truncated_to"])


def _describe(node_id: int, what: str, facts: Mapping[str, int]) -> tuple[str, str]:
    end = facts["log_end_offset"]
    if what == "truncation":
        start, lost = facts["truncated_to"], _committed_lost(facts)
        text = f"replica {node_id} cut its log back from {end} to {start}, where the leader's log diverges from it"
        if lost:
            text += f": offsets {start} to {start + lost - 1} had been committed and are lost"
        return "replica-truncated", text
    if what == "unclean-leader":
        return (
            "unclean-leader",
            f"replica {node_id} leads without having been in sync: what others had from offset {end} on is lost",
        )
    start = facts["starts_at"]
    return (
        "replica-restarted",
        f"replica {node_id}, whose log ended at {end}, starts again at {start}, the leader's log start offset",
    )
