"""Faults of a history that librdkafka causes by itself, distinguished from those of a broker.

A duplicate (confluentinc/librdkafka#4953): with several requests in flight, an OUT_OF_ORDER_SEQUENCE_NUMBER for a later
one, as it follows a change of the leader, makes librdkafka raise its producer epoch and send all unanswered records
again, also those that were written. Both copies then have the same producer id, and the second one has a higher epoch:
a broker has to take it for a new record.

A lost record (confluentinc/confluent-kafka-go#921): the first request of a producer goes to a leader that is deposed
before it commits, and the second one to the next leader. That leader has nothing of the producer, so it accepts any
sequence number, as Apache Kafka does. librdkafka takes its acknowledgement for one of the first request too, and
reports these records as written, without an offset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from tests.clients import wire

from barnabas.histories.anomalies import Finding, Kind
from barnabas.records.batch import BatchHeader, iter_headers


def is_of_the_client(bootstrap: str, finding: Finding, history: Path | None = None) -> bool:
    """Returns whether the client caused this. Without the history only duplicates can be its fault."""
    if finding.kind is Kind.DUPLICATE:
        return _is_of_a_raised_epoch(bootstrap, finding)
    if finding.kind is Kind.UNSEEN and history is not None:
        return _is_implicit(history, finding) and _has_producer_without_beginning(bootstrap, finding)
    return False


def _is_of_a_raised_epoch(bootstrap: str, finding: Finding) -> bool:
    """Returns whether the copies of a record differ in their producer's epoch alone."""
    places = sorted(int(offset) for offset in re.findall(r"@(\d+)", finding.text))
    headers = [next(_headers(bootstrap, finding, offset)) for offset in places]
    for offset, header in zip(places, headers, strict=True):
        assert header.base_offset <= offset <= header.base_offset + header.last_offset_delta
    ids, epochs = {header.producer_id for header in headers}, [header.producer_epoch for header in headers]
    return len(places) > 1 and len(ids) == 1 and all(a < b for a, b in pairwise(epochs))


def _is_implicit(history: Path, finding: Finding) -> bool:
    """Returns whether all acknowledgements of these records came without an offset."""
    events = (json.loads(line) for line in history.read_text("utf-8").splitlines())
    acks = [
        event
        for event in events
        if event["f"] == "send" and event["type"] == "ok" and event["value"] in finding.values
        if (event["topic"], event["partition"]) == (finding.topic, finding.partition)
    ]
    return bool(acks) and all(event["offset"] is None for event in acks)


def _has_producer_without_beginning(bootstrap: str, finding: Finding) -> bool:
    """Returns whether the log, which nothing was deleted from, has a producer whose first sequence number is not 0."""
    beginnings: dict[int, int] = {}
    for header in _headers(bootstrap, finding, 0):
        beginnings.setdefault(header.producer_id, header.base_sequence)
    return any(sequence > 0 for producer_id, sequence in beginnings.items() if producer_id >= 0)


def _headers(bootstrap: str, finding: Finding, offset: int) -> Iterator[BatchHeader]:
    """Yields the headers of the partition's batches from an offset on."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_topics(TopicCollection([finding.topic]))[finding.topic].result(60)
    leader = described.partitions[finding.partition].leader
    assert leader is not None, f"{finding.topic}-{finding.partition} has no leader"
    while batches := wire.fetch_records(leader.port, finding.topic, finding.partition, offset, leader.host):
        for _, header in iter_headers(batches):
            yield header
            offset = header.base_offset + header.last_offset_delta + 1
