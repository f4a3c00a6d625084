"""A transaction coordinator on virtual time over a log in memory, and the partitions that it writes markers to."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.support.group_world import MemoryPartitions

from barnabas.common.errors import ErrorCode
from barnabas.common.types import TRANSACTION_STATE_TOPIC, TopicPartition
from barnabas.coordinators.runtime import ShardState
from barnabas.coordinators.transactions.coordinator import Ending, Initialization, TransactionCoordinator
from barnabas.coordinators.transactions.markers import version_of
from barnabas.coordinators.transactions.state import TxnImage
from barnabas.coordinators.transactions.transaction_config import TransactionConfig
from barnabas.coordinators.transactions.transaction_records import parse_key, parse_value
from barnabas.coordinators.transactions.transitions import ProducerIdentity
from barnabas.protocol.message import Message
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas.simulation.host import MemoryHost

#: A marker that was refused is sent again after this time at the earliest.
_PAUSE_MS = 20
A = TopicPartition("orders", 0)
B = TopicPartition("orders", 1)


class Ids:
    """Producer ids, held back while `holding`."""

    def __init__(self) -> None:
        self.next = 1000
        self.holding = False
        self.error = ErrorCode.NONE
        self._waiting: list[Callable[[ErrorCode, int], None]] = []

    def take(self, done: Callable[[ErrorCode, int], None]) -> None:
        self._waiting.append(done)
        if not self.holding:
            self.give()

    def give(self) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            if self.error is ErrorCode.NONE:
                self.next += 1
            done(self.error, -1 if self.error is not ErrorCode.NONE else self.next - 1)


class Marker(NamedTuple):
    partition: TopicPartition
    producer_id: int
    epoch: int
    commit: bool
    coordinator_epoch: int


def _nothing_against(marker: Marker, version: int) -> ErrorCode:
    return ErrorCode.NONE


class Leaders:
    """The leaders of all partitions. `codes` are their answers to a partition's next markers; brokers in `silent` do
    not answer.
    """

    def __init__(self, host: MemoryHost) -> None:
        self._host = host
        self.leaders: dict[TopicPartition, int | None] = {}
        self.codes: dict[TopicPartition, list[ErrorCode]] = {}
        self.silent: set[int] = set()
        self.holding = False
        #: The answer of the partition's log to a marker of that version of the protocol.
        self.log_says: Callable[[Marker, int], ErrorCode] = _nothing_against
        self.requests: list[tuple[int, WriteTxnMarkersRequest]] = []
        self.markers: list[Marker] = []
        #: When each marker was refused last, and those that were sent again without a pause.
        self._refused_ms: dict[Marker, int] = {}
        self.hasty: list[Marker] = []
        self._held: list[Callable[[], None]] = []

    def leader_of(self, partition: TopicPartition) -> int | None:
        return self.leaders.get(partition, 1)

    def send_markers(
        self, broker_id: int, request: WriteTxnMarkersRequest, reply: Callable[[Message | None], None]
    ) -> None:
        self.requests.append((broker_id, request))
        if broker_id in self.silent:
            self._host.timers.call_later(100, lambda: reply(None))
        elif self.holding:
            self._held.append(lambda: reply(self._write(request)))
        else:
            self._host.timers.call_soon(lambda: reply(self._write(request)))

    def release(self) -> None:
        self.holding = False
        held, self._held = self._held, []
        for answer in held:
            answer()

    def _write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        response = WriteTxnMarkersResponse()
        for marker in request.markers:
            result = WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=marker.producer_id)
            for topic in marker.topics:
                rows = [
                    WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=self._write_one(marker, TopicPartition(topic.name, index))
                    )
                    for index in topic.partition_indexes
                ]
                result.topics.append(
                    WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=topic.name, partitions=rows)
                )
            response.markers.append(result)
        return response

    def _write_one(self, told: WriteTxnMarkersRequest.WritableTxnMarker, partition: TopicPartition) -> ErrorCode:
        marker = Marker(
            partition, told.producer_id, told.producer_epoch, told.transaction_result, told.coordinator_epoch
        )
        codes = self.codes.get(partition)
        code = codes.pop(0) if codes else self.log_says(marker, version_of(told))
        now_ms = self._host.clock.now_ms()
        if now_ms - self._refused_ms.pop(marker, -_PAUSE_MS) < _PAUSE_MS:
            self.hasty.append(marker)
        if code is ErrorCode.NONE:
            self.markers.append(marker)
        else:
            self._refused_ms[marker] = now_ms
        return code


class Answered:
    """The answer to a producer, if it has arrived."""

    def __init__(self) -> None:
        self.code: ErrorCode | None = None
        self.producer = ProducerIdentity(-1, -1)

    @property
    def is_parked(self) -> bool:
        return self.code is None

    def __call__(self, code: ErrorCode, producer: ProducerIdentity = ProducerIdentity(-1, -1)) -> None:  # noqa: B008
        assert self.code is None, "answered twice"
        self.code, self.producer = code, producer


class TransactionWorld:
    """One coordinator that leads all partitions of `__transaction_state`."""

    def __init__(self, partitions: int = 1, server_version: int = 2, config: TransactionConfig | None = None) -> None:
        self.host = MemoryHost(seed=1)
        self.partitions = partitions
        self.log = MemoryPartitions()
        self.ids = Ids()
        self.leaders = Leaders(self.host)
        self.server_version = server_version
        self.config = config or TransactionConfig()
        self.epoch = 0
        self.coordinator = self._make()
        self.elect()

    def _make(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            self.host,
            self.config,
            self.log,
            self.log,
            self.ids,
            self.leaders,
            partition_count=lambda: self.partitions,
            server_version=lambda: self.server_version,
        )

    def elect(self) -> None:
        self.epoch += 1
        for partition in range(self.partitions):
            self.coordinator.on_partition_leader(partition, self.epoch)
        for _ in range(200):
            if all(shard.state is not ShardState.LOADING for shard in self.coordinator.shards()):
                return
            self.run(5)
        raise AssertionError("not loaded")

    def fail_over(self, *, lose: bool) -> None:
        """Lets another broker take over, with or without the uncommitted records."""
        self.coordinator.shutdown()
        self.log.fail_held(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if lose:
            self.log.lose_uncommitted()
        else:
            self.log.keep_uncommitted()
        self.log.holding = False
        self.coordinator = self._make()
        self.elect()

    def run(self, duration_ms: int = 0) -> None:
        self.host.time.run_for(duration_ms)

    # -- requests

    def init(
        self, transactional_id: str = "t", timeout_ms: int = 60_000, expected: ProducerIdentity | None = None
    ) -> Answered:
        answered = Answered()
        self.coordinator.init_producer_id(Initialization(transactional_id, timeout_ms, expected, answered))
        return answered

    def begin(self, transactional_id: str = "t") -> ProducerIdentity:
        answered = self.init(transactional_id)
        assert answered.code is ErrorCode.NONE, answered.code
        return answered.producer

    def add(
        self,
        producer: ProducerIdentity,
        *partitions: TopicPartition,
        version: int = 2,
        transactional_id: str = "t",
        wait_ms: int = 0,
    ) -> Answered:
        answered = Answered()
        self.coordinator.add_partitions(
            transactional_id, producer, frozenset(partitions), version, answered, wait_ms=wait_ms
        )
        return answered

    def end(
        self, producer: ProducerIdentity, commit: bool = True, *, version: int = 2, transactional_id: str = "t"
    ) -> Answered:
        answered = Answered()
        self.coordinator.end_transaction(Ending(transactional_id, producer, commit, version, answered))
        return answered

    # -- state

    def image(self, transactional_id: str = "t") -> TxnImage:
        return self.coordinator.describe(transactional_id).image

    def written(self, partition: int = 0) -> list[tuple[str | None, TxnImage | None]]:
        """Returns all records of a partition of `__transaction_state`."""
        return [
            (parse_key(record.key or b""), None if record.value is None else parse_value(record.value))
            for record in self.log.records(TopicPartition(TRANSACTION_STATE_TOPIC, partition))
        ]
