"""The journal's topic as a node reads and writes it: one partition, whose leader is this broker or another one.

Writes use acks=all: through this broker's own replica if it is the leader, else by a Produce request with the client id
that Kafka allows to write to internal topics. Reads start at the end, to find how far an earlier controller came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import DecodeError, ErrorCode, RecordsRejected, RequestFailed
from barnabas.common.host import Buffer, Host
from barnabas.common.types import ADMIN_CLIENT_ID, EVENTS_TOPIC, TopicPartition
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.channel import Channel, ChannelTimes
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.protocol.message import Message
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.protocol.peer_security import inter_broker_security
from barnabas.records.batch import decode_batch, iter_headers
from barnabas.replication.internal import InternalPartitions

_TIMES: Final = ChannelTimes(request_timeout_ms=15_000, backoff_ms=50, backoff_ms_max=1_000)
_WRITE_TIMEOUT_MS: Final = 10_000
_PARTITION: Final = TopicPartition(EVENTS_TOPIC, 0)
_READ_BYTES: Final = 1 << 20
#: The largest number of batches read from the end; some can be from brokers and have no metadata offset.
_BATCHES_MAX: Final = 64
_LATEST: Final = -1

#: Receives the offset of a response, None if there was no valid one.
Found = Callable[[int | None], None]


class EventsTopic:
    """The topic `__cluster_events`, with a channel to its leader."""

    def __init__(
        self, host: Host, config: BrokerConfig, metadata: MetadataStore, partitions: InternalPartitions
    ) -> None:
        self._host = host
        self._config = config
        self._metadata = metadata
        self._partitions = partitions
        self._area = ReceiveArea()
        self._channel: Channel | None = None

    @property
    def exists(self) -> bool:
        return EVENTS_TOPIC in self._metadata.image.topics_by_name

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def append(self, batch: bytearray, done: Callable[[bool], None]) -> None:
        """Appends a batch and calls `done(is_committed)`, possibly before it returns.

        False means that it is unknown whether the batch was written.
        """
        if self._is_led_here:
            self._partitions.append(_PARTITION, batch, lambda code, _: done(code is ErrorCode.NONE))
            return
        row = ProduceRequest.PartitionProduceData(index=0, records=batch)
        topic = ProduceRequest.TopicProduceData(name=EVENTS_TOPIC, topic_id=self._topic_id, partition_data=[row])
        request = ProduceRequest(acks=-1, timeout_ms=_WRITE_TIMEOUT_MS, topic_data=[topic])

        def answered(response: Message | None) -> None:
            rows = response.responses[0].partition_responses if isinstance(response, ProduceResponse) else []
            done(bool(rows) and rows[0].error_code == ErrorCode.NONE)

        self._send(request, answered)

    def last_key(self, is_wanted: Callable[[bytes], bool], done: Callable[[bytes | None, bool], None]) -> None:
        """Finds the last record whose key is wanted. Calls `done` with the key, or None, and with whether the topic
        could be read.
        """
        _KeySearch(self, is_wanted, done).begin()

    # -- where it is

    @property
    def _leader(self) -> int:
        partition = self._metadata.image.partition(EVENTS_TOPIC, 0)
        return -1 if partition is None else partition.leader

    @property
    def _is_led_here(self) -> bool:
        return self._config.is_broker and self._leader == self._config.node_id

    @property
    def _topic_id(self) -> bytes:
        return self._metadata.image.topics_by_name[EVENTS_TOPIC].topic_id

    @property
    def _leader_address(self) -> tuple[str, int] | None:
        broker = self._metadata.image.brokers.get(self._leader)
        endpoint = None if broker is None else broker.endpoint(self._config.inter_broker_listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def follow_leader(self) -> None:
        """Ends the connection to a broker that does not lead the topic any more. A request to one that was paused would
        otherwise wait for its timeout, and all later events behind it.
        """
        channel = self._channel
        if channel is not None and channel.address != self._leader_address:
            self._channel = None
            self._host.timers.call_soon(channel.close)

    def _send(self, request: Message, reply: Callable[[Message | None], None]) -> None:
        address = self._leader_address
        if address is None:
            self._host.timers.call_soon(lambda: reply(None))
            return
        self.follow_leader()
        channel = self._channel
        if channel is None:
            security = inter_broker_security(self._config)
            channel = Channel(self._host, self._area, address, ADMIN_CLIENT_ID, _TIMES, security)
            self._channel = channel
        channel.send(request, reply)

    # -- reading

    def find_end(self, done: Found) -> None:
        if self._is_led_here:
            done(self._own_end())
            return
        row = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=_LATEST, current_leader_epoch=-1)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=EVENTS_TOPIC, partitions=[row])

        def answered(response: Message | None) -> None:
            rows = response.topics[0].partitions if isinstance(response, ListOffsetsResponse) else []
            done(rows[0].offset if rows and rows[0].error_code == ErrorCode.NONE else None)

        self._send(ListOffsetsRequest(replica_id=-1, topics=[topic]), answered)

    def _own_end(self) -> int | None:
        try:
            return self._partitions.log_end_offset(_PARTITION)
        except RequestFailed:
            return None  # the replica is created a moment after the metadata

    def read(self, offset: int, done: Callable[[Buffer | None], None]) -> None:
        """Reads from the batch with `offset` on: None if that failed, empty if there is no batch."""
        if self._is_led_here:
            self._partitions.read(
                _PARTITION, offset, _READ_BYTES, lambda data: done(None if isinstance(data, Exception) else data)
            )
            return
        row = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=_READ_BYTES)
        topic = FetchRequest.FetchTopic(topic=EVENTS_TOPIC, topic_id=self._topic_id, partitions=[row])
        request = FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=_READ_BYTES, session_epoch=-1, topics=[topic]
        )

        def answered(response: Message | None) -> None:
            topics = response.responses if isinstance(response, FetchResponse) else []
            rows = topics[0].partitions if topics else []
            if not rows or rows[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                done(b"" if rows else None)  # retention has deleted the record meanwhile
            else:
                done(rows[0].records or b"" if rows[0].error_code == ErrorCode.NONE else None)

        self._send(request, answered)


class _KeySearch:
    """A search for a key, from the end of the topic backwards."""

    def __init__(
        self, topic: EventsTopic, is_wanted: Callable[[bytes], bool], done: Callable[[bytes | None, bool], None]
    ) -> None:
        self._topic = topic
        self._is_wanted = is_wanted
        self._done = done
        self._left = _BATCHES_MAX

    def begin(self) -> None:
        self._topic.find_end(self._from)

    def _from(self, end: int | None) -> None:
        if end is None:
            self._done(None, False)
        elif end <= 0 or not self._left:
            self._done(None, True)
        else:
            self._left -= 1
            self._topic.read(end - 1, self._on_data)

    def _on_data(self, data: Buffer | None) -> None:
        if data is None:
            self._done(None, False)
            return
        try:
            first = next(iter_headers(memoryview(data)), None)
            records = [] if first is None else list(decode_batch(data, first[0]))
        except (DecodeError, RecordsRejected):
            self._done(None, False)
            return
        keys = (bytes(record.key) for record in reversed(records) if record.key is not None)
        found = next(filter(self._is_wanted, keys), None)
        if found is not None or first is None:
            self._done(found, True)
        else:
            self._from(first[1].base_offset)
