"""The data that a broker serves, read through its sockets as one value: two brokers on the same files can be compared.

librdkafka reads the records at both isolation levels, and their batches are read once more byte for byte; everything
else is requested piece by piece. The current leader epoch, which must change with every start, is left out.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import confluent_kafka
from tests.clients.servers import Server
from tests.clients.wire import Wire

from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.index import response_class
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest
from barnabas.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

WAIT_S = 120.0
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ISOLATION = {READ_UNCOMMITTED: "read_uncommitted", READ_COMMITTED: "read_committed"}
#: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: normal soon after a start.
LOADING = (14, 15, 16)
TIMES_MAX = 24
READER = "reader"
BATCH_HEADER_SIZE_BYTES = 61

T = TypeVar("T")
Partition = tuple[str, int]
Seen = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def call(port: int, request: Message, version: int) -> Any:
    """Returns the answer to one request on a new connection."""
    key = type(request).API_KEY
    assert key is not None
    flexible = request_header_version(key, version) >= 2
    with Wire(port, timeout_s=WAIT_S) as wire:
        frame = wire.request(key, version, (b"\x00" if flexible else b"") + bytes(codec.encode(request, version)))
    answer, end = codec.decode(response_class(key), version, frame, response_header_version(key, version))
    assert end == len(frame), f"{type(answer).__name__}: {len(frame) - end} bytes after the answer"
    return answer


def until(what: str, attempt: Callable[[], T | None], timeout_s: float = WAIT_S) -> T:
    """Returns the first result that is not None."""
    deadline = time.monotonic() + timeout_s
    while (found := attempt()) is None:
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.05)
    return found


def topics(port: int) -> dict[str, tuple[str, int]]:
    """Returns the topic id and the number of partitions of every topic, including internal ones."""
    answer = call(port, MetadataRequest(topics=None), 12)
    return {each.name: (each.topic_id.hex(), len(each.partitions)) for each in sorted(answer.topics, key=_name)}


def partitions(port: int) -> list[Partition]:
    return [(topic, number) for topic, (_, count) in topics(port).items() for number in range(count)]


def everything(server: Server) -> dict[str, Any]:
    """Returns all that is served, by kind; each kind can be compared separately."""
    port = server.port
    wait_for_coordinator(port, READER)
    every = partitions(port)
    _wait_until_led(port, every)
    records = {ISOLATION[level]: read(server, every, level) for level in ISOLATION}
    batches, epochs = _batches(port, every)
    return {
        "topics": topics(port),
        **records,
        "batches": batches,
        "aborted": _aborted(port, every),
        "ends": _ends(port, every),
        "times": _times(port, records["read_uncommitted"]),
        "epochs": _epoch_ends(port, epochs),
        "producers": _producers(port, every),
        "configs": _configs(port),
        "groups": groups(port),
    }


def read(server: Server, wanted: list[Partition], isolation: int = READ_COMMITTED) -> dict[Partition, list[Seen]]:
    """Returns every record from the beginning of each partition to its end, as an unmodified client reads them."""
    settings = {"group.id": READER, "enable.auto.commit": False, "enable.partition.eof": True, "check.crcs": True}
    waits = {"fetch.wait.max.ms": 20, "auto.offset.reset": "error", "isolation.level": ISOLATION[isolation]}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, "log_level": 3, **settings, **waits})
    found: dict[Partition, list[Seen]] = {each: [] for each in wanted}
    ended: set[Partition] = set()
    begin = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(topic, number, begin) for topic, number in wanted])
    deadline = time.monotonic() + WAIT_S
    try:
        while len(ended) < len(wanted):
            assert time.monotonic() < deadline, f"not read to the end: {sorted(set(wanted) - ended)}"
            for message in consumer.consume(1000, timeout=0.1):
                at = (str(message.topic()), int(message.partition() or 0))
                error = message.error()
                if error is None:
                    found[at].append(_seen(message))
                else:
                    assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, f"{at}: {error}"
                    ended.add(at)
    finally:
        consumer.close()
    return found


def groups(port: int) -> dict[str, Any]:
    """Returns every group with its committed offsets, and the state of those that use a client's own protocol."""
    listed = until("list of groups", lambda: _listed(port))
    found: dict[str, Any] = {}
    for group in listed:
        own = group.group_type == "classic" and group.protocol_type
        state = (group.group_state, group.protocol_type) if own else ()
        found[group.group_id] = {"state": state, "committed": committed(port, group.group_id)}
    return found


