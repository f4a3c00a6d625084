"""Snapshots of the metadata log (KIP-630) as files: `END_OFFSET-EPOCH.checkpoint`, next to the log's segments.

    control batch   SnapshotHeader, and with kraft.version 1 KRaftVersion and KRaftVoters
    data batches    framed metadata records that build the image from an empty one
    control batch   SnapshotFooter: without it the file is incomplete

Offsets inside a snapshot count from 0 and have no meaning; END_OFFSET is the first offset of the log that it does not
cover. `bootstrap.checkpoint` in each log directory has the same format: the records that a new cluster begins with.

`raft.publisher` decides when a snapshot is due, `RaftNode.write_snapshot` writes it, `MetadataLog.clean` deletes old
ones. `metadata.snapshot` lists the records of an image.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas.common.errors import DecodeError, RecordsRejected
from barnabas.common.host import Buffer, Disk
from barnabas.metadata.frame import decode_record, encode_record
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_raft import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from barnabas.raft.control import decode_control, encode_control
from barnabas.raft.voters import VoterSet, voters_from_record
from barnabas.records.batch import Record, decode_batch, decode_values, encode_batch, has_valid_crc, iter_headers
from barnabas.storage.checkpoints import write_atomically

_SUFFIX: Final = ".checkpoint"
_PART_SUFFIX: Final = ".part"
_DAMAGED_SUFFIX: Final = ".damaged"
_NAME: Final = re.compile(r"^(\d{20})-(\d{10})\.checkpoint$")
#: The approximate size of a batch, which limits the memory that a reader needs.
_BATCH_BYTES: Final = 1 << 20


class SnapshotId(NamedTuple):
    """The name of a snapshot. Ids are ordered by the offsets and epochs where the snapshots end."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{_SUFFIX}"


def parse_name(name: str) -> SnapshotId | None:
    match = _NAME.match(name)
    return None if match is None else SnapshotId(int(match[1]), int(match[2]))


@dataclass(slots=True)
class Snapshot:
    """The content of a snapshot file."""

    last_contained_log_timestamp_ms: int = 0
    kraft_version: int = 0
    voters: VoterSet | None = None
    records: list[tuple[Message, int]] = field(default_factory=list)


def encode_snapshot(
    records: Iterable[tuple[Message, int]],
    *,
    epoch: int,
    wall_ms: int,
    last_contained_log_timestamp_ms: int,
    kraft_version: int,
    voters: VoterSet | None,
) -> bytearray:
    """Encodes a snapshot. `voters` is None for `bootstrap.checkpoint` and for static quorums, whose snapshots list no
    voters.
    """
    head: list[Message] = [
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_log_timestamp_ms)
    ]
    if voters is not None and kraft_version > 0:
        head += [KRaftVersionRecord(version=0, kraft_version=kraft_version), voters.to_record()]
    out = encode_control_batch(head, base_offset=0, epoch=epoch, wall_ms=wall_ms)
    offset = len(head)
    for values in _chunks(records):
        batch = [Record(offset + i, wall_ms, None, value) for i, value in enumerate(values)]
        out += encode_batch(batch, base_offset=offset, leader_epoch=epoch)
        offset += len(batch)
    out += encode_control_batch([SnapshotFooterRecord(version=0)], base_offset=offset, epoch=epoch, wall_ms=wall_ms)
    return out


def _chunks(records: Iterable[tuple[Message, int]]) -> Iterator[list[bytes]]:
    values: list[bytes] = []
    size = 0
    for record, version in records:
        value = encode_record(record, version)
        values.append(value)
        size += len(value)
        if size >= _BATCH_BYTES:
            yield values
            values, size = [], 0
    if values:
        yield values


def encode_control_batch(messages: Iterable[Message], *, base_offset: int, epoch: int, wall_ms: int) -> bytearray:
    records = []
    for index, message in enumerate(messages):
        key, value = encode_control(message)
        records.append(Record(base_offset + index, wall_ms, key, value))
    return encode_batch(records, base_offset=base_offset, leader_epoch=epoch, control=True)


def decode_snapshot(data: Buffer) -> Snapshot:
    """Decodes a snapshot. Raises DecodeError if it is incomplete or damaged."""
    try:
        return _decode_batches(data)
    except RecordsRejected as error:
        raise DecodeError(error.message) from error


