"""The requests of readers of the journal, and the contents of their responses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from barnabas.common.errors import DecodeError, ErrorCode, RecordsRejected
from barnabas.common.types import EVENTS_TOPIC
from barnabas.common.waiting_events import WAITING_TAG, waiting_batch
from barnabas.monitor.broker_connection import BrokerConnection, NoAnswer
from barnabas.monitor.look_requests import CONSUMER, DEBUGGING_REPLICA, LATEST, offsets_of, offsets_request
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsResponse
from barnabas.records.batch import decode_batch, iter_headers

Event = dict[str, Any]

_FETCH_BYTES_MAX: Final = 1024 * 1024
#: The last version that names topics by name. Followers serve consumers from version 11.
_FETCH_BY_NAME: Final = 12
_BEYOND: Final = 1 << 62
_KEY: Final = (EVENTS_TOPIC, 0)


async def fetch(
    connection: BrokerConnection, offset: int, *, wait_ms: int, timeout_s: float | None = None
) -> FetchResponse.PartitionData:
    """Fetches from an offset on. The row can have an error. Raises NoAnswer."""
    response = await connection.call(
        _fetch_request(offset, wait_ms), FetchResponse, version_max=_FETCH_BY_NAME, timeout_s=timeout_s
    )
    return _row(response)


async def fetch_waiting(connection: BrokerConnection, *, timeout_s: float) -> list[Event]:
    """Returns the events that a broker has not written yet; none from a broker of Apache Kafka. Raises NoAnswer."""
    # The offset is beyond every log, so no records come with the events.
    request = _fetch_request(_BEYOND, 0)
    request.unknown_tags = ((WAITING_TAG, b""),)
    response = await connection.call(request, FetchResponse, version_max=_FETCH_BY_NAME, timeout_s=timeout_s)
    try:
        records, _ = records_in(waiting_batch(response.unknown_tags), 0)
    except (RecordsRejected, DecodeError) as error:
        raise NoAnswer(f"its events are malformed: {error}") from error
    return [event for _, value in records if (event := event_of(value)) is not None]


async def end_offset(connection: BrokerConnection, *, is_leader: bool, timeout_s: float | None = None) -> int | None:
    """Returns the HW of a replica; None if it refuses. Raises NoAnswer."""
    replica_id = CONSUMER if is_leader else DEBUGGING_REPLICA
    found = await _offset(connection, LATEST, replica_id, timeout_s)
    if is_leader or found is None:
        return found
    # A follower names the end of its log, of which the last records are not committed.
    row = await fetch(connection, found, wait_ms=0, timeout_s=timeout_s)
    return row.high_watermark if row.error_code == ErrorCode.NONE and row.high_watermark >= 0 else None


async def offset_at(connection: BrokerConnection, timestamp: int, *, timeout_s: float) -> int | None:
    """Returns the offset of the first record that is as young as this; -1 if there is none, None if the broker has no
    replica. Raises NoAnswer.
    """
    return await _offset(connection, timestamp, DEBUGGING_REPLICA, timeout_s)


async def _offset(connection: BrokerConnection, timestamp: int, replica_id: int, timeout_s: float | None) -> int | None:
    request = offsets_request([_KEY], timestamp=timestamp, replica_id=replica_id)
    response = await connection.call(request, ListOffsetsResponse, timeout_s=timeout_s)
    rows = [row for topic in response.topics for row in topic.partitions]
    if not rows or rows[0].error_code:
        return None
    return offsets_of(response).get(_KEY, -1)


def _fetch_request(offset: int, wait_ms: int) -> FetchRequest:
    partition = FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES_MAX, current_leader_epoch=-1
    )
    topic = FetchRequest.FetchTopic(topic=EVENTS_TOPIC, partitions=[partition])
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=_FETCH_BYTES_MAX, session_epoch=-1, topics=[topic])


def _row(response: FetchResponse) -> FetchResponse.PartitionData:
    row = next((row for each in response.responses for row in each.partitions), None)
    if row is None:
        raise NoAnswer("its answer has no partition")
    return row


def records_in(data: bytes, offset: int) -> tuple[Sequence[tuple[int, bytes | None]], int]:
    """Returns (offset, value) of the records from an offset on, and the offset after them. Raises RecordsRejected and
    DecodeError.
    """
    found: list[tuple[int, bytes | None]] = []
    after = offset
    for position, header in iter_headers(data):
        if header.next_offset <= offset:
            continue
        if not header.is_control:
            records = ((record.offset, record.value) for record in decode_batch(data, position))
            found += [record for record in records if record[0] >= offset]
        after = header.next_offset
    return found, after


def event_of(value: bytes | None) -> Event | None:
    """Returns the event of a record; None if the record is not an event, or of a later schema."""
    try:
        event = json.loads(value or b"")
    except ValueError:
        return None
    return event if isinstance(event, dict) and {"id", "kind", "time_ms", "text"} <= event.keys() else None
