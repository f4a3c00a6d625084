"""The metadata log on disk: the log of one partition, with snapshots in the same directory.

Invariants
- The log starts at or before the end of the latest snapshot, and ends at or after it: there is no gap between them.
- Only records before `flushed_offset` are certain to survive a crash, and a voter reports only those as its own. The
  log checkpoint (`raft.log_checkpoint`) records them before any other node learns of them.
- Old segments are deleted only if a snapshot covers them, by `metadata.max.retention.bytes` and `.ms` (KIP-630), and
  the latest snapshot never is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import StorageExhausted
from barnabas.common.host import Buffer, Disk, Host
from barnabas.common.log_config import LogConfig
from barnabas.common.types import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from barnabas.raft.log_checkpoint import LogCheckpointWriter
from barnabas.raft.snapshots import SnapshotFiles, SnapshotId
from barnabas.records.batch import BatchHeader, iter_headers
from barnabas.storage.batch_file import Descriptors
from barnabas.storage.checkpoints import dir_name
from barnabas.storage.health import WriteHealth
from barnabas.storage.log import Log, Origin
from barnabas.storage.log_events import LogEvents
from barnabas.storage.recovery.recovery import Cut, LogServices, Opening, open_log

PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
#: A limit that no batch of the metadata log reaches.
_MAX_MESSAGE_BYTES: Final = (1 << 31) - 1
_HEADER_SLICE: Final = 4096

Follows = Callable[[BatchHeader, memoryview], bool]
OnCut = Callable[[Cut], None]


def metadata_log_directory(log_dir: str) -> str:
    return f"{log_dir}/{dir_name(PARTITION)}"


class _Rolls(LogEvents[Log]):
    """Syncs a full segment before the next one is written: a power failure then leaves no gap between segments."""

    def __init__(self, disk: Disk, keeper: LogCheckpointWriter) -> None:
        super().__init__(disk)
        self._keeper = keeper

    def on_rolled(self, log: Log) -> None:
        log.flush()
        self._keeper.sync()


class MetadataLog:
    """The open metadata log; opening it reads it from end to end."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        keeper: LogCheckpointWriter,
        follows: Follows,
        on_cut: OnCut,
        health: WriteHealth | None = None,
    ) -> None:
        """Opens the log. `raft.evidence` explains `follows` and `on_cut`; the latter raises FatalFault."""
        self._host = host
        self._retention_bytes = config.int_of("metadata.max.retention.bytes")
        self._retention_ms = config.int_of("metadata.max.retention.ms")
        self.directory = metadata_log_directory(config.metadata_log_dir)
        self.keeper = keeper
        # The log is always read as after a crash, from end to end: it contains the records that this voter has
        # acknowledged.
        self._log: Log = open_log(
            LogServices(
                host.disk,
                host.clock.wall_ms,
                lambda bound: 0,
                Descriptors(),
                now_s=host.clock.now_s,
                health=health,
            ),
            Opening(
                directory=self.directory,
                topic_partition=PARTITION,
                topic_id=METADATA_TOPIC_ID,
                config=_log_config(config),
                clean=False,
                recovery_point=0,
                contiguous=True,
                follows=follows,
                on_cut=on_cut,
            ),
        )
        self._log.signals.connect(_Rolls(host.disk, keeper))
        self._truncations = 0
        self._health = health
        self.flushed_offset = self.start_offset

    @property
    def log(self) -> Log:
        """The underlying partition log, for metrics."""
        return self._log

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def first_base(self) -> int:
        """The base offset of the first segment, possibly before `start_offset`."""
        return self._log.segments.bases[0]

    def start_at(self, offset: int) -> None:
        """Moves the log start to `offset`, if there are records beyond it: a snapshot covers those before."""
        if self.start_offset < offset <= self.end_offset:
            self._log.delete_records_before(offset)
            self.flushed_offset = max(self.flushed_offset, offset)

    @property
    def end_of_file(self) -> str:
        """The path and size of the last segment, for error messages."""
        active = self._log.segments.active
        return f"{active.log_path}, byte {active.size_bytes}"

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def latest_epoch(self) -> int:
        """The epoch of the last batch, or of the snapshot that an empty log begins with; 0 if there is neither."""
        return max(self._log.epochs.latest_epoch, 0)

    @property
    def first_epoch(self) -> int:
        """The oldest epoch whose end is known; 0 in an empty log."""
        entries = self._log.epochs.entries
        return entries[0].epoch if entries else 0

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns (epoch, end offset) of the newest epoch in the log that is not above `epoch`.

        Returns the log's end for an epoch above all in the log, and its start for an epoch below all.
        """
        if epoch >= self.latest_epoch:
            return self.latest_epoch, self.end_offset
        return self._log.epochs.end_offset_for(epoch, self.end_offset)

    def append(self, batch: bytearray, epoch: int) -> None:
        """Appends a batch that already has its offsets. It is durable only after `flush`."""
        end_offset, wall_ms = self._log.log_end_offset, self._host.clock.wall_ms()
        with self._epoch_of_last_batch():
            info = self._log.append_as_leader(batch, epoch, wall_ms=wall_ms, origin=Origin.RAFT)
        assert info.first_offset == end_offset, "the metadata log has no other writer"

    def append_as_follower(self, batches: Buffer) -> None:
        """Appends whole batches from the leader. Raises RecordsRejected for a damaged one; those before it are kept."""
        with self._epoch_of_last_batch():
            self._log.append_as_follower(batches)

    @contextmanager
    def _epoch_of_last_batch(self) -> Iterator[None]:
        """Forgets the epoch of a batch for which there was no space. Otherwise the checkpoint would claim records of
        that epoch, and after a restart this voter would wait for records that it never had.
        """
        epochs = self._log.epochs
        before = epochs.latest_epoch
        try:
            yield
        except StorageExhausted:
            if epochs.latest_epoch != before:
                epochs.truncate_from_end(self.end_offset)
                if epochs.latest_epoch < before:
                    # A log that is empty after a snapshot has the epoch of the snapshot.
                    epochs.assign(before, self.end_offset)
            raise

    def read(self, offset: int, max_bytes: int) -> Buffer:
        """Returns whole batches, beginning with the one that contains `offset`; at least one if there is one."""
        data = self._log.read(offset, max_bytes, up_to=self.end_offset).data
        end = 0
        for position, header in iter_headers(data):
            end = position + header.size_bytes
        return memoryview(data)[:end]

    def truncate(self, end_offset: int) -> None:
        """Truncates the records that another leader has replaced; the batch that contains `end_offset` is removed
        whole.
        """
        if end_offset < self.keeper.checkpoint.end:
            start = self._start_of_batch(end_offset)
            self.keeper.shorten(start, self._log.epochs.epoch_for_offset(start - 1) or 0)
        self._log.truncate_to(end_offset)
        if not self._log.epochs.entries:
            files = SnapshotFiles(self._host.disk, self.directory)
            first = next((known for known in files.list() if known.end_offset == self.end_offset), None)
            if first is not None and first.epoch > 0:
                # Only the snapshot that the log begins with is left.
                self._log.assign_epoch(first.epoch, self.end_offset)
        self._truncated()

    def _start_of_batch(self, offset: int) -> int:
        """Returns the base offset of the batch with `offset`; `offset` itself if there is none."""
        if not self.start_offset <= offset < self.end_offset:
            return offset
        return next((header.base_offset for header, _ in self._log.batches(offset, _HEADER_SLICE)), offset)

    def _truncated(self) -> None:
        self._truncations += 1
        self.flushed_offset = min(self.flushed_offset, self.end_offset)

    def flush(self) -> None:
        """Syncs everything, and returns when that is done."""
        self._log.flush()
        self._flushed(self.end_offset, self.latest_epoch)

    def _flushed(self, end_offset: int, epoch: int) -> None:
        self.keeper.flushed(end_offset, epoch)
        self.flushed_offset = end_offset

    def flush_in_background(self, done: Callable[[BaseException | None], None]) -> None:
        """Syncs all records appended so far, off the event loop; then calls `done` on it."""
        end_offset, epoch, truncations = self.end_offset, self.latest_epoch, self._truncations
        work, succeeded = self._log.sync_job(end_offset)

        def finished(_: object, error: BaseException | None) -> None:
            if error is None:
                succeeded()
                if truncations == self._truncations and end_offset > self.flushed_offset:
                    try:
                        self._flushed(end_offset, epoch)
                    except OSError as failed:
                        error = failed
            done(error)

        if self._health is None:
            self._host.blocking.run(work, finished)
        else:
            self._health.run(self.directory.rpartition("/")[0], work, finished)

    def batches(self, offset: int, slice_bytes: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yields the batches from the one with `offset` to the end."""
        return self._log.batches(max(offset, self.start_offset), slice_bytes)

    def start_after_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Makes an empty log begin after the snapshot, if the snapshot is ahead of the log.

        This log then never had the records that the snapshot covers, or lost them, or has uncommitted records of
        earlier leaders in their place.
        """
        if (self.latest_epoch, self.end_offset) < (snapshot_id.epoch, snapshot_id.end_offset):
            self.keeper.shorten(snapshot_id.end_offset, snapshot_id.epoch)
            self._log.truncate_fully_and_start_at(snapshot_id.end_offset)
            self._log.assign_epoch(snapshot_id.epoch, snapshot_id.end_offset)
            self._truncated()
            self._flushed(self.end_offset, snapshot_id.epoch)

    def clean(self, files: SnapshotFiles, wall_ms: int) -> None:
        """Deletes the oldest snapshots, and the log before the remaining ones, until the retention settings are met."""
        snapshots = files.list()
        while len(snapshots) > 1:
            oldest, following = snapshots[0], snapshots[1]
            size_bytes = self._log.size_bytes + sum(files.size(snapshot_id) for snapshot_id in snapshots)
            too_large = 0 <= self._retention_bytes < size_bytes
            too_old = 0 <= self._retention_ms < wall_ms - files.modified_ms(oldest)
            if not too_large and not too_old:
                return
            self._log.delete_records_before(following.end_offset)
            files.delete(oldest)
            snapshots.pop(0)

    def close(self) -> None:
        self._log.close(clean=True)
        # The whole log is synced by now, whether or not a callback waited for it.
        self.keeper.flushed(self.end_offset, self.latest_epoch)
        self.keeper.close()


def _log_config(config: BrokerConfig) -> LogConfig:
    return LogConfig(
        cleanup_policy=(),
        segment_bytes=config.int_or_none("internal.metadata.log.segment.bytes")
        or config.int_of("metadata.log.segment.bytes"),
        segment_ms=config.int_of("metadata.log.segment.ms"),
        max_message_bytes=_MAX_MESSAGE_BYTES,
        retention_bytes=-1,
        retention_ms=-1,
    )
