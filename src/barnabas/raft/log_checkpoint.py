"""The file `metadata-log-checkpoint`: facts about the metadata log that a node stores outside the log itself.

    line 1       the log's owner: node id, cluster id, directory id
    lines 2, 3   committed and on-disk end offsets; written in turn, the higher sequence number counts

The file is in the parent of the metadata log's directory, so that it survives the loss of that. Each line has a fixed
length and ends with its CRC-32C; a torn or damaged line is ignored, and the other one has the state before it.

A line is written, without a sync, after each flush of the log and before any other node learns of that flush: so after
a kill it is exact. It is synced in the background every `SYNC_INTERVAL_MS`, and immediately when a segment is full,
after a snapshot, at a clean shutdown, and before a truncation: so after a power failure it is at most some seconds old,
and never ahead of the log.

A voter of a new cluster is formatted with a checkpoint of an empty log: it has acknowledged nothing, and votes from the
beginning. Until its log has records, lines are synced before any other node learns of the vote or the flush that they
record: no power failure brings the checkpoint of an empty log back.

Apache Kafka neither writes nor reads the file. `raft.evidence` handles a log that lacks what the checkpoint records.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas.common.errors import is_exhausted
from barnabas.common.host import Disk, File, Host
from barnabas.common.types import uuid_to_text
from barnabas.records.checksum import crc32c
from barnabas.storage.checkpoints import LOG_CHECKPOINT_FILE, write_atomically

SYNC_INTERVAL_MS: Final = 5_000
_VERSION: Final = "1"
_IDENTITY_BYTES: Final = 160
_LINE_BYTES: Final = 112
_CRC_DIGITS: Final = 8
_CLUSTER_ID_MAX: Final = 100


class VotingRestriction(IntEnum):
    """The reason why a voter does not vote."""

    #: The voter votes.
    NONE = 0
    #: The voter's log lacks records that it may have acknowledged.
    BEHIND = 1
    #: The voter's directory is new, and may replace one that was lost.
    NEW = 2
    #: The voter's directory was formatted for a new cluster, and its log has had no records yet: the voter votes, but
    #: not for candidates of whose directories that is not known.
    NEW_CLUSTER = 3


class LogCheckpoint(NamedTuple):
    """The newest line of the checkpoint file. Everything before `committed` was committed, and everything before `end`
    was on this disk.
    """

    committed: int = 0
    end: int = 0
    #: The epoch of the last batch before `end`.
    epoch: int = 0
    #: The newest epoch in which this node took part, from `quorum-state`.
    quorum_epoch: int = 0
    restriction: VotingRestriction = VotingRestriction.NONE


class CheckpointIdentity(NamedTuple):
    """The `meta.properties` when the checkpoint was created; "-" for a cluster id that does not fit into a line."""

    node_id: int
    cluster_id: str
    directory_id: str

    @staticmethod
    def of(node_id: int, cluster_id: str, directory_id: bytes) -> CheckpointIdentity:
        is_plain = len(cluster_id) <= _CLUSTER_ID_MAX and cluster_id.isascii() and cluster_id.split() == [cluster_id]
        return CheckpointIdentity(node_id, cluster_id if is_plain else "-", uuid_to_text(directory_id))


def log_checkpoint_path(log_dir: str) -> str:
    return f"{log_dir}/{LOG_CHECKPOINT_FILE}"


class LogCheckpointFile:
    """The checkpoint of one metadata log. Methods that read or write raise OSError."""

    NAME: Final = LOG_CHECKPOINT_FILE

    def __init__(self, disk: Disk, log_dir: str) -> None:
        self._disk = disk
        self.path = log_checkpoint_path(log_dir)
        self._file: File | None = None
        self._sequence = 0
        self._is_synced = True
        #: The content of the file; None if it is missing or unreadable.
        self.checkpoint: LogCheckpoint | None = None
        self.identity: CheckpointIdentity | None = None
        #: Whether a line of an existing file is damaged.
        self.is_damaged = False
        if disk.exists(self.path):
            self._read(disk.read(self.path))

    def _read(self, data: bytes) -> None:
        identity = _decode(data[:_IDENTITY_BYTES], _IDENTITY_BYTES)
        if identity is not None and len(identity) == 4:
            self.identity = CheckpointIdentity(int(identity[1]), identity[2], identity[3])
        found = []
        for place in range(2):
            start = _IDENTITY_BYTES + place * _LINE_BYTES
            fields = _decode(data[start : start + _LINE_BYTES], _LINE_BYTES)
            if fields is not None and len(fields) == 7:
                sequence, committed, end, epoch, quorum_epoch, restriction = (int(field) for field in fields[1:])
                found.append(
                    (sequence, LogCheckpoint(committed, end, epoch, quorum_epoch, VotingRestriction(restriction)))
                )
        if found:
            self._sequence, self.checkpoint = max(found)
        self.is_damaged = identity is None or len(found) < 2

    def create(self, identity: CheckpointIdentity, checkpoint: LogCheckpoint) -> None:
        """Writes the whole file, synced, unless it has this content already."""
        if (self.identity, self.checkpoint, self.is_damaged) == (identity, checkpoint, False):
            return
        self.close()
        self._sequence += 1
        lines = _line(self._sequence, checkpoint) * 2
        first = _encode(f"{_VERSION} {identity.node_id} {identity.cluster_id} {identity.directory_id}", _IDENTITY_BYTES)
        write_atomically(self._disk, self.path, first + lines)
        self.identity, self.checkpoint, self.is_damaged = identity, checkpoint, False
        self._is_synced = True

    def write(self, checkpoint: LogCheckpoint, *, sync: bool = False) -> None:
        """Writes the checkpoint to a file that exists."""
        if checkpoint != self.checkpoint:
            if self._file is None:
                self._file = self._disk.open(self.path)
            self._sequence += 1
            place = _IDENTITY_BYTES + self._sequence % 2 * _LINE_BYTES
            self._file.write_at(place, _line(self._sequence, checkpoint))
            self.checkpoint = checkpoint
            self._is_synced = False
        if sync:
            self.sync()

    def sync(self) -> None:
        if self._file is not None and not self._is_synced:
            self._file.sync()
            self._is_synced = True

    def sync_in_background(self) -> None:
        """Syncs the file from another thread, through a separate file descriptor."""
        file = self._disk.open(self.path, read_only=True)
        try:
            file.sync()
        finally:
            file.close()

    def finish(self) -> None:
        """Writes and syncs both lines with the same content, at a clean shutdown."""
        checkpoint, file = self.checkpoint, self._file
        if checkpoint is not None and file is not None:
            for _ in range(2):
                self._sequence += 1
                file.write_at(_IDENTITY_BYTES + self._sequence % 2 * _LINE_BYTES, _line(self._sequence, checkpoint))
            file.sync()
            self._is_synced = True
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _line(sequence: int, checkpoint: LogCheckpoint) -> bytes:
    numbers = (
        sequence,
        checkpoint.committed,
        checkpoint.end,
        checkpoint.epoch,
        checkpoint.quorum_epoch,
        int(checkpoint.restriction),
    )
    return _encode(" ".join((_VERSION, *map(str, numbers))), _LINE_BYTES)


def _encode(text: str, size: int) -> bytes:
    body = text.encode().ljust(size - _CRC_DIGITS - 1)
    assert len(body) == size - _CRC_DIGITS - 1, f"{text!r} is too long"
    return body + f"{crc32c(body):08x}\n".encode()


def _decode(line: bytes, size: int) -> list[str] | None:
    """Returns the fields of a line; None if the line is damaged, or was written by a later version."""
    body, crc = line[: size - _CRC_DIGITS - 1], line[size - _CRC_DIGITS - 1 :]
    if len(line) != size or crc != f"{crc32c(body):08x}\n".encode():
        return None
    fields = body.decode("ascii", "replace").split()
    return fields if fields[:1] == [_VERSION] else None


class LogCheckpointWriter:
    """Keeps the checkpoint of an open log up to date."""

    def __init__(self, host: Host, file: LogCheckpointFile, high_watermark: Callable[[], int]) -> None:
        """Creates a writer. `high_watermark` returns the offset before which everything is known to be committed."""
        self._host = host
        self._file = file
        self._synced_ms = host.clock.now_ms()
        self._high_watermark = high_watermark

    @property
    def checkpoint(self) -> LogCheckpoint:
        checkpoint = self._file.checkpoint
        return LogCheckpoint() if checkpoint is None else checkpoint

    def begin(self, identity: CheckpointIdentity, checkpoint: LogCheckpoint) -> None:
        """Writes the first checkpoint, once the state of the log is known. Raises OSError."""
        self._file.create(identity, checkpoint)

    def flushed(self, end: int, epoch: int) -> None:
        """Records that everything before `end` is on disk, before any other node learns of it. Raises OSError."""
        checkpoint = self.checkpoint
        committed = max(checkpoint.committed, min(self._high_watermark(), end))
        self._write(checkpoint._replace(committed=committed, end=end, epoch=epoch))
        now_ms = self._host.clock.now_ms()
        if now_ms - self._synced_ms >= SYNC_INTERVAL_MS:
            self._synced_ms = now_ms
            self._host.blocking.run(self._file.sync_in_background, _ignore)

    def shorten(self, end: int, epoch: int) -> None:
        """Records and syncs that the log is about to end at `end` at the latest. Raises OSError."""
        checkpoint = self.checkpoint
        if end < checkpoint.end:
            self._file.write(
                checkpoint._replace(committed=min(checkpoint.committed, end), end=end, epoch=epoch), sync=True
            )

    def note_epoch(self, quorum_epoch: int) -> None:
        """Records the newest epoch, after `quorum-state` was written. Raises OSError."""
        checkpoint = self.checkpoint
        if self._file.checkpoint is not None and quorum_epoch > checkpoint.quorum_epoch:
            self._write(checkpoint._replace(quorum_epoch=quorum_epoch))

    def release(self) -> None:
        """Records and syncs that this voter votes from now on, so that a power failure does not change that. Raises
        OSError.
        """
        self._file.write(self.checkpoint._replace(restriction=VotingRestriction.NONE), sync=True)

    def sync(self) -> None:
        """Syncs the checkpoint. Raises OSError."""
        self._synced_ms = self._host.clock.now_ms()
        self._file.sync()

    def close(self) -> None:
        """Finishes the checkpoint at a clean shutdown. Raises OSError."""
        self._file.finish()

    def _write(self, checkpoint: LogCheckpoint) -> None:
        if checkpoint.restriction is VotingRestriction.NEW_CLUSTER:
            if checkpoint.end > 0:
                checkpoint = checkpoint._replace(restriction=VotingRestriction.NONE)
            self._file.write(checkpoint, sync=True)
            return
        try:
            self._file.write(checkpoint)
        except OSError as error:
            # The checkpoint stays behind the log: it proves less, but is still correct.
            if not is_exhausted(error):
                raise


def _ignore(_: object, error: BaseException | None) -> None:
    """Ignores a failed sync: the checkpoint is then older after a power failure, and still correct."""
