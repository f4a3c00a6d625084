"""The files of a partition's directory, decoded independently of the code of the broker that wrote them.

Nothing here is fast or complete: formats are unpacked field by field, as Kafka's documentation lists them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.common.host import Disk
from barnabas.records.checksum import crc32c

_BATCH = struct.Struct(">qiibIhiqqqhii")
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_OFFSET_ENTRY, _TIME_ENTRY, _ABORTED = struct.Struct(">ii"), struct.Struct(">qi"), struct.Struct(">hqqqq")
_PRODUCER = struct.Struct(">qhiqiqiq")
#: A snapshot: version 2, checksum 4, count 4, producers.
_CHECKSUM_END, _PRODUCERS_FROM = 6, 10


class Batch(NamedTuple):
    """A batch of a `.log` file. `marker`: None, or (whether it commits, coordinator epoch, timestamp)."""

    base_offset: int
    last_offset: int
    position: int
    size: int
    epoch: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    marker: tuple[bool, int, int] | None


class SavedProducer(NamedTuple):
    """A producer in a `.snapshot` file."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


class SegmentFiles(NamedTuple):
    """The decoded files of one segment. `log_bytes` includes what is not a whole batch at the end of the `.log`."""

    base_offset: int
    path: str
    batches: list[Batch]
    log_bytes: int
    #: (offset, position).
    offsets: list[tuple[int, int]]
    #: (timestamp, offset).
    times: list[tuple[int, int]]
    #: (producer id, first offset, offset of the marker, LSO).
    aborted: list[tuple[int, int, int, int]]

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.base_offset

    @property
    def whole_bytes(self) -> int:
        return self.batches[-1].position + self.batches[-1].size if self.batches else 0


class LogFiles(NamedTuple):
    """The decoded directory of one log."""

    directory: str
    segments: list[SegmentFiles]
    snapshots: dict[int, list[SavedProducer]]
    #: (epoch, first offset).
    epochs: list[tuple[int, int]]

    def batches(self) -> Iterator[Batch]:
        for segment in self.segments:
            yield from segment.batches


def read_log(disk: Disk, directory: str) -> LogFiles:
    """Decodes the files of a log; the caller exempts the reads from time and faults (`without_effects`)."""
    names = set(disk.list_dir(directory))
    segments, snapshots = [], {}
    for name in sorted(names):
        stem, _, suffix = name.partition(".")
        if suffix == "log":
            segments.append(_read_segment(disk, f"{directory}/{stem}", names))
        elif suffix == "snapshot":
            raw = disk.read(f"{directory}/{name}")
            # A power failure can damage a snapshot, which a start ignores.
            is_whole = len(raw) >= _PRODUCERS_FROM  # A power failure can leave an empty file.
            if is_whole and crc32c(raw[_CHECKSUM_END:]) == int.from_bytes(
                raw[_CHECKSUM_END - 4 : _CHECKSUM_END], "big"
            ):
                snapshots[int(stem)] = [
                    SavedProducer(*fields) for fields in _PRODUCER.iter_unpack(raw[_PRODUCERS_FROM:])
                ]
    epochs = []
    if "leader-epoch-checkpoint" in names:
        for line in disk.read(f"{directory}/leader-epoch-checkpoint").decode().split("\n")[2:]:
            if line:
                epoch, start = line.split()
                epochs.append((int(epoch), int(start)))
    return LogFiles(directory, segments, snapshots, epochs)


def _read_segment(disk: Disk, stem: str, names: set[str]) -> SegmentFiles:
    name = stem.rpartition("/")[2]
    base = int(name)
    data = disk.read(f"{stem}.log")

    def entries(suffix: str, entry: struct.Struct) -> list[tuple[int, ...]]:
        raw = disk.read(f"{stem}{suffix}") if name + suffix in names else b""
        return list(entry.iter_unpack(raw[: len(raw) - len(raw) % entry.size]))

    index = [(base + relative, position) for relative, position in entries(".index", _OFFSET_ENTRY)]
    times = [(timestamp, base + relative) for timestamp, relative in entries(".timeindex", _TIME_ENTRY)]
    aborted = [(producer, first, last, stable) for _, producer, first, last, stable in entries(".txnindex", _ABORTED)]
    return SegmentFiles(base, f"{stem}.log", read_batches(data), len(data), index, times, aborted)


def read_batches(data: bytes) -> list[Batch]:
    """Returns the whole batches at the beginning of the bytes."""
    found: list[Batch] = []
    position, end = 0, len(data)
    while position + _BATCH.size <= end:
        (
            base,
            length,
            epoch,
            magic,
            _,
            flags,
            delta,
            base_timestamp,
            timestamp,
            producer,
            producer_epoch,
            sequence,
            count,
        ) = _BATCH.unpack_from(data, position)
        if magic != 2 or length < _BATCH.size - 12 or position + 12 + length > end:
            break
        marker = None
        # Compaction keeps the last batch of a producer without its record.
        if flags & _CONTROL and producer >= 0 and count:
            marker = _marker(data, position + _BATCH.size, base_timestamp)
        fields = (base, base + delta, position, 12 + length, epoch, timestamp, producer, producer_epoch, sequence)
        found.append(Batch(*fields, bool(flags & _TRANSACTIONAL), marker))
        position += 12 + length
    return found


def _marker(data: bytes, position: int, base_timestamp: int) -> tuple[bool, int, int]:
    """Returns the contents of the one record of a control batch: key (version, type), value (version, epoch)."""
    _, position = _varint(data, position)
    delta, position = _varint(data, position + 1)
    _, position = _varint(data, position)
    key_bytes, position = _varint(data, position)
    _, kind = struct.unpack_from(">hh", data, position)
    _, position = _varint(data, position + key_bytes)
    _, coordinator_epoch = struct.unpack_from(">hi", data, position)
    return kind == 1, coordinator_epoch, base_timestamp + delta


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns a zigzag number and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), position


def read_offsets(disk: Disk, path: str) -> dict[str, int]:
    """Returns the entries of an offset checkpoint by the name of the partition's directory."""
    if not disk.exists(path):
        return {}
    entries = (line.split() for line in disk.read(path).decode().split("\n")[2:] if line)
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in entries}
