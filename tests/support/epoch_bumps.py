"""Duplicates that librdkafka writes by itself, told apart from those of a broker (confluentinc/librdkafka#4953).

With several requests in flight, an OUT_OF_ORDER_SEQUENCE_NUMBER for a later one, as it follows a change of the leader,
makes librdkafka raise its producer epoch and send all unanswered records again, also those that were written. Both
copies then have the same producer id, and the second one has a higher epoch: a broker has to take it for a new record.
"""

from __future__ import annotations

import re
from itertools import pairwise

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from tests.clients import wire

from barnabas.histories.anomalies import Finding, Kind
from barnabas.records.batch import iter_headers


def is_of_the_client(bootstrap: str, finding: Finding) -> bool:
    """Returns whether the copies of a record differ in their producer's epoch alone."""
    if finding.kind is not Kind.DUPLICATE:
        return False
    places = [int(offset) for offset in re.findall(r"@(\d+)", finding.text)]
    producers = [_producer(bootstrap, finding.topic, finding.partition, offset) for offset in sorted(places)]
    ids, epochs = {producer for producer, _ in producers}, [epoch for _, epoch in producers]
    return len(places) > 1 and len(ids) == 1 and all(a < b for a, b in pairwise(epochs))


def _producer(bootstrap: str, topic: str, partition: int, offset: int) -> tuple[int, int]:
    """Returns the producer id and the epoch of the batch that holds an offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(60)
    leader = described.partitions[partition].leader
    assert leader is not None, f"{topic}-{partition} has no leader"
    batches = wire.fetch_records(leader.port, topic, partition, offset)
    _, header = next(iter_headers(batches))
    assert header.base_offset <= offset <= header.base_offset + header.last_offset_delta
    return header.producer_id, header.producer_epoch
