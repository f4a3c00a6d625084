"""Data directories of a given shape, created once and given to both brokers.

A broker creates a template's topics; its segments are then written by the storage package, the first partition batch by
batch, the others as copies of it. Each start gets a clone: the `.log` files of the template are hard links, because no
process writes to them (nothing is produced, and every batch is intact); all other files are copies, because a recovery
writes indexes, snapshots and checkpoints again.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.records.batch import Record, encode_batch
from barnabas.server.disk import OsDisk
from barnabas.storage import checkpoints
from barnabas.storage.batch_file import Descriptors
from barnabas.storage.log import Log
from barnabas.storage.recovery.recovery import Opening, open_log
from barnabas.storage.segments import LogServices
from targets import TARGETS

RECORDS_PER_BATCH = 16
_BATCH_OVERHEAD_BYTES = 61
_CHUNK_BYTES = 8 << 20


def open_partition(directory: Path, topic: str, partition: int = 0, config: LogConfig | None = None) -> Log:
    """Opens the log of a partition below a data directory, as after a clean shutdown."""
    services = LogServices(OsDisk(), _wall_ms, lambda bound: 0, Descriptors())
    topic_partition = TopicPartition(topic, partition)
    path = directory / checkpoints.dir_name(topic_partition)
    return open_log(services, Opening(str(path), topic_partition, config or LogConfig(), clean=True))


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def new_batch(size_bytes: int, seed: int = 1) -> bytearray:
    """Returns a batch of about this size, with 16 records that do not compress."""
    chance = random.Random(seed)
    value_bytes = (size_bytes - _BATCH_OVERHEAD_BYTES) // RECORDS_PER_BATCH - 10
    now_ms = _wall_ms()
    return encode_batch([Record(0, now_ms, None, chance.randbytes(value_bytes), []) for _ in range(RECORDS_PER_BATCH)])


def append(log: Log, batch: bytearray, size_bytes: int) -> None:
    """Appends copies of the batch until the log has grown by at least `size_bytes`."""
    view, wall_ms = memoryview(batch), _wall_ms()
    for _ in range(-(-size_bytes // len(batch))):
        view[:8] = bytes(8)
        log.append_as_leader(view, 0, wall_ms=wall_ms)


class Template:
    """A data directory that two brokers use in turns. `topics` are names with partition counts."""

    def __init__(self, directory: Path, properties: Mapping[str, str], topics: Mapping[str, int]) -> None:
        self._target = TARGETS["barnabas"](directory, properties)
        self.data_dir = self._target.data_dir
        self.topics = dict(topics)
        #: The end offset, the same in every partition.
        self.end_offset = 0
        self.size_bytes = 0

    def create(self) -> None:
        """Creates the topics, empty, followed by a clean shutdown."""
        self._target.prepare()
        self._target.launch()
        try:
            self._target.wait()
            admin = AdminClient({"bootstrap.servers": self._target.bootstrap, "log_level": 2})
            for name, partitions in self.topics.items():
                for future in admin.create_topics([NewTopic(name, partitions, 1)], operation_timeout=60).values():
                    future.result(120)
        finally:
            self._target.end()
        if not (self.data_dir / checkpoints.CLEAN_SHUTDOWN_FILE).exists():
            raise RuntimeError(
                f"the broker that created the topics did not shut down cleanly:\n{self._target.log_tail()}"
            )

    def fill(self, size_bytes: int, batch_bytes: int, *, closed: bool) -> None:
        """Writes about `size_bytes` into every partition. Unless `closed`, the indexes are left as a kill after a flush
        leaves them.
        """
        partitions = list(self.partitions())
        first = partitions[0]
        log = open_partition(self.data_dir, first.topic, first.partition)
        append(log, new_batch(batch_bytes), size_bytes)
        log.flush()
        if closed:
            log.close(clean=True)
        else:
            log.segments.release()
        self.end_offset = log.log_end_offset
        self.size_bytes = log.size_bytes * len(partitions)
        source = self.data_dir / checkpoints.dir_name(first)
        files = [path for path in sorted(source.iterdir()) if path.name != checkpoints.PARTITION_METADATA]
        for partition in partitions[1:]:
            target = self.data_dir / checkpoints.dir_name(partition)
            for path in target.iterdir():
                if path.name != checkpoints.PARTITION_METADATA:
                    path.unlink()
            for path in files:
                shutil.copyfile(path, target / path.name)
        self._checkpoint(self.data_dir, checkpoints.RECOVERY_POINT_CHECKPOINT)
        self._checkpoint(self.data_dir, checkpoints.HIGH_WATERMARK_CHECKPOINT)
        os.sync()

    def partitions(self) -> Iterator[TopicPartition]:
        for name, count in self.topics.items():
            for partition in range(count):
                yield TopicPartition(name, partition)

    def _checkpoint(self, data_dir: Path, name: str) -> None:
        offsets = dict.fromkeys(self.partitions(), self.end_offset)
        checkpoints.write_offsets(OsDisk(), str(data_dir / name), offsets)

    def clone(self, data_dir: Path) -> None:
        """Creates a separate directory for one start."""
        own = {checkpoints.dir_name(each) for each in self.partitions()}
        data_dir.mkdir(parents=True)
        for entry in os.scandir(self.data_dir):
            target = data_dir / entry.name
            if not entry.is_dir():
                shutil.copyfile(entry.path, target)
                continue
            target.mkdir()
            for file in os.scandir(entry.path):
                if entry.name in own and file.name.endswith(checkpoints.LOG_SUFFIX):
                    os.link(file.path, target / file.name)
                else:
                    shutil.copyfile(file.path, target / file.name)

    def warm(self) -> None:
        """Reads every segment into the page cache."""
        buffer = bytearray(_CHUNK_BYTES)
        for partition in self.partitions():
            for path in (self.data_dir / checkpoints.dir_name(partition)).glob("*" + checkpoints.LOG_SUFFIX):
                with path.open("rb", buffering=0) as stream:
                    while stream.readinto(buffer):
                        pass

    def remove(self) -> None:
        shutil.rmtree(self.data_dir.parent, ignore_errors=True)


def make_unclean(data_dir: Path, *, recovery_point: bool) -> None:
    """Changes a directory to the state that a kill leaves: no clean shutdown file, and no recovery point unless
    requested.
    """
    (data_dir / checkpoints.CLEAN_SHUTDOWN_FILE).unlink()
    if not recovery_point:
        (data_dir / checkpoints.RECOVERY_POINT_CHECKPOINT).unlink()
