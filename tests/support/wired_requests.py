"""Produce and fetch requests to the topic `orders` of a wired broker."""

from __future__ import annotations

from tests.support.wired import WiredBroker, WiredClient

from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.records.batch import Record, decode_batch, encode_batch, iter_headers


def batch_of(*values: bytes, producer_id: int = -1, base_sequence: int = -1) -> bytes:
    records = [Record(0, 1_735_689_600_000 + place, b"k", value, []) for place, value in enumerate(values)]
    return bytes(
        encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=base_sequence,
        )
    )


def topic_id(wired: WiredBroker, name: str) -> bytes:
    return wired.broker.metadata.image.topics_by_name[name].topic_id


def produce_request(wired: WiredBroker, data: bytes, version: int, *, acks: int = -1, index: int = 0) -> ProduceRequest:
    topic = ProduceRequest.TopicProduceData(
        partition_data=[ProduceRequest.PartitionProduceData(index=index, records=data)]
    )
    if version >= 13:
        topic.topic_id = topic_id(wired, "orders")
    else:
        topic.name = "orders"
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


def produce(wired: WiredBroker, client: WiredClient, data: bytes, version: int = 11, **options: int) -> tuple[int, int]:
    """Produces, and returns (error code, base offset)."""
    response = client.call(produce_request(wired, data, version, **options), version, ProduceResponse)
    row = response.responses[0].partition_responses[0]
    return row.error_code, row.base_offset


def fetch_request(wired: WiredBroker, offset: int, version: int, **options: int) -> FetchRequest:
    topic = FetchRequest.FetchTopic(
        partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    )
    if version >= 13:
        topic.topic_id = topic_id(wired, "orders")
    else:
        topic.topic = "orders"
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=options.get("max_wait_ms", 0),
        min_bytes=options.get("min_bytes", 1),
        max_bytes=1 << 25,
        isolation_level=options.get("isolation_level", 0),
        session_id=options.get("session_id", 0),
        session_epoch=options.get("session_epoch", -1),
        topics=[topic],
    )


def values_of(response: FetchResponse) -> list[bytes | None]:
    data = bytes(response.responses[0].partitions[0].records or b"")
    return [record.value for position, _ in iter_headers(data) for record in decode_batch(data, position)]
