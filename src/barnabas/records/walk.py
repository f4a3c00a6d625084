"""The walk over the records of a magic 2 batch by their lengths: what they are, without an object for each.

    survey        what a leader wants to know of all of them: are they whole, are they numbered, which have no key,
                  the least and the largest timestamp
    index         where each begins and ends, its deltas, and where its key and value lie, as columns
    renumbered    the same records with offset deltas 0, 1, 2 and so on

All take records that are not compressed (`survey_batch` and `index_batch` unpack them first), never raise for what
the bytes are, and end at the first record that is not whole, with the reason as `fault`. A compiled twin does the work
where the installation has it, plain Python otherwise.

Stricter than Apache Kafka in three things that its own clients never write and others trip over: a varint that does not
fit into its 32 or 64 bits, a length of a key or value below -1, and offsets that are not numbered (`is_numbered`).
"""

from __future__ import annotations

from array import array
from importlib import import_module
from typing import Final, NamedTuple, Protocol, cast

from barnabas.common import effort
from barnabas.common.effort import Work
from barnabas.common.host import Buffer
from barnabas.records import compression, python_walk
from barnabas.records.header import HEADER_BYTES, BatchHeader

_COMPILED_MODULE: Final = "barnabas.records._compiled_walk"

#: What a fault's number means.
FAULTS: Final = (
    "",
    "the records end where the length of one should be, or it is no varint",
    "the length of a record reaches beyond the batch, or is negative",
    "a record has no readable timestamp",
    "a record has no readable offset",
    "the key of a record reaches beyond it",
    "the value of a record reaches beyond it",
    "a record has more headers than bytes for them",
    "the key of a header reaches beyond its record, or is null",
    "the value of a header reaches beyond its record",
    "a record does not end where its length says",
    "bytes follow the last record",
)
WRONG_LENGTH: Final = python_walk.WRONG_LENGTH
BYTES_BEHIND: Final = python_walk.BYTES_BEHIND
RECORD_BYTES_MIN: Final = python_walk.RECORD_BYTES_MIN

_FoundBySurvey = tuple[int, int, int, bool, int, int, int, int, int]


class Survey(NamedTuple):
    """Of the records before the first fault."""

    #: How many are whole.
    records: int
    #: How many bytes they take: where the fault is, if there is one.
    size_bytes: int
    #: A number of `FAULTS`; 0 if all `count` records are whole and nothing follows them.
    fault: int
    #: Whether their offset deltas are 0, 1, 2 and so on.
    is_numbered: bool
    #: Place of the first record without a key, or -1, and how many there are.
    first_without_key: int
    without_key: int
    #: Absolute; of those other than -1 (no timestamp). The largest long if there is none.
    min_timestamp: int
    #: Absolute; -1 if none is larger.
    max_timestamp: int
    #: Bytes of the largest record, without its length.
    largest_bytes: int

    @property
    def reason(self) -> str:
        """Empty without a fault."""
        return FAULTS[self.fault]


class Index(NamedTuple):
    """Of the records before the first fault, one entry each. Places count from the first record's first byte; a size of
    -1 is null."""

    records: int
    size_bytes: int
    fault: int
    offset_deltas: array[int]
    timestamp_deltas: array[int]
    starts: array[int]
    key_starts: array[int]
    key_sizes: array[int]
    value_starts: array[int]
    value_sizes: array[int]
    ends: array[int]

    @property
    def reason(self) -> str:
        return FAULTS[self.fault]


class Walker(Protocol):
    """What both twins offer. `data` holds records from byte `start` to its end, `count` of them by their header."""

    NAME: str

    def survey(self, data: Buffer, start: int, count: int, base_timestamp: int) -> _FoundBySurvey:
        """The fields of a `Survey`, as a plain tuple."""

    def index(self, data: Buffer, start: int, count: int) -> tuple[int, int, int, *tuple[array[int], ...]]:
        """The fields of an `Index`, as a plain tuple."""

    def renumber(self, data: Buffer, start: int, count: int) -> bytearray:
        """The records with offset deltas that count from 0. ValueError if they are not whole."""


def compiled_walker() -> Walker | None:
    """None where it was not built."""
    try:
        return cast("Walker", import_module(_COMPILED_MODULE))
    except ImportError:
        return None


#: The one that this process uses.
WALKER: Final = compiled_walker() or cast("Walker", python_walk)


def survey(data: Buffer, start: int, count: int, base_timestamp: int) -> Survey:
    """Of the records from byte `start` to the end of `data`, of which there should be `count`."""
    found = Survey._make(WALKER.survey(data, start, count, base_timestamp))
    effort.add(Work.RECORD, found.records)
    return found


def index(data: Buffer, start: int, count: int) -> Index:
    """Of the records from byte `start` to the end of `data`, of which there should be `count`."""
    found = Index._make(WALKER.index(data, start, count))
    effort.add(Work.RECORD, found.records)
    return found


def renumbered(data: Buffer, start: int, count: int) -> bytearray:
    """The `count` records from byte `start` on, which must be whole, with offset deltas that count from 0."""
    return WALKER.renumber(data, start, count)


def unpacked(header: BatchHeader, batch: Buffer, limit: int = compression.DECOMPRESSED_BYTES_MAX) -> tuple[Buffer, int]:
    """Bytes that hold the records of a magic 2 batch, given from its header on, and where in them the records begin.
    RecordsRejected if they cannot be unpacked or are more than `limit` bytes."""
    codec = compression.codec_of(header.attributes)
    if codec is compression.Codec.NONE:
        return (batch if len(batch) == header.size_bytes else memoryview(batch)[: header.size_bytes]), HEADER_BYTES
    data = compression.unpack(codec, memoryview(batch)[HEADER_BYTES : header.size_bytes], limit)
    effort.add(Work.UNPACKED_BYTE, len(data))
    return data, 0


def survey_batch(header: BatchHeader, batch: Buffer, limit: int = compression.DECOMPRESSED_BYTES_MAX) -> Survey:
    """Of a magic 2 batch, given from its header on. RecordsRejected if it cannot be unpacked."""
    data, start = unpacked(header, batch, limit)
    return survey(data, start, header.record_count, header.base_timestamp)


def index_batch(
    header: BatchHeader, batch: Buffer, limit: int = compression.DECOMPRESSED_BYTES_MAX
) -> tuple[Index, Buffer]:
    """Of a magic 2 batch, given from its header on, and the records' own bytes, which its places count from.
    RecordsRejected if it cannot be unpacked."""
    data, start = unpacked(header, batch, limit)
    return index(data, start, header.record_count), memoryview(data)[start:]
