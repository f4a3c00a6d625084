"""Feed M, the metadata log: each change of the cluster, exactly, a few milliseconds after its decision.

The active controller answers Fetch and FetchSnapshot of `__cluster_metadata` to any reader (replica id -1) whose
principal has CLUSTER_ACTION. It answers up to the end of its log: what lies behind the high watermark is not decided
yet, and is not applied. A controller that is not active names the one that is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from barnabas.common.errors import DecodeError, ErrorCode, RecordsRejected
from barnabas.common.types import METADATA_TOPIC, METADATA_TOPIC_ID
from barnabas.monitor.broker_connection import Address, BrokerConnection, NoAnswer, Security
from barnabas.monitor.delta import Delta, Source
from barnabas.monitor.log_records import LogRecords, decode_record
from barnabas.monitor.look_feed import LookFeed
from barnabas.monitor.table import ClusterTable
from barnabas.protocol.message import Message
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from barnabas.records.batch import decode_batch, iter_headers

_FETCH_BYTES_MAX: Final = 1024 * 1024
_WAIT_MS: Final = 1_000
_PAUSE_S: Final = 0.25
#: The pause while the log has records that are not decided yet.
_UNDECIDED_PAUSE_S: Final = 0.005
_MOVED: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH}
)
#: Answers of nodes that have no metadata log: newer brokers look for the id of the topic.
_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_NO_LOG: Final = "it has no metadata log: it is not a controller, or the cluster is in ZooKeeper mode"


class LogRefused(Exception):
    """Signals that the controller does not let this principal read the metadata log."""


class LogFeed:
    """Follows the metadata log of the controllers. `problem` says why the log cannot be read; None while it is read."""

    def __init__(
        self,
        table: ClusterTable,
        controllers: Sequence[Address],
        security: Security,
        look: LookFeed,
        clock_ms: Callable[[], int],
        *,
        topic: str | None = None,
        timeout_s: float = 3.0,
    ) -> None:
        self._table = table
        self._look = look
        self._clock_ms = clock_ms
        self._addresses = list(controllers)
        self._connections = {
            address: BrokerConnection(address, security, client_id="barnabas-monitor", timeout_s=timeout_s)
            for address in controllers
        }
        self._records = LogRecords(table, topic)
        self._place = 0
        self._offset = 0
        self._offset_epoch = 0
        self._leader_epoch = 0
        self.problem: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether the table contains everything that the log contains, so that new records are applied as they are
        written.
        """
        return self._records.is_live and self.problem is None

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    async def run(self) -> None:
        """Follows the log until it is cancelled."""
        try:
            while True:
                address = self._addresses[self._place % len(self._addresses)]
                try:
                    is_read = await self._read(self._connections[address])
                except (NoAnswer, LogRefused, RecordsRejected, DecodeError) as error:
                    self._fail(f"{address[0]}:{address[1]}: {error}", restart=not isinstance(error, NoAnswer))
                    is_read = False
                if not is_read:
                    self._place += 1
                    await asyncio.sleep(_PAUSE_S)
        finally:
            self.close()

    def _fail(self, problem: str, *, restart: bool) -> None:
        self.problem = problem
        self._look.note_exact(Source.METADATA_LOG, False)
        if restart:
            self._restart()

    def _restart(self) -> None:
        self._offset = self._offset_epoch = 0
        self._records.reset()

    async def _read(self, connection: BrokerConnection) -> bool:
        """Reads once. Returns False if another controller has to be asked. Raises NoAnswer and what reading raises."""
        answer = await connection.call(self._request(), FetchResponse)
        if answer.error_code:
            raise LogRefused(_name(answer.error_code))
        row = next((row for topic in answer.responses for row in topic.partitions), None)
        if row is None:
            raise LogRefused("an empty response")
        if row.error_code in _MOVED:
            return self._follow(row)
        if row.error_code:
            raise LogRefused(_name(row.error_code))
        if row.current_leader is not None and row.current_leader.leader_id >= 0:
            self._table.apply(Delta(self._clock_ms(), Source.METADATA_LOG, controller=row.current_leader.leader_id))
        if row.snapshot_id is not None and row.snapshot_id.end_offset >= 0:
            await self._load(connection, row.snapshot_id.end_offset, row.snapshot_id.epoch)
        elif row.diverging_epoch is not None and row.diverging_epoch.epoch >= 0:
            # The records that were read were not committed in the end.
            self._restart()
        else:
            await self._take(bytes(row.records or b""), row.high_watermark)
        self.problem = None
        self._look.note_exact(Source.METADATA_LOG, self._records.is_live)
        return True

    def _follow(self, row: FetchResponse.PartitionData) -> bool:
        """Takes the leader epoch that a controller names. Returns whether it is itself the leader."""
        leader = row.current_leader
        if leader is None or leader.leader_epoch < 0:
            return False
        self._leader_epoch = leader.leader_epoch
        return row.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _request(self) -> FetchRequest:
        partition = FetchRequest.FetchPartition(
            partition=0,
            current_leader_epoch=self._leader_epoch,
            fetch_offset=self._offset,
            last_fetched_epoch=self._offset_epoch,
            partition_max_bytes=_FETCH_BYTES_MAX,
        )
        topic = FetchRequest.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
        return FetchRequest(max_wait_ms=_WAIT_MS, min_bytes=1, max_bytes=_FETCH_BYTES_MAX, topics=[topic])

    async def _take(self, data: bytes, high_watermark: int) -> None:
        before = self._offset
        for position, header in iter_headers(data):
            if header.next_offset <= self._offset:
                continue
            if header.next_offset > high_watermark:
                break
            if not header.is_control:
                records = _decoded(record.value for record in decode_batch(data, position))
                self._records.apply(records, header.max_timestamp)
                if self._records.is_about_brokers:
                    self._look.ask_brokers()
            self._offset, self._offset_epoch = header.next_offset, header.partition_leader_epoch
        if not self._records.is_live and self._offset >= high_watermark:
            self._records.go_live(self._clock_ms())
        if data and self._offset == before:
            await asyncio.sleep(_UNDECIDED_PAUSE_S)

    async def _load(self, connection: BrokerConnection, end_offset: int, epoch: int) -> None:
        """Reads a snapshot, and continues after the snapshot's end."""
        data = bytearray()
        while True:
            answer = await connection.call(self._snapshot_request(end_offset, epoch, len(data)), FetchSnapshotResponse)
            row = next((row for topic in answer.topics for row in topic.partitions), None)
            if answer.error_code or row is None or row.error_code:
                raise LogRefused(_name(answer.error_code or (0 if row is None else row.error_code)))
            piece = bytes(row.unaligned_records or b"")
            data += piece
            if len(data) >= row.size or not piece:
                break
        records: list[Message] = []
        for position, header in iter_headers(bytes(data)):
            if not header.is_control:
                records += _decoded(record.value for record in decode_batch(bytes(data), position))
        self._records.reset()
        self._records.apply(records, self._clock_ms())
        self._offset, self._offset_epoch = end_offset, epoch

    def _snapshot_request(self, end_offset: int, epoch: int, position: int) -> FetchSnapshotRequest:
        snapshot = FetchSnapshotRequest.SnapshotId(end_offset=end_offset, epoch=epoch)
        partition = FetchSnapshotRequest.PartitionSnapshot(
            partition=0, current_leader_epoch=self._leader_epoch, snapshot_id=snapshot, position=position
        )
        topic = FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
        return FetchSnapshotRequest(max_bytes=_FETCH_BYTES_MAX, topics=[topic])


def _decoded(values: Iterable[bytes | None]) -> list[Message]:
    found = (decode_record(value) for value in values if value)
    return [record for record in found if record is not None]


def _name(code: int) -> str:
    try:
        name = ErrorCode(code).name
    except ValueError:
        return f"error {code}"
    return f"{_NO_LOG} ({name})" if code in _UNKNOWN else name