def _decode_batches(data: Buffer) -> Snapshot:
    snapshot = Snapshot()
    view = memoryview(data)
    finished = False
    for position, header in iter_headers(view):
        if finished:
            raise DecodeError("bytes after the snapshot's footer", position)
        if not has_valid_crc(view, position, header):
            raise DecodeError("a batch of the snapshot does not match its checksum", position)
        if not header.is_control:
            for value in decode_values(view, position):
                if value is None:
                    raise DecodeError("a metadata record without a value", position)
                snapshot.records.append(decode_record(value))
            continue
        for record in decode_batch(view, position):
            message = decode_control(record.key, record.value)
            if isinstance(message, SnapshotHeaderRecord):
                snapshot.last_contained_log_timestamp_ms = message.last_contained_log_timestamp
            elif isinstance(message, KRaftVersionRecord):
                snapshot.kraft_version = message.kraft_version
            elif isinstance(message, VotersRecord):
                snapshot.voters = voters_from_record(message)
            elif isinstance(message, SnapshotFooterRecord):
                finished = True
    if not finished:
        raise DecodeError("the snapshot has no footer: it was not finished", len(view))
    return snapshot


class SnapshotFiles:
    """The snapshots in one directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def list(self) -> list[SnapshotId]:
        """Returns all snapshots, oldest first."""
        ids = (parse_name(name) for name in self._disk.list_dir(self._directory))
        return sorted(snapshot_id for snapshot_id in ids if snapshot_id is not None)

    def latest(self) -> SnapshotId | None:
        ids = self.list()
        return ids[-1] if ids else None

    def path(self, snapshot_id: SnapshotId) -> str:
        return f"{self._directory}/{snapshot_id.file_name}"

    def read(self, snapshot_id: SnapshotId) -> Snapshot:
        return decode_snapshot(self._disk.read(self.path(snapshot_id)))

    def write(self, snapshot_id: SnapshotId, data: Buffer) -> None:
        """Writes a snapshot, durable when this returns; it gets its name only when it is complete."""
        write_atomically(self._disk, self.path(snapshot_id), data)

    def size(self, snapshot_id: SnapshotId) -> int:
        return self._disk.size(self.path(snapshot_id))

    def modified_ms(self, snapshot_id: SnapshotId) -> int:
        return self._disk.modified_ms(self.path(snapshot_id))

    def exists(self, snapshot_id: SnapshotId) -> bool:
        return self._disk.exists(self.path(snapshot_id))

    def read_slice(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes:
        file = self._disk.open(self.path(snapshot_id), read_only=True)
        try:
            return file.read_at(position, max_bytes)
        finally:
            file.close()

    # A snapshot that is fetched from the leader in parts.

    def part_path(self, snapshot_id: SnapshotId) -> str:
        return f"{self.path(snapshot_id)}{_PART_SUFFIX}"

    def begin_part(self, snapshot_id: SnapshotId) -> None:
        self._disk.write(self.part_path(snapshot_id), b"")

    def append_part(self, snapshot_id: SnapshotId, data: Buffer) -> None:
        file = self._disk.open(self.part_path(snapshot_id))
        try:
            file.append(data)
        finally:
            file.close()

    def finish_part(self, snapshot_id: SnapshotId) -> Snapshot:
        """Completes a fetched snapshot: durable and under its name when this returns.

        Raises DecodeError, with the partial file removed, if it is incomplete or damaged.
        """
        path = self.part_path(snapshot_id)
        try:
            snapshot = decode_snapshot(self._disk.read(path))
        except DecodeError:
            self._disk.remove(path)
            raise
        file = self._disk.open(path)
        try:
            file.sync()
        finally:
            file.close()
        self._disk.rename(path, self.path(snapshot_id))
        self._disk.sync_dir(self._directory)
        return snapshot

    def remove_unfinished(self) -> None:
        """Removes the partial files of downloads that did not end."""
        for name in self._disk.list_dir(self._directory):
            if name.endswith(_SUFFIX + _PART_SUFFIX):
                self._disk.remove(f"{self._directory}/{name}")

    def set_aside(self, snapshot_id: SnapshotId) -> str:
        """Renames a damaged snapshot, so that it no longer counts, and returns the new name."""
        kept = snapshot_id.file_name + _DAMAGED_SUFFIX
        self._disk.rename(self.path(snapshot_id), f"{self._directory}/{kept}")
        self._disk.sync_dir(self._directory)
        return kept

    def delete(self, snapshot_id: SnapshotId) -> None:
        self._disk.remove(self.path(snapshot_id))
