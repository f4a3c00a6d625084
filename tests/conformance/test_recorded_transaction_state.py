"""`__transaction_state` as Apache Kafka 4.1.0 wrote it: Barnabas loads what Kafka's tool reads, and writes the same
bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.txn_world import TransactionWorld

from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.coordinators.transactions.coordinator import Filters
from barnabas.coordinators.transactions.state import TRANSITIONS, TxnImage, TxnState
from barnabas.coordinators.transactions.transaction_records import parse_key, parse_value, transaction_record
from barnabas.coordinators.transactions.transitions import ProducerIdentity
from barnabas.records.batch import decode_batch, encode_batch, iter_headers
from barnabas.records.record import Record

DATA = Path(__file__).parent.parent / "data" / "transaction_state"
NAMES = ["one-node", "three-nodes"]
PARTITION = TopicPartition("__transaction_state", 0)
#: The transaction that was open when `one-node` was recorded.
OPEN = "java-tx-open"


def dumped(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Returns (transactional id, fields) of each record, as Kafka's tool prints them."""
    found = []
    for line in (DATA / f"{name}.dump.txt").read_text().splitlines():
        match = re.search(r" key: (\{.*\}) payload: (\{.*\})$", line)
        if match is not None:
            key, payload = json.loads(match[1]), json.loads(match[2])
            assert payload["version"] == "1"
            found.append((key["data"]["transactionalId"], payload["data"]))
    assert len(found) > 50
    return found


def recorded(name: str) -> Iterator[Record]:
    view = memoryview((DATA / f"{name}.log").read_bytes())
    for place, _ in iter_headers(view):
        yield from decode_batch(view, place)


def fields_of(image: TxnImage) -> dict[str, Any]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(image.partitions):
        by_topic.setdefault(topic, []).append(index)
    partitions = [{"topic": topic, "partitionIds": indexes} for topic, indexes in by_topic.items()]
    fields: dict[str, Any] = {
        "producerId": image.producer_id,
        "producerEpoch": image.producer_epoch,
        "transactionTimeoutMs": image.timeout_ms,
        "transactionStatus": int(image.state),
        "transactionPartitions": None if image.state is TxnState.EMPTY else partitions,
        "transactionLastUpdateTimestampMs": image.updated_ms,
        "transactionStartTimestampMs": image.start_ms,
    }
    if image.client_version:
        fields["clientTransactionVersion"] = image.client_version
    return fields


def in_order(fields: dict[str, Any]) -> dict[str, Any]:
    """Sorts the topics, which Kafka writes in the order of a hash table."""
    partitions = fields["transactionPartitions"]
    if partitions:
        ordered = sorted(partitions, key=lambda one: one["topic"])
        fields = {
            **fields,
            "transactionPartitions": [{**p, "partitionIds": sorted(p["partitionIds"])} for p in ordered],
        }
    return fields


@pytest.mark.parametrize("name", NAMES)
def test_every_record_says_what_kafkas_tool_reads(name: str) -> None:
    ours = [(parse_key(r.key or b""), fields_of(parse_value(r.value or b""))) for r in recorded(name)]
    assert ours == [(key, in_order(fields)) for key, fields in dumped(name)]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_bytes_are_written(name: str) -> None:
    alike = 0
    for record, (_, fields) in zip(recorded(name), dumped(name), strict=True):
        key, image = parse_key(record.key or b""), parse_value(record.value or b"")
        assert key is not None
        written = transaction_record(key, image, 2)
        assert written.key == record.key
        assert parse_value(written.value or b"") == image
        if in_order(fields) == fields:
            assert written.value == record.value
            alike += 1
    assert alike > 50


@pytest.mark.parametrize("name", NAMES)
def test_the_batches_are_kafkas(name: str) -> None:
    data = (DATA / f"{name}.log").read_bytes()
    for place, header in iter_headers(memoryview(data)):
        again = encode_batch(
            decode_batch(memoryview(data), place),
            base_offset=header.base_offset,
            leader_epoch=header.partition_leader_epoch,
            base_sequence=-1,
        )
        assert bytes(again) == data[place : place + header.size_bytes]


@pytest.mark.parametrize("name", NAMES)
def test_each_record_follows_from_the_one_before(name: str) -> None:
    """Kafka's records are transitions of our table."""
    last: dict[str, TxnImage] = {}
    for record in recorded(name):
        key, image = parse_key(record.key or b""), parse_value(record.value or b"")
        assert key is not None
        before = last.get(key)
        if before is not None:
            assert image.state in TRANSITIONS[before.state], (before, image)
            bumps = image.client_version == 2 and image.is_prepared
            if bumps or image.state is TxnState.EMPTY:
                assert image.producer_epoch == before.producer_epoch + 1
            else:
                assert image.producer_epoch == before.producer_epoch
        last[key] = image


@pytest.mark.parametrize("name", NAMES)
def test_what_was_recorded_is_loaded_and_served(name: str) -> None:
    world = TransactionWorld()
    world.coordinator.on_partition_resigned(0)
    world.log.install(PARTITION, (DATA / f"{name}.log").read_bytes())
    world.elect()
    latest = dict(dumped(name))
    loaded = world.coordinator.list(Filters())
    assert {one.transactional_id: fields_of(one.image) for one in loaded} == {
        key: in_order(fields) for key, fields in latest.items()
    }
    for key, fields in latest.items():
        if key != OPEN:
            begun = world.init(key, expected=ProducerIdentity(fields["producerId"], fields["producerEpoch"]))
            assert (begun.code, begun.producer) == (
                ErrorCode.NONE,
                (fields["producerId"], fields["producerEpoch"] + 1),
            )


def test_the_recorded_open_transaction_goes_on_and_ends() -> None:
    world = TransactionWorld()
    world.coordinator.on_partition_resigned(0)
    world.log.install(PARTITION, (DATA / "one-node.log").read_bytes())
    world.elect()
    image = world.image(OPEN)
    assert image.state is TxnState.ONGOING
    ended = world.end(ProducerIdentity(image.producer_id, image.producer_epoch), transactional_id=OPEN)
    assert (ended.code, ended.producer) == (ErrorCode.NONE, (image.producer_id, 1))
    world.run()
    assert [(m.partition, m.epoch, m.commit) for m in world.leaders.markers] == [(TopicPartition("txn", 0), 1, True)]
