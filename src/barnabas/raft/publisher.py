"""Publishes an image for each committed batch; it is the listener through which this node follows the metadata.

What was committed before the node started is published as one image, when the node has caught up: no part should react
to past states. From then on each batch is published by itself.

It also determines when a snapshot is due: `metadata.log.max.record.bytes.between.snapshots` bytes of records or
`metadata.log.max.snapshot.interval.ms` after the last one, whichever comes first, and only if something has changed.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.config import BrokerConfig
from barnabas.common.host import Clock
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.metadata.store import MetadataLoader, MetadataStore
from barnabas.raft.commits import CommittedBatch
from barnabas.raft.snapshots import Snapshot, SnapshotId

#: Writes a snapshot of this image, and calls back when it is written or has failed.
WriteSnapshot = Callable[[MetadataImage, Callable[[], None]], None]


class MetadataPublisher:
    """The `raft.commits.CommitListener` that publishes to `store`."""

    def __init__(self, clock: Clock, config: BrokerConfig, store: MetadataStore, write_snapshot: WriteSnapshot) -> None:
        self._clock = clock
        self._store = store
        self._write_snapshot = write_snapshot
        self._loader = MetadataLoader()
        self._changes: list[tuple[MetadataDelta, MetadataImage]] = []
        self._caught_up = False
        self._max_bytes = config.int_of("metadata.log.max.record.bytes.between.snapshots")
        self._max_interval_ms = config.int_of("metadata.log.max.snapshot.interval.ms")
        self._bytes = 0
        self._snapshot_ms = clock.now_ms()
        self._writing = False

    def on_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        delta = MetadataDelta(EMPTY_IMAGE)
        for record, _ in snapshot.records:
            delta.replay(record)
        image = delta.apply(snapshot_id.end_offset - 1, snapshot_id.epoch, snapshot.last_contained_log_timestamp_ms)
        self._loader = MetadataLoader(image)
        self._bytes = 0
        self._caught_up = False
        # This node has fallen behind: what still waits is part of the snapshot, and would be published after it.
        changes, self._changes = self._changes, []
        for change in changes:
            self._store.on_catch_up_change(*change)

    def on_commit(self, batch: CommittedBatch) -> None:
        self._bytes += batch.size_bytes
        if batch.records:
            change = self._loader.load(batch.base_offset, batch.epoch, batch.timestamp_ms, batch.records)
        else:
            change = self._loader.skip(batch.last_offset, batch.epoch, batch.timestamp_ms)
        if change is None:
            return
        if self._caught_up:
            self._changes.append(change)
        else:
            self._store.on_catch_up_change(*change)

    def on_caught_up(self) -> None:
        self._store.in_transaction = self._loader.in_transaction
        if not self._caught_up:
            self._caught_up = True
            image = self._loader.image
            image.security.settle()
            self._store.publish(MetadataDelta.between(self._store.image, image), image)
        changes, self._changes = self._changes, []
        for delta, image in changes:
            self._store.publish(delta, image)
        self._maybe_snapshot()

    def _maybe_snapshot(self) -> None:
        if self._writing or not self._bytes or self._loader.in_transaction:
            return
        late = self._max_interval_ms > 0 and self._clock.now_ms() - self._snapshot_ms >= self._max_interval_ms
        if self._bytes < self._max_bytes and not late:
            return
        self._writing = True
        self._bytes = 0
        self._snapshot_ms = self._clock.now_ms()
        self._write_snapshot(self._loader.image, self._finished)

    def _finished(self) -> None:
        self._writing = False
