"""Actions on records: write one, write one again, and copy records to another topic.

Records are read in the process of a search, and written as they were read. A topic with masked fields is copied only to
a topic where the same fields are masked.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from barnabas.console.actions.inputs import Inputs
from barnabas.console.actions.outcome import Result, outcome, plan, reason
from barnabas.console.actions.requests import TIMEOUT_MS, ask_broker
from barnabas.console.messages.partitioning import partition_of
from barnabas.console.problems import Problem
from barnabas.console.watched import WatchedCluster
from barnabas.monitor.columns import UNKNOWN
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.records.batch import encode_batch
from barnabas.records.record import Header, Record

#: The last version that names topics by name.
_PRODUCE_BY_NAME: Final = 12
_ALL_IN_SYNC: Final = -1
#: The maximum number of records, bytes and headers in one request.
_BATCH_RECORDS: Final = 1_000
_BATCH_BYTES: Final = 900_000
_HEADERS_MAX: Final = 100
_INTERNAL: Final = "__"

Placed = dict[int, list[Record]]


async def produce(cluster: WatchedCluster, inputs: Inputs) -> dict[str, Any]:
    """Writes one record. Its key and value are a text, hexadecimal bytes, or null."""
    topic = _target(cluster, inputs.text("topic"))
    key, value = content_of(inputs.body.get("key"), "key"), content_of(inputs.body.get("value"), "value")
    record = Record(0, cluster.clock_ms(), key, value, _headers(inputs.rows("headers") or []))
    wanted = inputs.body.get("partition")
    partitions = _partitions(cluster, topic)
    if wanted is None:
        place = partitions[_spread(record) % len(partitions)] if key is None else partition_of(key, len(partitions))
    else:
        place = inputs.number("partition", least=0, most=partitions[-1])
    if place not in partitions:
        raise Problem("not-found", f"there is no partition {topic}-{place}")
    size = len(key or b"") + len(value or b"")
    leader = _leader(cluster, topic, place)
    if inputs.is_dry_run:
        marker = ["a record without a value deletes its key in a compacted topic"] if value is None else []
        return plan([f"writes a record of {size:,} bytes to {topic}-{place}, led by broker {leader}"], marker)
    ((_, offset),) = (await _write(cluster, topic, {place: [record]})).items()
    return outcome(f"written to {topic}-{place} at offset {offset}", []) | {"partition": place, "offset": offset}


async def write_copies(
    cluster: WatchedCluster, topic: str, records: Sequence[Mapping[str, Any]], *, keeps_times: bool
) -> dict[str, Any]:
    """Writes records as a worker returned them, to the partition of the same number, or to that of their key."""
    placed = placed_copies(cluster, topic, records, keeps_times=keeps_times)
    total, done = sum(map(len, placed.values())), 0
    try:
        for place, own in placed.items():
            for part in _parts(own):
                await _write(cluster, topic, {place: part})
                done += len(part)
    except Problem as problem:
        raise Problem(problem.code, f"{done} of {total} records were written; then {problem.text}") from problem
    return outcome(f"{total:,} records were written to {topic}", []) | {"records": total}


def placed_copies(
    cluster: WatchedCluster, topic: str, records: Sequence[Mapping[str, Any]], *, keeps_times: bool
) -> Placed:
    partitions = _partitions(cluster, _target(cluster, topic))
    found: Placed = {}
    for row in records:
        key = _bytes(row["key"])
        place = row["partition"]
        if place not in partitions:
            place = (
                partitions[row["partition"] % len(partitions)] if key is None else partition_of(key, len(partitions))
            )
        headers = [
            ((_bytes(name) or b"").decode("utf-8", "surrogateescape"), _bytes(value)) for name, value in row["headers"]
        ]
        time_ms = row["time_ms"] if keeps_times and row["time_ms"] >= 0 else cluster.clock_ms()
        found.setdefault(place, []).append(Record(0, time_ms, key, _bytes(row["value"]), headers))
    return found


def content_of(value: Any, name: str) -> bytes | None:
    """Returns the bytes of {"text": ...}, {"json": ...} or {"hex": ...}; None for null. Raises Problem."""
    if value is None:
        return None
    kinds = ("text", "json", "hex")
    if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in kinds:
        raise Problem("bad-request", f"{name} must be null, or an object with one of {', '.join(kinds)}")
    ((kind, text),) = value.items()
    if not isinstance(text, str):
        raise Problem("bad-request", f"{name}.{kind} is not a string")
    try:
        if kind == "hex":
            return bytes.fromhex(text)
        if kind == "json":
            orjson.loads(text)
        return text.encode()
    except ValueError as error:
        raise Problem("bad-request", f"{name} is not {kind}: {error}") from error


def _headers(rows: Iterable[Mapping[str, Any]]) -> list[Header]:
    found: list[Header] = []
    for row in rows:
        name = row.get("name")
        if not isinstance(name, str) or len(found) >= _HEADERS_MAX:
            raise Problem("bad-request", f"headers must be at most {_HEADERS_MAX} objects with a name and a value")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise Problem("bad-request", "the name of a header is not a string") from error
        found.append((name, content_of(row.get("value"), "the value of a header")))
    return found


def _target(cluster: WatchedCluster, topic: str) -> str:
    """Raises Problem for a topic into which the console does not write."""
    if topic.startswith(_INTERNAL):
        raise Problem("refused", f"{topic} is internal: only brokers write to it")
    _partitions(cluster, topic)
    return topic


def _partitions(cluster: WatchedCluster, topic: str) -> list[int]:
    found = cluster.table.topics.by_name.get(topic)
    if found is None or not found.count:
        raise Problem("not-found", f"there is no topic {topic}")
    return [place for place, row in enumerate(found.rows_by_partition) if row != UNKNOWN]


def _leader(cluster: WatchedCluster, topic: str, partition: int) -> int:
    row = cluster.table.row_of(topic, partition)
    leader = UNKNOWN if row is None else int(cluster.table.states.leader[row])
    if leader == UNKNOWN:
        raise Problem("unreachable", f"{topic}-{partition} has no leader")
    return leader


def _spread(record: Record) -> int:
    """Returns a number that differs between records without keys."""
    return record.timestamp + len(record.value or b"")


async def _write(cluster: WatchedCluster, topic: str, placed: Placed) -> dict[int, int]:
    """Writes one batch to each partition, all of one leader. Returns the first offset of each. Raises Problem."""
    leader = _leader(cluster, topic, next(iter(placed)))
    rows = [
        ProduceRequest.PartitionProduceData(index=place, records=bytes(encode_batch(own)))
        for place, own in placed.items()
    ]
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=rows)
    request = ProduceRequest(acks=_ALL_IN_SYNC, timeout_ms=TIMEOUT_MS, topic_data=[data])
    answer = await ask_broker(cluster, leader, request, ProduceResponse, version_max=_PRODUCE_BY_NAME)
    found = [row for each in answer.responses for row in each.partition_responses]
    failed: list[Result] = [
        (f"{topic}-{row.index}", row.error_code, row.error_message) for row in found if row.error_code
    ]
    if failed or not found:
        subject, code, message = failed[0] if failed else (topic, -1, None)
        raise Problem("refused", f"{subject}: {reason(code, message)}")
    return {row.index: row.base_offset for row in found}


def _parts(records: Sequence[Record]) -> Iterable[list[Record]]:
    part: list[Record] = []
    size = 0
    for record in records:
        own = len(record.key or b"") + len(record.value or b"") + sum(len(value or b"") for _, value in record.headers)
        if part and (len(part) >= _BATCH_RECORDS or size + own > _BATCH_BYTES):
            yield part
            part, size = [], 0
        part.append(record)
        size += own
    if part:
        yield part


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
