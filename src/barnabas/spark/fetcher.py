"""A range of one partition, fetched response by response from its leader.

While a response is decoded, the next one is in flight. A moved leader, a broken connection and every retriable error
lead to fresh metadata, a pause and the next try from the first offset not yet returned; progress resets the deadline.

Lost records are reported to `on_lost`, which raises DataLost or lets the reading continue after them:

    retention                   OFFSET_OUT_OF_RANGE, and the leader's earliest offset is above ours
    truncation                  OFFSET_OUT_OF_RANGE, or a batch of a later epoch than the planned one, and the
                                leader's OffsetForLeaderEpoch reports where the old epoch ends
    the topic was replaced      its id is not the planned one
    the partition is missing    only after the deadline
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

from barnabas.common.errors import ErrorCode
from barnabas.common.host import Buffer
from barnabas.common.types import ZERO_UUID, uuid_to_text
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.records.header import BatchHeader
from barnabas.spark import cluster_client as clusters
from barnabas.spark.batch_selection import Selection, select
from barnabas.spark.blocking_connection import Connection
from barnabas.spark.cluster_client import ClusterClient, RetryDeadline
from barnabas.spark.errors import ClusterUnreachable, RequestRefused
from barnabas.spark.losses import LossCause, LostRange
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.source_options import FetchSettings

#: Fetch names topics in versions up to this one, and has their ids after it (KIP-516).
_LAST_NAMED_VERSION = 12


class Fetched(NamedTuple):
    """Batches of one response, and the bytes that contain them. The reader ignores records before `first_offset`."""

    records: Buffer
    batches: list[tuple[int, BatchHeader]]
    first_offset: int


class Fetcher:
    """The reader of one range of offsets; `answers` can be iterated once."""

    def __init__(
        self,
        cluster: ClusterClient,
        wanted: OffsetRange,
        settings: FetchSettings,
        on_lost: Callable[[LostRange], None],
    ) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._settings = settings
        self._on_lost = on_lost
        self._position = wanted.first_offset
        #: The end of the range, or a lower offset once the log is known to be truncated there.
        self._end_offset = wanted.end_offset
        self._address = wanted.leader
        self._connection: Connection | None = None
        # The driver has planned the range, so the cluster exists and is only away for a while.
        cluster.was_reached = True
        self._deadline: RetryDeadline = cluster.deadline()
        self._cause = "no answer"

    def answers(self) -> Iterator[Fetched]:
        """Yields the batches of each response.

        Raises:
            RequestRefused, ClusterUnreachable, RecordsRejected, and the exceptions of `on_lost`.
        """
        try:
            while self._position < self._end_offset:
                try:
                    yield from self._from_leader()
                except OSError as error:
                    self._retry(str(error))
        finally:
            self._release_connection()

    # -- one leader

    def _from_leader(self) -> Iterator[Fetched]:
        """Yields responses of one leader until the range is read or the leader has to be determined again."""
        connection = self._connect()
        if connection is None:
            return
        self._send(connection)
        while True:
            answer = self._receive(connection)
            code = ErrorCode(answer.error_code)
            if code != ErrorCode.NONE:
                self._on_error(code)
                return
            records = answer.records
            if records is None or not len(records):
                if not self._on_empty(answer):
                    return
                self._send(connection)
                continue
            aborted = answer.aborted_transactions if self._settings.read_committed else None
            selected = select(records, self._position, self._end_offset, aborted)
            if selected.next_offset is None:
                self._retry("a response without a complete batch")
                return
            if 0 <= self._wanted.epoch < selected.epoch_max:
                self._on_later_epoch(selected)
                return
            fetched = Fetched(records, selected.batches, self._position)
            self._position = selected.next_offset
            self._deadline = self._cluster.deadline()
            continues = self._position < self._end_offset
            if continues:
                self._send(connection)
            yield fetched
            if not continues:
                return

    def _connect(self) -> Connection | None:
        """Returns a connection to the leader; None after a pause if there is no leader now."""
        if self._address is None:
            partition = self._wanted.topic_partition
            leader = self._cluster.leader(partition, fresh=True)
            self._check_topic()
            if self._position >= self._end_offset:
                return None
            if leader is None:
                self._retry(f"{partition} has no leader")
                return None
            self._address = (leader.host, leader.port)
        self._connection = self._cluster.lend(self._address)
        return self._connection

    def _send(self, connection: Connection) -> None:
        wanted, settings = self._wanted, self._settings
        topic = FetchRequest.FetchTopic(
            topic=wanted.topic,
            topic_id=wanted.topic_id,
            partitions=[
                FetchRequest.FetchPartition(
                    partition=wanted.partition,
                    fetch_offset=self._position,
                    partition_max_bytes=settings.max_bytes,
                )
            ],
        )
        request = FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            isolation_level=int(settings.read_committed),
            topics=[topic],
        )
        connection.send(request, None if wanted.topic_id != ZERO_UUID else _LAST_NAMED_VERSION)

    def _receive(self, connection: Connection) -> FetchResponse.PartitionData:
        response = cast("FetchResponse", connection.receive())
        if response.error_code:
            return FetchResponse.PartitionData(error_code=response.error_code)
        for topic in response.responses:
            for partition in topic.partitions:
                return partition
        raise ConnectionError(f"{connection.shown} sent a fetch response without the requested partition")

    # -- failures

    def _retry(self, cause: str) -> None:
        """Prepares the next try, which determines the leader again. After the deadline, raises ClusterUnreachable."""
        self._release_connection()
        self._address = None
        self._cause = cause
        if self._deadline.passed:
            wanted = self._wanted
            raise ClusterUnreachable(
                f"{wanted.topic_partition} cannot be read at offset {self._position} (of "
                f"[{wanted.first_offset}, {wanted.end_offset})): {cause}"
            )
        self._deadline.pause()

    def _release_connection(self) -> None:
        if self._connection is not None:
            self._cluster.give_back(self._connection)
            self._connection = None

    def _on_error(self, code: ErrorCode) -> None:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._release_connection()
            self._on_out_of_range()
        elif code.retriable:
            self._retry(code.name)
        else:
            raise RequestRefused(f"{self._wanted.topic_partition} at offset {self._position}: {code.name}")

    def _on_empty(self, answer: FetchResponse.PartitionData) -> bool:
        """Returns whether to fetch from this leader again: it may not know its high watermark yet."""
        readable = answer.last_stable_offset if self._settings.read_committed else answer.high_watermark
        if readable < self._end_offset and self._deadline.passed:
            self._lose(self._position, self._end_offset, LossCause.TRUNCATED)
            return False
        if self._deadline.passed:
            self._retry("the leader returns no records")
        return True

    def _on_out_of_range(self) -> None:
        partition = self._wanted.topic_partition
        earliest = self._cluster.log_ends({partition: clusters.EARLIEST})[partition].offset
        self._check_topic()
        if self._position >= self._end_offset:
            return
        if earliest > self._position:
            self._lose(self._position, min(earliest, self._end_offset), LossCause.AGED)
            return
        latest = self._cluster.log_ends({partition: clusters.LATEST})[partition].offset
        if latest < self._position:
            self._lose(self._position, self._end_offset, LossCause.TRUNCATED)
        else:
            self._retry("the offset was out of range, and no longer is")

    def _on_later_epoch(self, selected: Selection) -> None:
        """Handles a batch of a later epoch, which replaced the planned records: it belongs to the next plan."""
        self._release_connection()
        partition = self._wanted.topic_partition
        end = self._cluster.epoch_ends({partition: self._wanted.epoch})[partition].offset
        if not 0 <= end < self._end_offset:
            self._retry(f"a batch of epoch {selected.epoch_max} where epoch {self._wanted.epoch} ends at {end}")
            return
        # Records before the truncation are still the planned ones, and are read.
        cut, position = max(end, self._position), self._position
        self._lose(cut, self._end_offset, LossCause.TRUNCATED)
        self._position, self._end_offset = position, cut

    def _check_topic(self) -> None:
        """Reports a loss if the topic's name no longer belongs to the planned topic."""
        view = self._cluster.topics([self._wanted.topic], fresh=True).get(self._wanted.topic)
        if view is None:
            if self._deadline.passed:
                self._lose(self._position, self._end_offset, LossCause.DELETED)
            return
        if ZERO_UUID not in (view.topic_id, self._wanted.topic_id) and view.topic_id != self._wanted.topic_id:
            self._lose(self._position, self._end_offset, LossCause.RECREATED)

    def _lose(self, first: int, end: int, cause: LossCause) -> None:
        wanted = self._wanted
        topic_id = "" if wanted.topic_id == ZERO_UUID else uuid_to_text(wanted.topic_id)
        self._on_lost(LostRange(wanted.topic, wanted.partition, first, end, cause, topic_id=topic_id))
        self._position = end
        self._deadline = self._cluster.deadline()
