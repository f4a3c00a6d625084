"""The proofs that a metadata log has lost records, and the decision whether a damaged end can be cut off.

The log is read from end to end at each startup. Its intact part ends at the first batch that is incomplete, has a wrong
checksum, or cannot follow the batch before it (`Chain`: base offset and leader epoch are outside the checksum, but
offsets have no gaps, and each epoch begins with a LeaderChange). The rest is a torn tail, which was never acknowledged,
unless one of these proves otherwise:

    the intact part ends before the offset that the checkpoint records as on disk   (`raft.log_checkpoint`)
    there is an intact batch at the damage, or after it

Then nothing is cut, and the node refuses to start. If Apache Kafka has written `quorum-state` since, the checkpoint
counts only up to its committed offset: the leader of a later epoch can have truncated the rest.

An observer has acknowledged nothing, and can fetch everything from the controllers again: its log is cut, with a
warning, wherever it is damaged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from barnabas.common.errors import DecodeError, FatalFault, RecordsRejected
from barnabas.common.host import Disk
from barnabas.protocol.messages.records_raft import LeaderChangeMessage
from barnabas.raft.control import decode_control
from barnabas.raft.log_checkpoint import LogCheckpoint
from barnabas.records.batch import BatchHeader, decode_batch, has_valid_crc, read_header
from barnabas.records.header import LOG_OVERHEAD, MAGIC_OFFSET, MAGIC_V2, PREFIX_BYTES
from barnabas.storage.checkpoints import offset_of
from barnabas.storage.recovery.recovery import Cut

#: The limits of the search for intact batches: bytes after the damage, and offsets after the end.
_SEARCHED_BYTES: Final = 64 * 1024 * 1024
_OFFSETS_AHEAD: Final = 1 << 32
_SIZE_MIN, _SIZE_MAX = 61, 1 << 28
_MAGIC = bytes([MAGIC_V2])
_PREFIX: Final = struct.Struct(">qi")


class Chain:
    """Checks, for one batch after the other, whether it can follow the one before it in a metadata log."""

    def __init__(self, start_offset: int, quorum_epoch: int | None) -> None:
        """Creates a check. `quorum_epoch` is the epoch in `quorum-state`, which is synced before any record of that
        epoch; None if unknown.
        """
        self._next_offset = start_offset
        self._epoch = -1
        self._quorum_epoch = quorum_epoch
        #: The reason why the last batch did not follow.
        self.reason = ""

    def follows(self, header: BatchHeader, batch: memoryview) -> bool:
        self.reason = self._reason(header, batch)
        if self.reason:
            return False
        self._next_offset = header.next_offset
        self._epoch = header.partition_leader_epoch
        return True

    def _reason(self, header: BatchHeader, batch: memoryview) -> str:
        epoch = header.partition_leader_epoch
        if header.base_offset != self._next_offset:
            return f"a batch at offset {header.base_offset} where {self._next_offset} comes next"
        if header.magic != MAGIC_V2 or epoch < 0:
            return f"a batch of magic {header.magic} and leader epoch {epoch}"
        if self._quorum_epoch is not None and epoch > self._quorum_epoch:
            return f"a batch of leader epoch {epoch}, but the epoch in quorum-state is only {self._quorum_epoch}"
        if epoch < self._epoch:
            return f"a batch of leader epoch {epoch} after epoch {self._epoch}"
        is_later = epoch > self._epoch >= 0
        if (is_later or header.is_control) and self._epoch >= 0 and is_later != _begins_an_epoch(header, batch):
            return f"a batch of leader epoch {epoch} after epoch {self._epoch}, which no leader can have written there"
        return ""


def _begins_an_epoch(header: BatchHeader, batch: memoryview) -> bool:
    """Returns whether the batch contains the LeaderChange that each leader writes first."""
    if not header.is_control:
        return False
    try:
        return any(isinstance(decode_control(r.key, r.value), LeaderChangeMessage) for r in decode_batch(batch))
    except (DecodeError, RecordsRejected):
        return False


def intact_batch_behind(disk: Disk, cut: Cut) -> tuple[str, int] | None:
    """Returns (file, byte) of an intact batch at the damage or after it, within the limits of the search; else None."""
    for path, position in [(cut.path, cut.position), *((path, 0) for path in cut.dropped)]:
        file = disk.open(path, read_only=True)
        try:
            data = memoryview(file.read_at(position, min(file.size() - position, _SEARCHED_BYTES)))
        finally:
            file.close()
        found = _intact_batch(data, cut.end_offset)
        if found is not None:
            return path, position + found
    return None


def _intact_batch(data: memoryview, end_offset: int) -> int | None:
    """Returns the position of an intact batch in `data`, or None.

    Sizes can be damaged, so the search tries each magic byte. A batch at position 0 is where the log was cut: it is
    evidence at any offset.
    """
    raw = bytes(data)
    at = raw.find(_MAGIC, MAGIC_OFFSET)
    while at >= 0:
        start = at - MAGIC_OFFSET
        if _is_intact(data, start, end_offset if start else None):
            return start
        at = raw.find(_MAGIC, at + 1)
    return None


def _is_intact(data: memoryview, start: int, end_offset: int | None) -> bool:
    if len(data) - start < PREFIX_BYTES:
        return False
    base_offset, length = _PREFIX.unpack_from(data, start)
    size = length + LOG_OVERHEAD
    is_near = end_offset is None or end_offset <= base_offset < end_offset + _OFFSETS_AHEAD
    if not is_near or not _SIZE_MIN <= size <= min(_SIZE_MAX, len(data) - start):
        return False
    try:
        header = read_header(data, start)
        return has_valid_crc(data, start, header)
    except RecordsRejected:
        return False


class CutCheck:
    """Decides whether each cut is allowed while a log is opened. `on_cut` raises FatalFault for records that must not
    be cut off.
    """

    def __init__(
        self, disk: Disk, log_dir: str, chain: Chain, limit: int, warn: Callable[[str], None], *, is_voter: bool
    ) -> None:
        self._disk = disk
        self._log_dir = log_dir
        self._chain = chain
        self._limit = limit
        self._warn = warn
        self._is_voter = is_voter

    def on_cut(self, cut: Cut) -> None:
        behind = cut.size_bytes - cut.position
        what = self._chain.reason or ("the batch here is damaged" if behind else "the file ends too early")
        place = f"{cut.path}, byte {cut.position}, offset {cut.end_offset}: {what}"
        if self._is_voter:
            if cut.end_offset < self._limit:
                raise FatalFault(
                    f"{place}, but everything before offset {self._limit} was on this disk; {advice(self._log_dir)}"
                )
            intact = intact_batch_behind(self._disk, cut)
            if intact is not None:
                raise FatalFault(
                    f"{place}, and this is not a torn tail, because an intact batch follows ({intact[0]}, "
                    f"byte {intact[1]}); {advice(self._log_dir)}"
                )
        dropped = f" and {len(cut.dropped)} segments after it" if cut.dropped else ""
        why = (
            "a torn tail that was not flushed" if self._is_voter else "this node fetches it from the controllers again"
        )
        self._warn(f"{place}: {behind} bytes{dropped} are cut off the metadata log ({why})")


def advice(log_dir: str) -> str:
    return (
        f"`barnabas log repair {log_dir}` shows what can be kept (with --yes it cuts off the rest, and keeps a copy of "
        "that); if there are other voters, this one then fetches the rest from their leader, and votes again when it "
        "has caught up; if there are none, restore the directory from a backup"
    )


def limit_of(checkpoint: LogCheckpoint | None, *, is_state_own: bool) -> int:
    """Returns the offset before which no record may be missing. `is_state_own`: this node wrote `quorum-state` last."""
    if checkpoint is None:
        return 0
    return checkpoint.end if is_state_own else checkpoint.committed


def first_base(names: list[str]) -> int:
    """Returns the base offset of the first segment among these files; -1 if there is none."""
    bases = [offset for name in names if name.endswith(".log") and (offset := offset_of(name)) is not None]
    return min(bases, default=-1)
