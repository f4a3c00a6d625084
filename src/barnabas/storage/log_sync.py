"""The recovery point of one log, and the syncs that advance it.

Invariant: everything below the recovery point is on disk, including the leader epochs of its records. The indexes of
the active segment need not be: a startup after a kill checks them and rebuilds them if needed.

An append syncs immediately if `flush.messages` requires it. For `flush.ms`, `storage.upkeep` runs the sync in the
background.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.errors import is_exhausted
from barnabas.common.host import Disk
from barnabas.storage.epochs import LeaderEpochCache
from barnabas.storage.producer_replay import take_snapshot
from barnabas.storage.producers import ProducerStateManager
from barnabas.storage.segments import LogServices, Segments

#: A flush takes a producer snapshot when the log has grown this much since the last one; an eighth of a short segment.
_SNAPSHOT_BYTES = 1 << 20


class LogSync:
    """Syncs one log. All methods but `unsynced_bytes` belong to `Log`, which passes its LEO and raises the errors."""

    __slots__ = (
        "_epochs",
        "_producers",
        "_segments",
        "_services",
        "_snapshot_position",
        "_synced_place",
        "_truncations",
        "last_flushed_ms",
        "recovery_point",
    )

    def __init__(
        self,
        services: LogServices,
        segments: Segments,
        epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        recovery_point: int,
    ) -> None:
        self._services = services
        self._segments = segments
        self._epochs = epochs
        self._producers = producers
        self.recovery_point = recovery_point
        self.last_flushed_ms = services.wall_ms()
        self._truncations = 0
        #: The active segment and its size at the last sync of the whole log.
        self._synced_place = (segments.active, 0)
        #: The position in the active segment of the newest producer snapshot.
        self._snapshot_position = 0

    def unsynced_bytes(self, log_end_offset: int) -> int:
        """Returns the approximate number of bytes that a startup after a kill would have to scan."""
        active, (segment, size_bytes) = self._segments.active, self._synced_place
        if self.recovery_point >= log_end_offset:
            return 0
        behind = sum(s.size_bytes for s in self._segments.from_offset(self.recovery_point) if s is not active)
        return behind + active.size_bytes - (size_bytes if segment is active else 0)

    def flush(self, log_end_offset: int, segment_bytes: int) -> None:
        """Syncs everything, and moves the recovery point to the LEO. Raises OSError."""
        if log_end_offset <= self.recovery_point:
            return
        segments = self._segments
        unsynced = segments.from_offset(self.recovery_point)
        for segment in unsynced:
            segment.flush(with_indexes=segment is not segments.active)
        if unsynced[-1].base_offset >= self.recovery_point:
            self._services.disk.sync_dir(segments.directory)
        if not self._persist_epochs(log_end_offset):
            return
        self._take_snapshot(segment_bytes)
        assert log_end_offset > self.recovery_point, "a sync advances the recovery point"
        self.recovery_point = log_end_offset
        self._synced_place = (segments.active, segments.active.size_bytes)
        self.last_flushed_ms = self._services.wall_ms()

    def job(
        self, end_offset: int, log_end_offset: int, segment_bytes: int
    ) -> tuple[Callable[[], None], Callable[[], None]]:
        """Prepares a sync of the log below `end_offset` in the background. Returns the work, which touches only files,
        and a callback for the loop after it succeeded. Raises OSError."""
        assert end_offset <= log_end_offset, "only records that exist are synced"
        segments, truncations = self._segments, self._truncations
        disk, directory, active = self._services.disk, segments.directory, segments.active
        place = (active, active.size_bytes if end_offset == log_end_offset else 0)
        paths: list[str] = []
        for segment in segments.from_offset(self.recovery_point):
            if segment.base_offset < end_offset:
                paths += segment.write_out(with_indexes=segment is not active)
        if end_offset == log_end_offset:
            self._take_snapshot(segment_bytes)
        are_epochs_saved = self._persist_epochs(end_offset)

        def succeeded() -> None:
            if truncations != self._truncations or directory != segments.directory:
                return  # the files were not found under their old name
            if are_epochs_saved and end_offset > self.recovery_point:
                self.recovery_point = end_offset
                self._synced_place = place
                self.last_flushed_ms = self._services.wall_ms()

        return lambda: _sync_files(disk, directory, paths), succeeded

    def rolled(self, former_base_offset: int) -> None:
        """Records that there is a new active segment. The indexes of the former one were never synced, so the recovery
        point cannot pass the segment's beginning before they are synced.
        """
        self._snapshot_position = 0
        self.recovery_point = min(self.recovery_point, former_base_offset)

    def truncating(self) -> None:
        """Records that log records are about to be removed: syncs that began before do not advance the recovery
        point.
        """
        self._truncations += 1

    def snapshots_deleted(self) -> None:
        """Records that the active segment has no producer snapshot any more."""
        self._snapshot_position = 0

    def _take_snapshot(self, segment_bytes: int) -> None:
        """Takes a producer snapshot if the log has grown enough. After a kill, only a little synced data is then
        replayed to rebuild the producer state. This is only an optimisation. Raises OSError."""
        active = self._segments.active
        if active.size_bytes - self._snapshot_position >= min(_SNAPSHOT_BYTES, segment_bytes // 8):
            snapshots = self._producers.snapshots
            last = snapshots.latest
            if take_snapshot(self._producers) and last is not None and last > active.base_offset:
                snapshots.delete(last)
            self._snapshot_position = active.size_bytes

    def _persist_epochs(self, end_offset: int) -> bool:
        """Saves the epochs, which must happen before the recovery point advances to `end_offset`. Returns False if the
        disk is full. Raises OSError."""
        try:
            self._epochs.persist(end_offset)
        except OSError as error:
            if not is_exhausted(error):
                raise
            return False
        return True


def _sync_files(disk: Disk, directory: str, paths: list[str]) -> None:
    for path in paths:
        try:
            file = disk.open(path, read_only=True)
        except FileNotFoundError:
            continue  # deleted or renamed since
        try:
            file.sync()
        finally:
            file.close()
    if disk.exists(directory):
        disk.sync_dir(directory)
