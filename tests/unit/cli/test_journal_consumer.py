"""The journal through librdkafka, for log-ins that only it has."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from barnabas.cli import clients, journal_consumer, journal_reader
from barnabas.cli.journal_consumer import ConsumerReading
from barnabas.monitor.journal_reading import JournalReading, Unreadable

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
    """The journal's partition, with a consumer's methods. Each record is its time; `problem` replaces the next one."""

    def __init__(self, *times_ms: int) -> None:
        self._times_ms = times_ms
        self._position = 0
        self.problem: KafkaError | None = None

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        found = [offset for offset, time_ms in enumerate(self._times_ms) if time_ms >= asked[0].offset]
        return [TopicPartition(asked[0].topic, 0, found[0] if found else -1)]

    def assign(self, partitions: list[TopicPartition]) -> None:
        offset = partitions[0].offset
        self._position = 0 if offset == OFFSET_BEGINNING else offset

    def consume(self, count: int, timeout: float) -> list[Message]:
        if self.problem is not None:
            return [Message(self._position, b"", self.problem)]
        if self._position == len(self._times_ms):
            return [Message(self._position, b"", KafkaError(KafkaError._PARTITION_EOF))]
        offset, self._position = self._position, self._position + 1
        value = {"id": str(offset), "kind": "k", "time_ms": self._times_ms[offset], "text": "t"}
        return [Message(offset, json.dumps(value).encode())]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log(1_000, 2_000, 3_000)

    def consumer(bootstrap: str, properties: Iterable[str] | None, settings: dict[str, object]) -> Log:
        return log

    monkeypatch.setattr(clients, "consumer", consumer)
    return log


def read(begin: int | None, end: int | None) -> tuple[list[str], int]:
    found: list[Event] = []
    after = asyncio.run(ConsumerReading("b:9092", None).read(begin, end, found.append))
    return [event["id"] for event in found], after


def test_what_is_between_two_offsets(log: Log) -> None:
    assert read(None, None) == (["0", "1", "2"], 3)
    assert read(1, None) == (["1", "2"], 3)
    assert read(None, 2) == (["0", "1"], 2)


def test_a_place_by_time(log: Log) -> None:
    reading = ConsumerReading("b:9092", None)
    assert asyncio.run(reading.offset_at(1_500)) == 1
    assert asyncio.run(reading.offset_at(9_000)) is None


def test_why_it_cannot_be_read(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.problem = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(Unreadable, match="TOPIC_AUTHORIZATION_FAILED"):
        read(None, None)
    log.problem = None
    monkeypatch.setattr(clients, "TIMEOUT_S", -1.0)
    monkeypatch.setattr(Log, "consume", lambda *_, **__: [])
    with pytest.raises(Unreadable, match="no answer"):
        read(None, None)


def test_which_reading_a_log_in_needs(log: Log) -> None:
    def kind(*properties: str) -> type[object]:
        return type(journal_reader._reading("b:9092", properties))

    assert kind() is JournalReading
    plain = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=a", "sasl.password=b")
    assert kind(*plain) is JournalReading
    assert kind("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER") is journal_consumer.ConsumerReading
