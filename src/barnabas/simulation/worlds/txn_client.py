"""A transactional producer of bare requests in the simulated world: single requests, or repeats until one succeeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from barnabas.common.errors import ErrorCode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas.records.batch import Record, decode_batch, encode_batch, iter_headers
from barnabas.simulation.worlds.replicated import Replicated

M = TypeVar("M", bound=Message)

GROUP: Final = "chain"
#: The error codes that a client retries, as far as tests need them.
_AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)


class Coordination:
    """The coordinators in a cluster of the simulated world."""

    def __init__(self, world: Replicated) -> None:
        self.world = world

    def of(self, key: str, key_type: int) -> int:
        """Returns the coordinator's node id; waits until there is one."""
        found: list[int] = []

        def call() -> bool:
            up = next(n for n in (1, 2, 3) if self.world.node(n).is_running)
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            answer = self.world.client.call(f"broker{up}", request, FindCoordinatorResponse).coordinators[0]
            if answer.error_code == ErrorCode.NONE and self.world.node(answer.node_id).is_running:
                found.append(answer.node_id)
            return bool(found)

        for _ in range(100):
            if call():
                return found[0]
            self.world.run_for(100)
        raise AssertionError(f"no coordinator of {key}")

    def offsets(self, *, stable: bool) -> dict[int, tuple[int, int]]:
        """Returns (error code, offset) by partition of `orders`, as the group has them."""
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=GROUP,
            topics=[OffsetFetchRequest.OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 1])],
        )
        request = OffsetFetchRequest(groups=[group], require_stable=stable)
        for _ in range(100):
            node = f"broker{self.of(GROUP, 0)}"
            answer = self.world.client.call(node, request, OffsetFetchResponse).groups[0]
            if answer.error_code == ErrorCode.NONE:
                rows = answer.topics[0].partitions
                return {row.partition_index: (row.error_code, row.committed_offset) for row in rows}
            self.world.run_for(50)
        raise AssertionError("no offsets")


class TxnProducer:
    """A producer. `version` of the protocol: 1 adds partitions itself, 2 leaves it to the brokers (KIP-890)."""

    def __init__(self, world: Replicated, transactional_id: str = "t", *, version: int = 2) -> None:
        self.world = world
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}
        self.coordination = Coordination(world)

    @property
    def coordinator(self) -> str:
        return f"broker{self.coordination.of(self.transactional_id, 1)}"

    # -- single requests

    def init(self, timeout_ms: int = 60_000) -> ErrorCode:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms, producer_id=-1, producer_epoch=-1
        )
        # Two-phase commit is not offered: version 5 is the highest.
        answer = self.world.client.call(self.coordinator, request, InitProducerIdResponse)
        if answer.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    def add(self, *partitions: int, topic: str = "orders") -> ErrorCode:
        requested = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[requested],
        )
        answer = self.call(request, AddPartitionsToTxnResponse, version_max=3)
        codes = {
            row.partition_error_code for one in answer.results_by_topic_v3_and_below for row in one.results_by_partition
        }
        (code,) = codes
        return ErrorCode(code)

    def call(self, request: Message, response_type: type[M], *, node: str | None = None, version_max: int = 99) -> M:
        answers: list[Message | None] = []
        world = self.world
        world.client.process.enter(
            lambda: world.client.send(
                node or self.coordinator, request, answers.append, timeout_ms=5_000, version_max=version_max
            )
        )
        world.run_until(lambda: bool(answers), f"an answer to {type(request).__name__}")
        assert isinstance(answers[0], response_type), answers[0]
        return answers[0]

    def batch(self, *values: bytes, partition: int = 0, topic: str = "orders") -> bytes:
        sequence = self.sequences.get((topic, partition), 0)
        records = [Record(0, 1_735_689_600_000, None, value, []) for value in values]
        return bytes(
            encode_batch(
                records,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )

    def produce(self, *values: bytes, partition: int = 0) -> ErrorCode:
        request = self.produce_request(self.batch(*values, partition=partition), partition)
        leader = self.world.leader("orders", partition)
        answer = self.call(
            request, ProduceResponse, node=f"broker{leader}", version_max=13 if self.version == 2 else 11
        )
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if code is ErrorCode.NONE:
            self.sequences["orders", partition] = self.sequences.get(("orders", partition), 0) + len(values)
        return code

    def produce_request(self, data: bytes, partition: int) -> ProduceRequest:
        row = ProduceRequest.PartitionProduceData(index=partition, records=data)
        topic = ProduceRequest.TopicProduceData(partition_data=[row])
        if self.version == 2:
            topic.topic_id = self.world.topic_id()
        else:
            topic.name = "orders"
        return ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=2_000, topic_data=[topic])

    def end(self, commit: bool = True) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = self.call(request, EndTxnResponse, version_max=5 if self.version == 2 else 4)
        if answer.error_code == ErrorCode.NONE and self.version == 2:
            if answer.producer_epoch != self.epoch:
                self.sequences.clear()
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode(answer.error_code)

    def send_offset(self, offset: int, partition: int = 0) -> ErrorCode:
        if self.version == 1:
            requested = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=GROUP,
            )
            added = self.call(requested, AddOffsetsToTxnResponse)
            if added.error_code != ErrorCode.NONE:
                return ErrorCode(added.error_code)
        row = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=GROUP,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="orders", partitions=[row])],
        )
        node = f"broker{self.coordination.of(GROUP, 0)}"
        answer = self.call(request, TxnOffsetCommitResponse, node=node, version_max=5 if self.version == 2 else 3)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    # -- repeated until they succeed

    def begin(self, timeout_ms: int = 60_000) -> None:
        self.again(lambda: self.init(timeout_ms))

    def send(self, *values: bytes, partition: int = 0) -> None:
        if self.version == 1:
            self.again(lambda: self.add(partition))
        self.again(lambda: self.produce(*values, partition=partition))

    def commit(self) -> None:
        self.again(lambda: self.end(True))

    def abort(self) -> None:
        self.again(lambda: self.end(False))

    def again(self, step: Callable[[], ErrorCode]) -> None:
        for _ in range(200):
            code = step()
            if code is ErrorCode.NONE:
                return
            assert code in _AGAIN, code
            self.world.run_for(50)
        raise AssertionError("never good")


