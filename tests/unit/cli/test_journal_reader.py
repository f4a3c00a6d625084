"""The journal as `explain` reads it: from a time on, then the rest, without the partitions that nobody asked for."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from barnabas.cli.journal_reader import JournalReader
from barnabas.testing.packed_events import packed

Event = dict[str, Any]


class Message:
    def __init__(self, offset: int, value: bytes, error: KafkaError | None = None) -> None:
        self._offset, self._value, self._error = offset, value, error

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return self._value

    def error(self) -> KafkaError | None:
        return self._error


class Log:
    """The journal's partition, with a consumer's methods. `read` has each offset that was consumed."""

    def __init__(self, *records: tuple[int, bytes]) -> None:
        self._records = records
        self._position = 0
        self.read: list[int] = []

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        found = [offset for offset, (time_ms, _) in enumerate(self._records) if time_ms >= asked[0].offset]
        return [TopicPartition(asked[0].topic, 0, found[0] if found else -1)]

    def assign(self, partitions: list[TopicPartition]) -> None:
        offset = partitions[0].offset
        self._position = 0 if offset == OFFSET_BEGINNING else offset

    def consume(self, count: int, timeout: float) -> list[Message]:
        if self._position == len(self._records):
            return [Message(self._position, b"", KafkaError(KafkaError._PARTITION_EOF))]
        offset, self._position = self._position, self._position + 1
        self.read.append(offset)
        return [Message(offset, self._records[offset][1])]


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
    assert (ids(journal), log.read, journal.begin_ms) == (["4:t-0", "5:t-0"], [3, 4], 4_000)
    log.read.clear()
    journal.read_the_rest()
    assert ids(journal) == [f"{number}:t-0" for number in range(1, 6)]
    assert (log.read, journal.begin_ms) == ([0, 1, 2, 3], None), "it stops at what it has"


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
    assert (journal.events, log.read) == ([], [])
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
