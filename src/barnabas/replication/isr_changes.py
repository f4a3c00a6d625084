"""ISR changes that the leaders on this broker request from the controller (AlterPartition, KIP-497).

Proposals of one event share a request, up to `PARTITIONS_IN_PORTION`. One request is in flight at a time; other
proposals go with the next one.

    NONE                       the partition adopts the result, unless the metadata already contains something newer
    INELIGIBLE_REPLICA, ...    the proposal is withdrawn; the partition proposes again when it has a reason
    FENCED_LEADER_EPOCH, ...   this broker no longer leads, or in another epoch: the metadata will contain the change.
                               If they do not, the controller answered from a decision that was never committed, and
                               the proposal is sent again
    any other error            sent again after a pause
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from barnabas.common.errors import ErrorCode
from barnabas.common.host import Timers
from barnabas.common.portions import PARTITIONS_IN_PORTION
from barnabas.common.types import TopicPartition
from barnabas.metadata.topics import RECOVERED
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.replication.leadership import Leadership

SendRequest = Callable[[Message, Callable[[Message | None], None]], None]
_State = AlterPartitionRequest.BrokerState

_RETRY_MS: Final = 50
#: The time within which the metadata contain what a controller knows.
_OVERTAKEN_MS: Final = 2_000
#: The proposal is withdrawn; the committed ISR remains.
_WITHDRAWN: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
#: The controller has newer metadata, which this broker will receive if they are committed.
_OVERTAKEN: Final = frozenset(
    {
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
    }
)


class Proposer(Protocol):
    """The interface of a partition that this broker leads, for its ISR proposals."""

    topic_partition: TopicPartition
    topic_id: bytes
    leadership: Leadership | None

    def on_isr_committed(self) -> None:
        """Handles a new committed ISR of the partition."""


class IsrChanges:
    def __init__(self, timers: Timers, node_id: int, broker_epoch: Callable[[], int], send: SendRequest) -> None:
        self._timers = timers
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._send_request = send
        self._waiting: dict[Proposer, Leadership] = {}
        #: The proposals in flight, with the ISR at the time they were sent.
        self._in_flight: dict[tuple[bytes, int], tuple[Proposer, Leadership, tuple[int, ...]]] = {}
        self._scheduled = False
        #: The proposals that newer metadata should replace.
        self._overtaken: dict[Proposer, Leadership] = {}
        #: ISRs that the controller shrank or expanded on request, and refused requests, since startup.
        self.shrinks = 0
        self.expands = 0
        self.failures = 0

    def submit(self, partition: Proposer) -> None:
        """Sends the proposal of the partition's leadership with the next request."""
        assert partition.leadership is not None, "only a leader proposes"
        self._waiting[partition] = partition.leadership
        if not self._in_flight:
            self._schedule(0)

    def _schedule(self, delay_ms: int) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._timers.call_later(delay_ms, self._send)

    def _send(self) -> None:
        self._scheduled = False
        if self._in_flight:
            return
        topics: dict[bytes, AlterPartitionRequest.TopicData] = {}
        while self._waiting and len(self._in_flight) < PARTITIONS_IN_PORTION:
            partition = next(iter(self._waiting))
            leadership = self._waiting.pop(partition)
            isr = leadership.proposed
            if partition.leadership is not leadership or isr is None:
                continue  # The metadata has changed in the meantime.
            topic = topics.setdefault(partition.topic_id, AlterPartitionRequest.TopicData(topic_id=partition.topic_id))
            index = partition.topic_partition.partition
            topic.partitions.append(
                AlterPartitionRequest.PartitionData(
                    partition_index=index,
                    leader_epoch=leadership.epoch,
                    new_isr_with_epochs=[
                        _State(broker_id=replica, broker_epoch=self._epoch_of(leadership, replica)) for replica in isr
                    ],
                    leader_recovery_state=RECOVERED,
                    partition_epoch=leadership.partition_epoch,
                    unknown_tags=leadership.reason,
                )
            )
            self._in_flight[partition.topic_id, index] = (partition, leadership, leadership.isr)
        if topics:
            request = AlterPartitionRequest(
                broker_id=self._node_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
            )
            self._send_request(request, self._on_answer)

    def _epoch_of(self, leadership: Leadership, replica: int) -> int:
        if replica == self._node_id:
            return self._broker_epoch()
        follower = leadership.followers.get(replica)
        return -1 if follower is None else follower.broker_epoch

    def _on_answer(self, response: Message | None) -> None:
        in_flight, self._in_flight = self._in_flight, {}
        answers: dict[tuple[bytes, int], AlterPartitionResponse.PartitionData] = {}
        failed = ErrorCode.REQUEST_TIMED_OUT
        if isinstance(response, AlterPartitionResponse):
            failed = ErrorCode(response.error_code)
            for topic in response.topics:
                for answer in topic.partitions:
                    answers[topic.topic_id, answer.partition_index] = answer
        again = False
        for key, (partition, leadership, isr_before) in in_flight.items():
            self._count(answers.get(key), len(isr_before))
            if partition.leadership is not leadership or leadership.proposed is None:
                continue
            found = answers.get(key)
            again |= self._settle(partition, leadership, found, failed)
        if self._waiting:
            self._schedule(_RETRY_MS if again else 0)

    def _count(self, answer: AlterPartitionResponse.PartitionData | None, members_before: int) -> None:
        if answer is None or answer.error_code != ErrorCode.NONE:
            self.failures += 1
        elif len(answer.isr) < members_before:
            self.shrinks += 1
        elif len(answer.isr) > members_before:
            self.expands += 1

    def _settle(
        self,
        partition: Proposer,
        leadership: Leadership,
        answer: AlterPartitionResponse.PartitionData | None,
        failed: ErrorCode,
    ) -> bool:
        """Applies the result of one proposal; returns True if it must be sent again."""
        code = failed if answer is None else ErrorCode(answer.error_code)
        if answer is not None and code is ErrorCode.NONE:
            if leadership.commit_answer(answer.isr, answer.partition_epoch):
                partition.on_isr_committed()
            elif answer.partition_epoch == leadership.partition_epoch:
                # No change was needed: the proposed ISR is the current one.
                leadership.withdraw()
            return False
        if code in _WITHDRAWN:
            leadership.withdraw()
            return False
        if code in _OVERTAKEN:
            if not self._overtaken:
                self._timers.call_later(_OVERTAKEN_MS, self._repeat_overtaken)
            self._overtaken[partition] = leadership
            return False
        self._waiting[partition] = leadership
        return True

    def _repeat_overtaken(self) -> None:
        """Sends the proposals again that no newer metadata has replaced."""
        overtaken, self._overtaken = self._overtaken, {}
        for partition, leadership in overtaken.items():
            if partition.leadership is leadership and leadership.proposed is not None:
                self.submit(partition)
