"""The new position of a follower whose LEO is outside its leader's log (KIP-405's rules without tiers).

leader's LEO is lower          the leader was elected uncleanly: truncate to the leader's LEO
leader's log start is higher   records were deleted on the leader: start anew at its log start offset
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.common.errors import ErrorCode, StorageFault
from barnabas.protocol.channel import Channel
from barnabas.protocol.message import Message
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.replication.partition import Partition, Role

_LATEST: Final = -1
#: The first offset on the leader's disk; without tiered storage, the same as the earliest.
_EARLIEST_LOCAL: Final = -4


class Repositioning:
    """Asks the leader for its offsets, on the fetcher's channel."""

    def __init__(self, channel: Channel, *, node_id: int, on_fault: Callable[[StorageFault], None]) -> None:
        self._channel = channel
        self._node_id = node_id
        self._on_fault = on_fault

    def start(self, partition: Partition, epoch: int, done: Callable[[], None]) -> None:
        """Calls `done` once the log is repositioned; never if the leader does not answer: the next fetch retries."""

        def with_end(end_offset: int) -> None:
            if end_offset < partition.log.log_end_offset:
                self._move(partition, epoch, lambda: partition.truncate_to(end_offset), done)
            else:
                self._request_offset(partition, epoch, _EARLIEST_LOCAL, with_start)

        def with_start(start_offset: int) -> None:
            if start_offset > partition.log.log_end_offset:
                self._move(partition, epoch, lambda: partition.start_anew_at(start_offset), done)
            else:
                self._move(partition, epoch, lambda: partition.log.delete_records_before(start_offset), done)

        self._request_offset(partition, epoch, _LATEST, with_end)

    def _move(self, partition: Partition, epoch: int, move: Callable[[], None], done: Callable[[], None]) -> None:
        try:
            move()
        except StorageFault as fault:
            self._on_fault(fault)
        else:
            done()

    def _request_offset(self, partition: Partition, epoch: int, timestamp: int, found: Callable[[int], None]) -> None:
        name, index = partition.topic_partition
        request = ListOffsetsRequest(
            replica_id=self._node_id,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=index, current_leader_epoch=epoch, timestamp=timestamp
                        )
                    ],
                )
            ],
        )

        def answered(response: Message | None) -> None:
            if not isinstance(response, ListOffsetsResponse):
                return
            if partition.role is not Role.FOLLOWER or partition.leader_epoch != epoch:
                return
            for topic in response.topics:
                for answer in topic.partitions:
                    if answer.error_code == ErrorCode.NONE and answer.offset >= 0:
                        found(answer.offset)

        self._channel.send(request, answered)
