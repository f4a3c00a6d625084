"""Fetches that differ from the last one of their connection in epoch and offset only: same responses, less work."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.wired import WiredBroker, WiredClient
from tests.support.wired_requests import produce_request

from barnabas.broker.handlers import fetch
from barnabas.broker.requests import dispatch
from barnabas.common.errors import ErrorCode
from barnabas.protocol.header import decode_request_header
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.simulation.worlds.replicated import batch_of

VERSION = 17


class Reader:
    """A consumer of one partition, in a session."""

    def __init__(self, wired: WiredBroker, version: int = VERSION) -> None:
        partition = wired.broker.replicas.find("orders", 0)
        assert partition is not None
        self.topic_id = partition.topic_id
        self.client = wired.connect()
        self.version = version
        self.session_id = 0
        self.epoch = 0

    def request(self, offset: int, **changes: Any) -> FetchRequest:
        row = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = FetchRequest.FetchTopic(topic_id=self.topic_id, partitions=[row])
        fields: dict[str, Any] = {
            "max_wait_ms": 50,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "session_id": self.session_id,
            "session_epoch": self.epoch,
            "topics": [topic],
        }
        return FetchRequest(**{**fields, **changes})

    def read(self, offset: int, **changes: Any) -> FetchResponse:
        response = self.client.call(self.request(offset, **changes), self.version, FetchResponse)
        if not self.epoch:
            self.session_id = response.session_id
        self.epoch += 1
        return response


@pytest.fixture
def wired() -> WiredBroker:
    made = WiredBroker()
    made.create_topic("orders")
    return made


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the list of API keys whose headers were decoded."""
    keys: list[int] = []

    def counted(frame: memoryview) -> tuple[int, int, int, str | None, int]:
        found = decode_request_header(frame)
        keys.append(found[0])
        return found

    monkeypatch.setattr(dispatch, "decode_request_header", counted)
    return keys


def write(wired: WiredBroker, count: int = 1, client: WiredClient | None = None) -> None:
    request = produce_request(wired, batch_of(*[b"x" * 100] * count), 9)
    (client or wired.connect()).call(request, 9, ProduceResponse)


def rows_of(response: FetchResponse) -> list[tuple[int, int, bytes]]:
    return [
        (row.error_code, row.high_watermark, bytes(row.records or b""))
        for topic in response.responses
        for row in topic.partitions
    ]


@pytest.mark.parametrize("version", [13, 14, 15, 16, 17, 18])
def test_a_repeated_fetch_is_not_decoded(wired: WiredBroker, decoded: list[int], version: int) -> None:
    reader = Reader(wired, version)
    reader.read(0)
    reader.read(0)
    decoded.clear()
    write(wired)
    (row,) = rows_of(reader.read(0))
    assert row[:2] == (ErrorCode.NONE, 1)
    assert row[2]
    assert rows_of(reader.read(1)) == [], "nothing new"
    write(wired)
    assert rows_of(reader.read(1))[0][1] == 2
    assert 1 not in decoded


@pytest.mark.parametrize(
    "change",
    [
        {"max_wait_ms": 51},
        {"min_bytes": 2},
        {"isolation_level": 1},
        {"rack_id": "a"},
        {"topics": []},
        {"forgotten_topics_data": [FetchRequest.ForgottenTopic(topic_id=bytes(16), partitions=[7])]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_other_difference_is_decoded(wired: WiredBroker, decoded: list[int], change: dict[str, Any]) -> None:
    reader = Reader(wired)
    for _ in range(3):
        reader.read(0)
    decoded.clear()
    reader.read(0, **change)
    assert decoded == [1]


def test_a_fetch_behind_one_that_waits_is_decoded(wired: WiredBroker, decoded: list[int]) -> None:
    reader = Reader(wired)
    for _ in range(3):
        reader.read(0)
    decoded.clear()
    first = reader.client.send(reader.request(0), VERSION)
    reader.epoch += 1
    second = reader.client.send(reader.request(0), VERSION)
    assert decoded == [1]
    wired.host.time.run_for(200)
    answers = reader.client.received()
    assert [correlation_id for correlation_id, _ in answers] == [first, second]
    codes = [response.error_code for _, response in answers if isinstance(response, FetchResponse)]
    assert codes == [ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.NONE], "the later fetch took over the session"


def test_forgotten_partitions_are_forgotten_by_each_request(wired: WiredBroker) -> None:
    wired.create_topic("other")
    other = wired.broker.replicas.find("other", 0)
    assert other is not None
    reader = Reader(wired)
    reader.read(0)
    row = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)
    both = FetchRequest.FetchTopic(topic_id=other.topic_id, partitions=[row])
    forgotten = [FetchRequest.ForgottenTopic(topic_id=other.topic_id, partitions=[0])]
    for _ in range(2):
        reader.read(0, topics=[*reader.request(0).topics, both])
        reader.read(0, forgotten_topics_data=forgotten)
        (session,) = wired.broker.services.fetch_sessions._sessions.values()
        assert [item.topic for item in session.items.values()] == ["orders"]


def test_a_session_that_ended_is_refused(wired: WiredBroker) -> None:
    reader = Reader(wired)
    for _ in range(3):
        reader.read(0)
    wired.broker.services.fetch_sessions.remove(reader.session_id)
    assert reader.read(0).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_epoch_that_ends_the_session_is_decoded(wired: WiredBroker, decoded: list[int]) -> None:
    reader = Reader(wired)
    for _ in range(3):
        reader.read(0)
    decoded.clear()
    reader.epoch = -1
    reader.read(0)
    assert decoded == [1]
    assert not len(wired.broker.services.fetch_sessions)


Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["read", "read", "read", "write", "epoch", "delete"]), st.integers(-1, 4)), max_size=25
)


def _course(steps: list[Step], prepare: Callable[[pytest.MonkeyPatch], None]) -> list[object]:
    """Returns the responses to a course of requests."""
    with pytest.MonkeyPatch.context() as patch:
        prepare(patch)
        wired = WiredBroker()
        wired.create_topic("orders")
        reader = Reader(wired)
        producer = wired.connect()
        found: list[object] = []
        for kind, number in steps:
            if kind == "read":
                response = reader.read(number)
                found.append((response.error_code, rows_of(response)))
            elif kind == "write":
                write(wired, max(1, number), producer)
            elif kind == "epoch":
                reader.epoch = max(0, reader.epoch + number)
                reader.session_id = reader.session_id if reader.epoch else 0
            elif number == 4:
                wired.delete_topic("orders")
                wired.host.time.run_for(1_000)
                wired.create_topic("orders")
        return found


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_the_responses_are_those_of_the_general_path(steps: list[Step]) -> None:
    def never(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(fetch, "is_repeatable", lambda message, version: False)

    assert _course(steps, lambda patch: None) == _course(steps, never)


def test_frames_of_another_length_do_not_match(wired: WiredBroker) -> None:
    reader = Reader(wired)
    for _ in range(2):
        reader.read(0)
    repeated = reader.client.core.repeated
    assert repeated is not None
    assert not repeated.matches(memoryview(struct.pack(">hhi", 1, VERSION, 0)))
    assert not repeated.matches(memoryview(b""))
