"""The header of a record batch, and the errors for malformed batches.

    offset  size  field                     magic 2 (KIP-98)
         0     8  baseOffset                not covered by the CRC: the leader assigns it
         8     4  batchLength               bytes after this field
        12     4  partitionLeaderEpoch      not covered by the CRC: the leader assigns it
        16     1  magic                     at the same place in magic 0 and 1
        17     4  crc                       CRC-32C of everything from byte 21 on
        21     2  attributes                codec 0-2, timestamp type 3, transactional 4, control 5, delete horizon 6
        23     4  lastOffsetDelta
        27     8  baseTimestamp             the delete horizon if attribute bit 6 is set
        35     8  maxTimestamp
        43     8  producerId
        51     2  producerEpoch
        53     4  baseSequence
        57     4  record count              may be below the offset range after compaction, even 0
        61        records

A `BatchHeader` also describes an entry of magic 0 or 1, so that callers need not know the magic to find offsets.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.common.errors import ErrorCode, RecordsRejected

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

CREATE_TIME = 0
LOG_APPEND_TIME = 1

MAGIC_V0, MAGIC_V1, MAGIC_V2 = 0, 1, 2

#: The size of baseOffset and batchLength, which determine where an entry ends.
LOG_OVERHEAD = 12
#: The position of the magic, and the size of a prefix that includes it.
MAGIC_OFFSET = 16
PREFIX_BYTES = MAGIC_OFFSET + 1
HEADER_BYTES = 61
CRC_OFFSET = 17
ATTRIBUTES_OFFSET = 21
LEADER_EPOCH_OFFSET = 12
MAX_TIMESTAMP_OFFSET = 35
#: The size of the shortest entry of magic 0 (offset, size, crc, magic, attributes, two lengths).
LEGACY_MIN_BYTES = LOG_OVERHEAD + 14

CODEC_MASK = 0x07
TIMESTAMP_TYPE_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

HEADER = struct.Struct(">qiibIhiqqqhii")
PREFIX = struct.Struct(">qi")

_MAX_INT = 0x7FFFFFFF


class BatchHeader(NamedTuple):
    """The fields of a batch's header."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        return (self.attributes & TIMESTAMP_TYPE_FLAG) >> 3

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time at which the batch's tombstones and markers can be removed (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def last_sequence(self) -> int:
        return advance_sequence(self.base_sequence, self.last_offset_delta)


def advance_sequence(sequence: int, by: int) -> int:
    """Adds to a sequence number, which wraps to 0 after 2**31 - 1. NO_SEQUENCE stays NO_SEQUENCE."""
    if sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (sequence + by) & _MAX_INT


def corrupt(message: str) -> RecordsRejected:
    """Returns the error for bytes that were damaged in transit; a retry can succeed."""
    return RecordsRejected(ErrorCode.CORRUPT_MESSAGE, message, is_framing=True)


def invalid(message: str) -> RecordsRejected:
    """Returns the error for bytes that arrived as they were sent but are invalid."""
    return RecordsRejected(ErrorCode.INVALID_RECORD, message)


def misframed(message: str) -> RecordsRejected:
    """Returns the error for anything but the one magic 2 batch per partition that a produce request must have."""
    return RecordsRejected(ErrorCode.INVALID_RECORD, message, is_framing=True)