def committed(port: int, group: str) -> dict[Partition, tuple[int, int, str | None]]:
    """Returns the offset, leader epoch and metadata of everything that a group has committed."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)])

    def fetched() -> Any:
        (answer,) = call(port, request, 8).groups
        return None if answer.error_code in LOADING else answer

    answer = until(f"offsets of {group}", fetched)
    assert answer.error_code == 0, f"offsets of {group}: error {answer.error_code}"
    return {
        (topic.name, each.partition_index): (each.committed_offset, each.committed_leader_epoch, each.metadata)
        for topic in answer.topics
        for each in topic.partitions
    }


def wait_for_coordinator(port: int, group: str) -> None:
    """Waits for the group's coordinator. The first FindCoordinator creates the offsets topic; its partitions are loaded
    a moment later.
    """
    call(port, FindCoordinatorRequest(key=group, key_type=0), 1)
    request = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)])
    until(f"coordinator of {group}", lambda: call(port, request, 8).groups[0].error_code not in LOADING or None)


def _listed(port: int) -> list[Any] | None:
    answer = call(port, ListGroupsRequest(), 5)
    if answer.error_code in LOADING:
        return None
    assert answer.error_code == 0
    return sorted(answer.groups, key=lambda group: group.group_id)


def _seen(message: Any) -> Seen:
    kind, timestamp = message.timestamp()
    headers = tuple(message.headers() or ())
    return (message.offset(), kind, timestamp, message.key(), message.value(), headers)


def _name(topic: Any) -> str:
    return str(topic.name)


def _by_topic(every: list[Partition]) -> Iterator[tuple[str, list[int]]]:
    for topic in sorted({topic for topic, _ in every}):
        yield topic, [number for name, number in every if name == topic]


def _wait_until_led(port: int, every: list[Partition]) -> None:
    def led() -> bool | None:
        answers = _list_offsets(port, dict.fromkeys(every, LATEST)).values()
        return True if all(each.error_code == 0 for each in answers) else None

    until("leaders of all partitions", led)


def _list_offsets(port: int, wanted: dict[Partition, int], isolation: int = 0) -> dict[Partition, Any]:
    entry = ListOffsetsRequest.ListOffsetsPartition
    requested = [
        ListOffsetsRequest.ListOffsetsTopic(
            name=topic,
            partitions=[entry(partition_index=number, timestamp=wanted[topic, number]) for number in numbers],
        )
        for topic, numbers in _by_topic(list(wanted))
    ]
    answer = call(port, ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=requested), 7)
    return {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}


def _ends(port: int, every: list[Partition]) -> dict[Partition, dict[str, Any]]:
    latest = _list_offsets(port, dict.fromkeys(every, LATEST))
    stable = _list_offsets(port, dict.fromkeys(every, LATEST), READ_COMMITTED)
    earliest = _list_offsets(port, dict.fromkeys(every, EARLIEST))
    newest = _list_offsets(port, dict.fromkeys(every, MAX_TIMESTAMP))
    return {
        each: {
            "earliest": earliest[each].offset,
            "latest": latest[each].offset,
            "stable": stable[each].offset,
            "max timestamp": (newest[each].error_code, newest[each].timestamp, newest[each].offset),
        }
        for each in every
    }


def _times(port: int, records: dict[Partition, list[Seen]]) -> dict[Partition, list[tuple[int, ...]]]:
    """Returns the answers to look-ups by time: at record timestamps, just before, just after, and beyond both ends."""
    wanted: dict[Partition, list[int]] = {}
    for at, seen in records.items():
        distinct = sorted({record[2] for record in seen})
        picked = distinct[:: max(1, len(distinct) // TIMES_MAX)] + distinct[-1:]
        if picked:
            wanted[at] = sorted({0, *picked, *(each - 1 for each in picked), *(each + 1 for each in picked)})
    found: dict[Partition, list[tuple[int, ...]]] = {at: [] for at in wanted}
    for step in range(max(map(len, wanted.values()), default=0)):
        requested = {at: times[step] for at, times in wanted.items() if step < len(times)}
        for at, each in _list_offsets(port, requested).items():
            found[at].append((requested[at], each.error_code, each.timestamp, each.offset, each.leader_epoch))
    return found


def _fetched(port: int, every: list[Partition], isolation: int) -> Iterator[tuple[Partition, Any]]:
    """Yields answers of Fetch, partition by partition, from the log start offset to the end of what can be read."""
    next_offsets = {at: each.offset for at, each in _list_offsets(port, dict.fromkeys(every, EARLIEST)).items()}
    while next_offsets:
        entry = FetchRequest.FetchPartition
        requested = [
            FetchRequest.FetchTopic(
                topic=topic,
                partitions=[
                    entry(partition=number, fetch_offset=next_offsets[topic, number], partition_max_bytes=1 << 24)
                    for number in numbers
                ],
            )
            for topic, numbers in _by_topic(list(next_offsets))
        ]
        answer = call(port, FetchRequest(max_bytes=1 << 26, isolation_level=isolation, topics=requested), 12)
        assert answer.error_code == 0
        progress: dict[Partition, int] = {}
        for topic in answer.responses:
            for each in topic.partitions:
                at = (topic.topic, each.partition_index)
                assert each.error_code == 0, f"fetch of {at}: error {each.error_code}"
                yield at, each
                for *_, last_offset in _split(each.records):
                    progress[at] = last_offset + 1
        next_offsets = progress


def _split(records: Any) -> Iterator[tuple[int, bytes, int]]:
    """Yields the base offset, bytes and last offset of every whole batch."""
    data = bytes(records or b"")
    position = 0
    while position + BATCH_HEADER_SIZE_BYTES <= len(data):
        base_offset, length = struct.unpack_from(">qi", data, position)
        end = position + 12 + length
        if end > len(data):
            return
        (last_delta,) = struct.unpack_from(">i", data, position + 23)
        yield base_offset, data[position:end], base_offset + last_delta
        position = end


def _batches(port: int, every: list[Partition]) -> tuple[dict[Partition, list[str]], dict[Partition, set[int]]]:
    """Returns every batch by offset, size and digest, and the leader epochs that wrote them."""
    found: dict[Partition, list[str]] = {at: [] for at in every}
    epochs: dict[Partition, set[int]] = {at: set() for at in every}
    for at, answer in _fetched(port, every, READ_UNCOMMITTED):
        for base_offset, batch, _ in _split(answer.records):
            found[at].append(f"{base_offset} {len(batch)} {hashlib.sha256(batch).hexdigest()[:16]}")
            epochs[at].add(struct.unpack_from(">i", batch, 12)[0])
    return found, epochs


def _aborted(port: int, every: list[Partition]) -> dict[Partition, list[tuple[int, int]]]:
    found: dict[Partition, set[tuple[int, int]]] = {at: set() for at in every}
    for at, answer in _fetched(port, every, READ_COMMITTED):
        for each in answer.aborted_transactions or ():
            found[at].add((each.producer_id, each.first_offset))
    return {at: sorted(each) for at, each in found.items()}


def _epoch_ends(port: int, epochs: dict[Partition, set[int]]) -> dict[Partition, list[tuple[int, ...]]]:
    """Returns the end of every epoch that wrote records, and the answers for epochs before and between."""
    found: dict[Partition, list[tuple[int, ...]]] = {at: [] for at in epochs}
    entry = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    for epoch in range(max((max(each, default=-1) for each in epochs.values()), default=-1) + 1):
        requested = [
            OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                topic=topic, partitions=[entry(partition=number, leader_epoch=epoch) for number in numbers]
            )
            for topic, numbers in _by_topic([at for at, each in epochs.items() if epoch <= max(each, default=-1)])
        ]
        answer = call(port, OffsetForLeaderEpochRequest(replica_id=-1, topics=requested), 4)
        for topic in answer.topics:
            for each in topic.partitions:
                line = (epoch, each.error_code, each.leader_epoch, each.end_offset)
                found[topic.topic, each.partition].append(line)
    return found


def _producers(port: int, every: list[Partition]) -> dict[Partition, list[tuple[int, ...]]]:
    requested = [
        DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=numbers)
        for topic, numbers in _by_topic(every)
    ]
    answer = call(port, DescribeProducersRequest(topics=requested), 0)
    return {
        (topic.name, each.partition_index): sorted(
            (
                producer.producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.current_txn_start_offset,
            )
            for producer in each.active_producers
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def _configs(port: int) -> dict[str, dict[str, Any]]:
    """Returns every configuration of every topic: its value and its source."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    requested = [resource(resource_type=2, resource_name=topic, configuration_keys=None) for topic in topics(port)]
    answer = call(port, DescribeConfigsRequest(resources=requested, include_synonyms=True), 4)
    return {
        result.resource_name: {
            each.name: (each.value, each.config_source, [(one.name, one.value, one.source) for one in each.synonyms])
            for each in result.configs
        }
        for result in answer.results
    }
