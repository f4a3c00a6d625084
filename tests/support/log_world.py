"""A log for tests: opened, written, stopped cleanly or killed, opened again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.batches import NOW_MS

from barnabas.common.host import Disk
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.records.batch import Record, decode_batch, encode_batch
from barnabas.simulation.disk import MemoryDisk
from barnabas.storage.batch_file import Descriptors
from barnabas.storage.log import AppendInfo, Log, Origin
from barnabas.storage.recovery.recovery import Opening, open_log
from barnabas.storage.recovery.segment_ends import Evidence
from barnabas.storage.segments import LogServices

PARTITION = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))

#: Limits so small that rare events are frequent.
TINY = LogConfig(segment_bytes=700, index_interval_bytes=100, segment_index_bytes=60, max_message_bytes=600)


class LogWorld:
    """A log in its directory. `log` is the open log; `wall_ms` is the time of the clock."""

    def __init__(
        self,
        config: LogConfig = TINY,
        disk: Disk | None = None,
        root: str = "/logs",
        pick_jitter: Callable[[int], int] = lambda bound: 0,
        *,
        clean: bool = True,
        recovery_point: int = 0,
    ) -> None:
        self._pick_jitter = pick_jitter
        self.disk: Disk = disk or MemoryDisk()
        self.disk.make_dirs(root)
        self.root = root
        self.directory = f"{root}/{PARTITION}"
        self.config = config
        self.wall_ms = NOW_MS
        self.descriptors = Descriptors(2)
        self.log = self.open(clean=clean, recovery_point=recovery_point)

    def open(
        self,
        *,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int | None = None,
        contiguous: bool = False,
        evidence: Evidence | None = None,
    ) -> Log:
        services = LogServices(self.disk, lambda: self.wall_ms, self._pick_jitter, self.descriptors)
        self.log = open_log(
            services,
            Opening(
                self.directory,
                PARTITION,
                self.config,
                TOPIC_ID,
                clean=clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                high_watermark=high_watermark,
                contiguous=contiguous,
                evidence=evidence,
            ),
        )
        return self.log

    def restart(self, high_watermark: int | None = None) -> Log:
        """Closes the log cleanly and opens it again."""
        log = self.log
        log.close(clean=True)
        return self.open(
            clean=True,
            recovery_point=log.log_end_offset,
            log_start_offset=log.log_start_offset,
            high_watermark=high_watermark,
        )

    def kill(self, high_watermark: int | None = None) -> Log:
        """Opens the log as after a kill: files and checkpoints are as they were written last."""
        log = self.log
        log.segments.release()
        return self.open(
            clean=False,
            recovery_point=log.recovery_point,
            log_start_offset=log.log_start_offset,
            high_watermark=high_watermark,
        )

    def append(self, *timestamps: int, epoch: int = 0, value: bytes = b"v", **options: Any) -> AppendInfo:
        """Appends one batch with a record for each timestamp."""
        return self.append_batch(encode_records(*timestamps, value=value, **options), epoch)

    def append_batch(self, batch: bytearray, epoch: int = 0, origin: Origin = Origin.CLIENT) -> AppendInfo:
        return self.log.append_as_leader(memoryview(batch), epoch, wall_ms=self.wall_ms, origin=origin)

    def records(self, log: Log | None = None, *, max_bytes: int = 1000) -> list[Record]:
        """Returns all records from the log start offset to the LEO."""
        log = log or self.log
        found: list[Record] = []
        for _, view in log.batches(log.log_start_offset, max_bytes):
            found += decode_batch(view)
        return [record for record in found if record.offset >= log.log_start_offset]

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def files(self, suffix: str = "") -> list[str]:
        return [name for name in self.disk.list_dir(self.directory) if name.endswith(suffix)]

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"


def encode_records(*timestamps: int, value: bytes = b"v", **options: Any) -> bytearray:
    records = [Record(0, timestamp, b"k", value + b"-%d" % i, []) for i, timestamp in enumerate(timestamps)]
    return encode_batch(records, **options)


def snapshot_of(disk: Disk, directory: str) -> dict[str, bytes]:
    """Returns the bytes of every file in a directory."""
    return {name: disk.read(f"{directory}/{name}") for name in disk.list_dir(directory)}
