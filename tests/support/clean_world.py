"""A compacted log with its cleaner on a host in memory. The clock moves only when a test moves it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tests.support.batches import NOW_MS
from tests.support.log_world import PARTITION, LogWorld

from barnabas.common.config import BrokerConfig
from barnabas.common.host import Disk
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.records.batch import Record, decode_batch, encode_batch, encode_end_txn_marker, read_header
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.host import EPOCH_WALL_MS, MemoryHost, VirtualTime
from barnabas.storage.compaction.cleanable import Cleanable
from barnabas.storage.compaction.cleaner import LogCleaner
from barnabas.storage.log import Log, Origin
from barnabas.storage.log_events import LogEvents

BACKOFF_MS = 1000
#: A configuration with which every record that can be compacted is compacted immediately.
EAGER = LogConfig(
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.0,
    segment_bytes=400,
    index_interval_bytes=100,
    delete_retention_ms=60_000,
)

Pair = tuple[bytes | None, bytes | None]


def broker_config(**properties: str) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "log.cleaner.backoff.ms": str(BACKOFF_MS),
            **{key.replace("_", "."): value for key, value in properties.items()},
        }
    )


class _Cleaned(LogEvents[Log]):
    """Log events that notify the cleaner of truncations and keep deleted files."""

    def __init__(self, disk: Disk, cleaner: LogCleaner) -> None:
        super().__init__(disk)
        self._cleaner = cleaner

    def on_segments_deleted(self, log: Log, files: list[str]) -> None:
        """Keeps the files."""

    def on_truncated(self, log: Log) -> None:
        self._cleaner.on_truncated(log)


class CleanWorld(LogWorld):
    """A log with a cleaner. `failed` has the directories in which the cleaner stopped, with the errors."""

    def __init__(self, config: LogConfig = EAGER, disk: MemoryDisk | None = None, **properties: str) -> None:
        self.host = MemoryHost(time=VirtualTime(NOW_MS - EPOCH_WALL_MS), disk=disk)
        super().__init__(config, self.host.disk)
        self.properties = properties
        self.high_watermark: int | None = None
        self.start()

    def start(self) -> None:
        """Creates a cleaner, as the start of a broker does."""
        self.failed: list[tuple[str, BaseException]] = []
        self.offline: set[str] = set()
        self.logs: dict[TopicPartition, Log] = {PARTITION: self.log}
        self.cleaner = LogCleaner(
            self.host,
            broker_config(**self.properties),
            self.logs,
            self.offline,
            lambda root, error: self.failed.append((root, error)),
        )
        self.cleaner.state.load(self.root)
        self.log.signals.connect(_Cleaned(self.disk, self.cleaner))
        self.cleaner.start(self._high_watermark_of)

    def _high_watermark_of(self, topic_partition: TopicPartition) -> int | None:
        log = self.logs.get(topic_partition)
        return log.log_end_offset if log is not None and self.high_watermark is None else self.high_watermark

    def configure(self, **settings: Any) -> None:
        self.config = self.log.config = replace(self.log.config, **settings)

    def pass_time(self, duration_ms: int) -> None:
        self.host.time.run_for(duration_ms)
        self.wall_ms = self.host.clock.wall_ms()

    def clean(self) -> int:
        """Lets the cleaner check for work and do all that it finds. Returns the number of passes."""
        before = self.cleaner.passes
        self.pass_time(3 * BACKOFF_MS)
        return self.cleaner.passes - before

    def put(self, *pairs: Pair, timestamp: int | None = None, **options: Any) -> int:
        """Appends one batch and returns its first offset."""
        base = self.wall_ms if timestamp is None else timestamp
        records = [Record(0, base + i, key, value) for i, (key, value) in enumerate(pairs)]
        return self.append_batch(encode_batch(records, **options)).first_offset

    def put_each(self, pairs: Iterable[Pair], **options: Any) -> None:
        for pair in pairs:
            self.put(pair, **options)

    def end_transaction(self, producer_id: int, epoch: int = 0, *, commit: bool) -> None:
        marker = encode_end_txn_marker(
            commit=commit, coordinator_epoch=0, timestamp=self.wall_ms, producer_id=producer_id, producer_epoch=epoch
        )
        self.append_batch(marker, origin=Origin.COORDINATOR)

    def roll(self) -> None:
        """Rolls the log: the active segment is empty, and all segments before it can be compacted."""
        self.log.roll()

    def pairs(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Returns (offset, key, value) of what a consumer would read, including markers."""
        return [(record.offset, record.key, record.value) for record in self.records()]

    def table(self) -> dict[bytes, bytes]:
        """Returns the last value of each key that is not deleted, as a reader of the log collects them."""
        found: dict[bytes, bytes] = {}
        for _, view in self.log.batches(self.log.log_start_offset, 1000):
            found = _apply(found, view)
        return found


def _apply(table: dict[bytes, bytes], view: memoryview) -> dict[bytes, bytes]:
    if not read_header(view).is_control:
        for record in decode_batch(view):
            if record.key is not None and record.value is not None:
                table[record.key] = record.value
            elif record.key is not None:
                table.pop(record.key, None)
    return table


def leftovers(disk: Disk, directory: str) -> list[str]:
    return [name for name in disk.list_dir(directory) if name.endswith((".cleaned", ".swap"))]


def filthiest(cleaner: LogCleaner) -> tuple[Log, Cleanable] | None:
    """Returns the log that most needs a pass, or None."""
    for _ in cleaner.choice.search():
        pass
    return cleaner.choice.taken()
