"""The walk over the records of a magic 2 batch by their lengths, without an object for each record.

    survey        what a leader checks: whether all records are complete and numbered, which have no key, and the
                  smallest and largest timestamp
    index         start, end, deltas, and positions of key and value of each record, as columns
    renumbered    the same records with offset deltas 0, 1, 2 and so on

All take uncompressed records, never raise because of the bytes, and end at the first malformed record, with the reason
as `fault`. A compiled module does the work if it is installed, plain Python otherwise.

The walk is stricter than Apache Kafka in three things that its own clients never write and that break other readers: a
varint that does not fit into its 32 or 64 bits, a length of a key or value below -1, and offsets that are not numbered
(`is_numbered`).
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple, Protocol, cast

from barnabas.common import effort, late_imports
from barnabas.common.effort import Work
from barnabas.common.host import Buffer
from barnabas.records import python_walk

_COMPILED_MODULE: Final = "barnabas.records._compiled_walk"

#: The meaning of each fault number.
FAULTS: Final = (
    "",
    "the records end where the length of one should be, or it is not a varint",
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
TRAILING_BYTES: Final = python_walk.TRAILING_BYTES
RECORD_BYTES_MIN: Final = python_walk.RECORD_BYTES_MIN

_FoundBySurvey = tuple[int, int, int, bool, int, int, int, int, int]


class Survey(NamedTuple):
    """The result of `survey`, about the records before the first fault."""

    #: The number of complete records.
    records: int
    #: The size of these records in bytes, which is the position of the fault, if there is one.
    size_bytes: int
    #: An index of `FAULTS`; 0 if all `count` records are complete and nothing follows them.
    fault: int
    #: Whether their offset deltas are 0, 1, 2 and so on.
    is_numbered: bool
    #: Index of the first record without a key, or -1, and the number of records without one.
    first_without_key: int
    without_key: int
    #: The smallest absolute timestamp other than -1 (no timestamp); the largest long if there is none.
    min_timestamp: int
    #: The largest absolute timestamp, at least -1.
    max_timestamp: int
    #: Size in bytes of the largest record, without its length field.
    largest_bytes: int

    @property
    def reason(self) -> str:
        """The text of the fault; empty without one."""
        return FAULTS[self.fault]


class Index(NamedTuple):
    """The result of `index`: columns with one entry per record before the first fault. Positions count from the start
    of the first record; a size of -1 is null."""

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
    """The interface that the compiled module and `python_walk` implement. `data` contains records from byte `start` to
    its end; `count` is their number according to the header.
    """

    NAME: str

    def survey(self, data: Buffer, start: int, count: int, base_timestamp: int) -> _FoundBySurvey:
        """Returns the fields of a `Survey`, as a plain tuple."""

    def index(self, data: Buffer, start: int, count: int) -> tuple[int, int, int, *tuple[array[int], ...]]:
        """Returns the fields of an `Index`, as a plain tuple."""

    def renumber(self, data: Buffer, start: int, count: int) -> bytearray:
        """Returns the records with offset deltas that count from 0. ValueError if they are malformed."""


def compiled_walker() -> Walker | None:
    """Returns the compiled module; None if it was not built."""
    return cast("Walker | None", late_imports.load_optional(_COMPILED_MODULE))


#: The module that this process uses.
WALKER: Final = compiled_walker() or cast("Walker", python_walk)


def survey(data: Buffer, start: int, count: int, base_timestamp: int) -> Survey:
    """Surveys the records from byte `start` to the end of `data`; `count` is their number according to the header."""
    found = Survey._make(WALKER.survey(data, start, count, base_timestamp))
    effort.add(Work.RECORD, found.records)
    return found


def index(data: Buffer, start: int, count: int) -> Index:
    """Indexes the records from byte `start` to the end of `data`; `count` is their number according to the header."""
    found = Index._make(WALKER.index(data, start, count))
    effort.add(Work.RECORD, found.records)
    return found


def renumbered(data: Buffer, start: int, count: int) -> bytearray:
    """Returns the `count` records from byte `start` on, which must be complete, with deltas that count from 0."""
    return WALKER.renumber(data, start, count)
