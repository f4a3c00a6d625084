"""The internal topics as the coordinators use them (their `PartitionWriter` and `PartitionReader`)."""

from __future__ import annotations

import sys
from collections.abc import Callable

from barnabas.common.errors import ErrorCode, RecordsRejected, RequestFailed, StorageFault
from barnabas.common.host import Buffer, Clock
from barnabas.common.types import TopicPartition
from barnabas.replication.partition import Isolation
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.storage.cold_read import ColdRead
from barnabas.storage.log import Origin


class InternalPartitions:
    """Writes with acks=all and reads up to the LEO. Reads raise RequestFailed if this broker does not lead."""

    def __init__(self, replicas: ReplicaManager, clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock

    def append(self, partition: TopicPartition, batch: bytearray, done: Callable[[ErrorCode, int], None]) -> None:
        """Appends a batch. Calls `done(code, base offset)` once, when it is committed or has failed, possibly before
        this returns.
        """
        try:
            leader = self._replicas.leader(*partition)
        except RequestFailed as failure:
            done(failure.code, -1)
            return
        appended = self._replicas.append_to(leader, batch, -1, self._clock.wall_ms(), Origin.COORDINATOR)
        info = appended.info
        if info is None:
            done(appended.error, -1)
            return
        base_offset = info.first_offset
        leader.await_commit(info.last_offset + 1, lambda code: done(code, base_offset))

    def is_followed(self, partition: TopicPartition) -> bool:
        """Returns whether this broker leads the partition, and its followers fetch: otherwise another broker may lead
        it by now.
        """
        try:
            return self._replicas.leader(*partition).is_followed
        except RequestFailed:
            return False

    def batch_bytes_max(self, partition: TopicPartition) -> int:
        """Returns `max.message.bytes`, or no limit if this broker does not lead, since the append then reports that."""
        try:
            return self._replicas.leader(*partition).log.config.max_message_bytes
        except RequestFailed:
            return sys.maxsize

    def read(
        self, partition: TopicPartition, offset: int, max_bytes: int, done: Callable[[Buffer | Exception], None]
    ) -> None:
        """Calls `done` with batches from the one that contains `offset`, which are empty at the end of the log, or with
        an error. If memory has them, it is called before this returns."""
        self._read(partition, offset, max_bytes, done, None)

    def _read(
        self,
        partition: TopicPartition,
        offset: int,
        max_bytes: int,
        done: Callable[[Buffer | Exception], None],
        loaded: ColdRead | None,
    ) -> None:
        try:
            leader = self._replicas.leader(*partition)
            read = None if loaded is None else leader.log.take(loaded)
            if read is None:
                read = leader.read(offset, max_bytes, Isolation.LOG_END, min_one_batch=True)
        except (RequestFailed, RecordsRejected, StorageFault) as error:
            done(error)
            return
        if not isinstance(read, ColdRead):
            done(b"" if read is None else read.data)
            return
        cold = read

        def on_loaded(error: BaseException | None) -> None:
            if error is not None:
                raise error
            self._read(partition, offset, max_bytes, done, cold)

        self._replicas.cold_reads.load(cold, on_loaded)

    def next_segment(self, partition: TopicPartition, offset: int) -> int | None:
        """Returns the base offset of the first segment after `offset`; None if there is none."""
        bases = self._replicas.leader(*partition).log.segments.bases
        return next((base for base in bases if base > offset), None)

    def log_start_offset(self, partition: TopicPartition) -> int:
        return self._replicas.leader(*partition).log.log_start_offset

    def log_end_offset(self, partition: TopicPartition) -> int:
        return self._replicas.leader(*partition).log.log_end_offset

    def high_watermark(self, partition: TopicPartition) -> int:
        return self._replicas.leader(*partition).high_watermark