def read(world: Replicated, partition: int = 0, *, committed: bool = True, at: int | None = None) -> list[bytes | None]:
    """Returns the values that a consumer reads from the partition."""
    offset, values = 0, []
    while True:
        row = fetch(world, offset, partition, committed=committed, at=at)
        assert row.error_code == 0, row
        found, end = visible(row, offset, committed=committed)
        values += found
        if end == offset:
            return values
        offset = end


def visible(row: FetchResponse.PartitionData, offset: int, *, committed: bool = True) -> tuple[list[bytes | None], int]:
    """Returns (values from `offset` on, next offset), as a consumer filters a response."""
    aborted = sorted((one.first_offset, one.producer_id) for one in row.aborted_transactions or ())
    being_aborted: set[int] = set()
    values: list[bytes | None] = []
    data, end = bytes(row.records or b""), offset
    for place, header in iter_headers(memoryview(data)):
        while aborted and aborted[0][0] <= header.last_offset:
            being_aborted.add(aborted.pop(0)[1])
        if header.is_control:
            being_aborted.discard(header.producer_id)
        elif not (committed and header.is_transactional and header.producer_id in being_aborted):
            values += [r.value for r in decode_batch(data, place) if r.offset >= offset]
        end = header.next_offset
    return values, end


def fetch(
    world: Replicated, offset: int, partition: int = 0, *, committed: bool = True, at: int | None = None
) -> FetchResponse.PartitionData:
    request = fetch_request(world.topic_id(), offset, partition, committed=committed)
    node = f"broker{world.leader('orders', partition) if at is None else at}"
    return world.client.call(node, request, FetchResponse).responses[0].partitions[0]


def fetch_request(topic_id: bytes, offset: int, partition: int, *, committed: bool = True) -> FetchRequest:
    requested = FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=1 if committed else 0,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[requested])],
    )


def marker_request(
    producer_id: int,
    epoch: int,
    *,
    commit: bool = True,
    coordinator_epoch: int = 0,
    partition: int = 0,
    tags: Sequence[tuple[int, bytes]] = (),
) -> WriteTxnMarkersRequest:
    """Returns a request of one marker to a partition of `orders`."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator_epoch,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="orders", partition_indexes=[partition])],
        unknown_tags=tuple(tags),
    )
    return WriteTxnMarkersRequest(markers=[marker])


def write_marker(
    world: Replicated,
    producer_id: int,
    epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int = 0,
    tags: Sequence[tuple[int, bytes]] = (),
) -> ErrorCode:
    """Writes a marker to `orders`-0, as a coordinator or an administrator would."""
    request = marker_request(producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch, tags=tags)
    answer = world.client.call(f"broker{world.leader()}", request, WriteTxnMarkersResponse)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)
