"""The metadata log on disk: one partition's log with snapshots beside its segments.

Invariants
- The log starts at or before the end of the latest snapshot, and ends at or after it: snapshot and log leave no gap.
- Old segments go only when a snapshot covers them, by `metadata.max.retention.bytes` and `.ms` (KIP-630), and never the
  latest snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.common.config import BrokerConfig
from barnabas.common.host import Host
from barnabas.common.log_config import LogConfig
from barnabas.common.types import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from barnabas.raft.snapshots import SnapshotFiles, SnapshotId
from barnabas.records.batch import BatchHeader
from barnabas.storage.batch_file import Descriptors
from barnabas.storage.checkpoints import PARTITION_METADATA, dir_name, encode_partition_metadata, write_atomically
from barnabas.storage.log import Log, Origin
from barnabas.storage.recovery import LogServices, Opening, open_log

PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
#: No batch of the metadata log comes near this.
_MAX_MESSAGE_BYTES: Final = (1 << 31) - 1


def metadata_log_directory(log_dir: str) -> str:
    return f"{log_dir}/{dir_name(PARTITION)}"


class MetadataLog:
    def __init__(self, host: Host, config: BrokerConfig) -> None:
        self._host = host
        self._retention_bytes = config.int_of("metadata.max.retention.bytes")
        self._retention_ms = config.int_of("metadata.max.retention.ms")
        self.directory = metadata_log_directory(config.metadata_log_dir)
        disk = host.disk
        disk.make_dirs(self.directory)
        identity = f"{self.directory}/{PARTITION_METADATA}"
        if not disk.exists(identity):
            write_atomically(disk, identity, encode_partition_metadata(METADATA_TOPIC_ID))
        # As after a crash, always: what this voter said it has is read again from end to end before it speaks.
        oldest = next(iter(SnapshotFiles(disk, self.directory).list()), None)
        self._log: Log = open_log(
            LogServices(disk=disk, wall_ms=host.clock.wall_ms, pick_jitter=lambda bound: 0, descriptors=Descriptors()),
            Opening(
                directory=self.directory,
                topic_partition=PARTITION,
                topic_id=METADATA_TOPIC_ID,
                config=_log_config(config),
                clean=False,
                recovery_point=0,
                log_start_offset=0 if oldest is None else oldest.end_offset,
            ),
        )

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def latest_epoch(self) -> int:
        """Of the last batch; 0 in an empty log."""
        return max(self._log.epochs.latest_epoch, 0)

    def append(self, batch: bytearray, epoch: int) -> None:
        """A batch that has its offsets already. Not durable before `flush`."""
        end_offset = self._log.log_end_offset
        info = self._log.append_as_leader(batch, epoch, wall_ms=self._host.clock.wall_ms(), origin=Origin.RAFT)
        assert info.first_offset == end_offset, "nobody else appends to the metadata log"

    def truncate_to(self, end_offset: int) -> None:
        """Take back what was appended and not flushed."""
        self._log.truncate_to(end_offset)

    def flush(self) -> None:
        self._log.flush()

    def batches(self, offset: int, slice_bytes: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """From the batch with `offset` to the end."""
        return self._log.batches(max(offset, self.start_offset), slice_bytes)

    def start_after_snapshot(self, snapshot_id: SnapshotId) -> None:
        """What the snapshot covers may be missing from the log, because it was never there or was lost: begin there."""
        if self.end_offset < snapshot_id.end_offset:
            self._log.truncate_fully_and_start_at(snapshot_id.end_offset)
            self._log.assign_epoch(snapshot_id.epoch, snapshot_id.end_offset)

    def clean(self, files: SnapshotFiles, wall_ms: int) -> None:
        """Remove the oldest snapshots, and the log before what is left, until the retention settings are met."""
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
