"""The `.snapshot` files of a log: its producers before an offset.

    snapshot   version 2 (1) | crc 4, CRC-32C of the rest | count 4 | per producer: producerId 8, epoch 2,
               lastSequence 4, lastOffset 8, offsetDelta 4, timestamp 8, coordinatorEpoch 4, txnFirstOffset 8 (-1: none)

`N.snapshot` is the state before offset N. It contains one batch per producer, so that after a restart only the last
batch of each is recognised, as in Apache Kafka.
"""

from __future__ import annotations

import struct
from bisect import insort
from collections.abc import Iterable, Iterator

from barnabas.common.host import Disk
from barnabas.records.checksum import crc32c
from barnabas.storage.checkpoints import SNAPSHOT_SUFFIX, CheckpointError, file_name, offset_of, remove_quietly
from barnabas.storage.producer_entries import AppendedBatch, ProducerEntry

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_END = 6


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    body = bytearray()
    count = 0
    for entry in entries:
        batch = entry.batches[-1] if entry.batches else None
        body += _SNAPSHOT_ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            -1 if batch is None else batch.last_offset,
            0 if batch is None else batch.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            -1 if entry.txn_first_offset is None else entry.txn_first_offset,
        )
        count += 1
    out = bytearray(_SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, 0, count))
    out += body
    struct.pack_into(">I", out, _CRC_END - 4, crc32c(memoryview(out)[_CRC_END:]))
    return bytes(out)


def decode_snapshot(path: str, data: bytes) -> list[ProducerEntry]:
    """Decodes a snapshot. Raises CheckpointError if it is damaged."""
    if len(data) < _SNAPSHOT_HEAD.size:
        raise CheckpointError(path, f"a producer snapshot of {len(data)} bytes")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CheckpointError(path, f"version {version}, expected {_SNAPSHOT_VERSION}")
    if crc32c(memoryview(data)[_CRC_END:]) != crc:
        raise CheckpointError(path, "the checksum does not match")
    if count < 0 or len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        raise CheckpointError(path, f"{count} producers in {len(data)} bytes")
    entries = []
    for fields in _SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT_HEAD.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first_offset = fields
        entries.append(
            ProducerEntry(
                producer_id,
                epoch,
                coordinator_epoch=coordinator_epoch,
                last_timestamp=timestamp,
                txn_first_offset=txn_first_offset if txn_first_offset >= 0 else None,
                batch=AppendedBatch(sequence, offset, delta, timestamp) if offset >= 0 else None,
            )
        )
    return entries


class ProducerSnapshotFiles:
    """The `.snapshot` files of one log, identified by their offsets. `directory` changes when the log's is renamed."""

    __slots__ = ("_offsets", "directory", "disk")

    def __init__(self, disk: Disk, directory: str, names: Iterable[str] | None = None) -> None:
        self.disk = disk
        self.directory = directory
        found = disk.list_dir(directory) if names is None else names
        offsets = [offset_of(name) for name in found if name.endswith(SNAPSHOT_SUFFIX)]
        self._offsets = sorted(offset for offset in offsets if offset is not None)

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._offsets))

    def path(self, offset: int) -> str:
        return f"{self.directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    @property
    def latest(self) -> int | None:
        return self._offsets[-1] if self._offsets else None

    @property
    def oldest(self) -> int | None:
        return self._offsets[0] if self._offsets else None

    def read(self, offset: int) -> list[ProducerEntry]:
        path = self.path(offset)
        return decode_snapshot(path, self.disk.read(path))

    def write(self, offset: int, entries: Iterable[ProducerEntry], *, sync: bool) -> None:
        path = self.path(offset)
        try:
            self.disk.write(path, encode_snapshot(entries), sync=sync)
        except OSError:
            remove_quietly(self.disk, path)
            raise
        if offset not in self._offsets:
            insort(self._offsets, offset)

    def delete(self, offset: int) -> None:
        if offset in self._offsets:
            self._offsets.remove(offset)
            path = self.path(offset)
            if self.disk.exists(path):
                self.disk.remove(path)

    def forget(self, offset: int) -> None:
        """Removes an offset from the list; the caller renames or removes the file, together with its segment."""
        if offset in self._offsets:
            self._offsets.remove(offset)
