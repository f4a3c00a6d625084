"""A batch of keys and values that is built in several turns of the event loop, record by record.

`encode_batch` encodes a whole batch in one turn, which takes too long for tens of thousands of records.
"""

from __future__ import annotations

from barnabas.records.batch import encode_body
from barnabas.records.header import HEADER_BYTES, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from barnabas.records.record import write_varint

#: Attributes and timestamp delta, both 0.
_HEAD = b"\x00\x00"


class BatchDraft:
    """A batch under construction: records with one timestamp, without headers. `size_bytes` is without compression."""

    __slots__ = ("_body", "count")

    def __init__(self) -> None:
        self._body = bytearray()
        self.count = 0

    @property
    def size_bytes(self) -> int:
        return HEADER_BYTES + len(self._body)

    def add(self, key: bytes, value: bytes | None) -> None:
        record = bytearray(_HEAD)
        write_varint(record, self.count)
        write_varint(record, len(key))
        record += key
        if value is None:
            record.append(1)  # The length -1.
        else:
            write_varint(record, len(value))
            record += value
        record.append(0)  # No headers.
        write_varint(self._body, len(record))
        self._body += record
        self.count += 1

    def encode(
        self,
        timestamp: int,
        *,
        codec: int = 0,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int,
        transactional: bool = False,
    ) -> bytearray:
        """Returns the batch, as `encode_batch` encodes the same records."""
        return encode_body(
            self._body,
            self.count,
            timestamp,
            timestamp,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )
