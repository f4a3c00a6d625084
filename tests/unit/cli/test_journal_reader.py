"""The journal as `explain` reads it: from a time on, then the rest, without the partitions that nobody asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from barnabas.cli.journal_reader import JournalReader
from barnabas.embedded.failures import Failure
from barnabas.monitor.journal_reading import Unreadable
from barnabas.monitor.journal_requests import event_of
from barnabas.testing.packed_events import packed

Event = dict[str, Any]
T = TypeVar("T")


class Log:
    """The partition of the journal, by offsets. `read_offsets` has each offset that was passed on. `problem` is raised,
    if there is one. `waiting` are the events at the brokers.
    """

    def __init__(self, *records: tuple[int, bytes]) -> None:
        self._records = records
        self.read_offsets: list[int] = []
        self.waiting: list[Event] = []
        self.problem = ""
        self.reading = self

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(work)

    async def offset_at(self, time_ms: int) -> int | None:
        if self.problem:
            raise Unreadable(self.problem)
        return next((offset for offset, (at_ms, _) in enumerate(self._records) if at_ms >= time_ms), None)

    async def read(self, begin: int | None, end: int | None, take: Callable[[Event], None]) -> int:
        if self.problem:
            raise Unreadable(self.problem)
        until = len(self._records) if end is None else end
        for offset in range(begin or 0, until):
            self.read_offsets.append(offset)
            found = event_of(self._records[offset][1])
            if found is not None:
                take(found)
        return until


def event(number: int, partition: int = 0, **fields: Any) -> Event:
    def state(epoch: int) -> Event:
        return {"leader": 1, "leader_epoch": epoch, "isr": [1], "replicas": [1, 2], "partition_epoch": epoch}

    return {
        "id": f"{number}:t-{partition}",
        "kind": "isr-shrink",
        "changes": ["isr-shrink"],
        "time_ms": number * 1_000,
        "metadata_offset": number,
        "topic": "t",
        "topic_id": "A",
        "partition": partition,
        "min_isr": 1,
        "before": state(number),
        "after": state(number + 1),
        "cause": "tested",
        "actor": "controller",
        "text": "because",
        **fields,
    }


def record(value: Event) -> tuple[int, bytes]:
    return value["time_ms"], json.dumps(value).encode()


def reader(log: Log, *wanted: int) -> JournalReader:
    chosen = frozenset(wanted)
    return JournalReader(log, lambda topic: chosen if topic == "t" else frozenset())  # type: ignore[arg-type]


def ids(journal: JournalReader) -> list[str]:
    return [each["id"] for each in journal.events]


def test_only_what_is_younger_is_read_and_then_only_what_is_older() -> None:
    log = Log(*(record(event(number)) for number in range(1, 6)))
    journal = reader(log, 0)
    journal.read_since(4_000)
    assert (ids(journal), log.read_offsets, journal.begin_ms) == (["4:t-0", "5:t-0"], [3, 4], 4_000)
    log.read_offsets.clear()
    journal.read_the_rest()
    assert ids(journal) == [f"{number}:t-0" for number in range(1, 6)]
    assert (log.read_offsets, journal.begin_ms) == ([0, 1, 2], None), "it stops at what it has"


def test_an_event_that_was_written_late_is_behind_its_time_and_read() -> None:
    late = event(2, time_ms=4_500, metadata_offset=2)
    log = Log(record(event(1)), record(event(4)), record(late), (9_000, b"not an event"))
    journal = reader(log, 0)
    journal.read_since(4_000)
    assert ids(journal) == ["2:t-0", "4:t-0"], "in the order of the changes"


def test_a_journal_without_an_event_since_then() -> None:
    log = Log(record(event(1)))
    journal = reader(log, 0)
    journal.read_since(2_000)
    assert (journal.events, log.read_offsets) == ([], [])
    journal.read_the_rest()
    assert ids(journal) == ["1:t-0"]


def test_of_a_bulk_event_only_the_wanted_partitions_are_unpacked() -> None:
    single = [event(3, partition) for partition in range(150)]
    others = [event(3, partition, topic="u") | {"id": f"3:u-{partition}"} for partition in range(150)]
    log = Log(*map(record, packed([*single, *others])))
    journal = reader(log, 7, 140)
    journal.read_since(0)
    assert journal.events == [single[7], single[140]]


def test_a_second_copy_counts_if_it_knows_the_cause() -> None:
    lost = event(1, inferred=True, text="lost")
    journal = reader(Log(record(lost), record(event(1)), record(lost)), 0)
    journal.read_since(0)
    assert [each["text"] for each in journal.events] == ["because"]


def test_what_waits_at_the_brokers_is_told_once_and_marked() -> None:
    log = Log(record(event(4)), record(event(5)))
    log.waiting = [event(5), event(6), event(1)]
    journal = reader(log, 0)
    journal.read_since(4_000)
    assert ids(journal) == ["4:t-0", "5:t-0", "6:t-0"], "what is older was not asked for"
    assert [each.get("waiting", False) for each in journal.events] == [False, False, True]
    journal.check()


def test_without_a_journal_only_what_waits_is_told() -> None:
    log = Log(record(event(4)))
    log.waiting = [event(6), *packed([event(7, 0), event(7, 1)])]
    journal = reader(log, 1)
    journal.wait_only(5_000)
    assert ids(journal) == ["6:t-0", "7:t-1"]


def test_a_journal_that_can_be_read_nowhere_is_said_so_and_what_waits_is_told() -> None:
    log = Log(record(event(4)))
    log.waiting, log.problem = [event(6)], "broker 1: no response in time"
    journal = reader(log, 0)
    journal.read_since(4_000)
    assert ids(journal) == ["6:t-0"]
    journal.read_the_rest()
    assert (ids(journal), journal.begin_ms) == (["6:t-0"], 4_000)
    with pytest.raises(Failure, match="__cluster_events cannot be read: broker 1: no response in time"):
        journal.check()
