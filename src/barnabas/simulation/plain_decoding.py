"""A decoder of Kafka's formats that shares no code with the broker: records of batches, and bodies by lists of fields.

    schema    a list of fields (name, type); a type is a name, a list of one type (an array), or a schema (a structure)
    tagged    a field (number, name, type) of the flexible encoding; the result lacks it if the data does

Types: bool, int8 to int64, uint16, float64, uuid, string, bytes. Strings, bytes and arrays can be None. A tagged field
of the type raw is kept as bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from barnabas.simulation.log_files import Batch, read_batches

Schema = list[tuple[Any, ...]]
Json = dict[str, Any]

_NUMBERS: Final = {
    "bool": struct.Struct(">?"),
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
}
_RECORDS_FROM: Final = 61
_COMPRESSED: Final = 0x07
_CONTROL: Final = 0x20
_ATTRIBUTES_AT: Final = 21


class PlainRecord(NamedTuple):
    """A record of a batch."""

    offset: int
    key: bytes | None
    value: bytes | None


class Body:
    """The bytes of one body, and the position up to which they are decoded."""

    __slots__ = ("at", "data", "is_flexible")

    def __init__(self, data: bytes, at: int = 0, *, is_flexible: bool = True) -> None:
        self.data = data
        self.at = at
        self.is_flexible = is_flexible

    def begin(self, schema: Schema) -> Json:
        """Decodes the first fields of a structure."""
        return {name: self._value(kind) for name, kind in schema}

    def read(self, schema: Schema) -> Json:
        """Decodes a structure."""
        tagged = {field[0]: field[1:] for field in schema if len(field) == 3}
        found = self.begin([field for field in schema if len(field) == 2])
        if self.is_flexible:
            for _ in range(self.unsigned()):
                number, size = self.unsigned(), self.unsigned()
                end = self.at + size
                if number in tagged:
                    name, kind = tagged[number]
                    found[name] = self.take(size) if kind == "raw" else self._value(kind)
                    assert self.at == end, f"the tagged field {name} has {size} bytes"
                self.at = end
        return found

    def number(self, kind: str) -> Any:
        form = _NUMBERS[kind]
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return value

    def unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def signed(self) -> int:
        value = self.unsigned()
        return (value >> 1) ^ -(value & 1)

    def take(self, size: int) -> bytes:
        taken = self.data[self.at : self.at + size]
        assert len(taken) == size, f"{size} bytes at {self.at} of {len(self.data)}"
        self.at += size
        return taken

    def _value(self, kind: Any) -> Any:
        if isinstance(kind, list):
            if isinstance(kind[0], tuple):
                return self.read(kind)
            count = self._length("int32")
            return None if count < 0 else [self._value(kind[0]) for _ in range(count)]
        if kind in _NUMBERS:
            return self.number(kind)
        if kind == "uuid":
            return self.take(16)
        size = self._length("int16" if kind == "string" else "int32")
        if size < 0:
            return None
        raw = self.take(size)
        return raw.decode() if kind == "string" else raw

    def _length(self, kind: str) -> int:
        return self.unsigned() - 1 if self.is_flexible else int(self.number(kind))


def records_of(batch: Batch, data: bytes) -> list[PlainRecord]:
    """Returns the records of a batch that is not compressed; `data` are the bytes that contain it."""
    body = Body(data, batch.position + _RECORDS_FROM)
    found = []
    end = batch.position + batch.size
    assert not data[batch.position + _ATTRIBUTES_AT + 1] & _COMPRESSED, "a compressed batch"
    while body.at < end:
        size = body.signed()
        next_at = body.at + size
        body.at += 1
        body.signed()
        offset = batch.base_offset + body.signed()
        key, value = _sized(body), _sized(body)
        found.append(PlainRecord(offset, key, value))
        body.at = next_at
    return found


def _sized(body: Body) -> bytes | None:
    size = body.signed()
    return None if size < 0 else body.take(size)


def is_control(batch: Batch, data: bytes) -> bool:
    return bool(data[batch.position + _ATTRIBUTES_AT + 1] & _CONTROL)


def batches_with_records(
    data: bytes, begin: int = 0, end: int | None = None
) -> Iterator[tuple[Batch, bool, Sequence[PlainRecord]]]:
    """Yields each whole batch between two offsets, whether it is a control batch, and its records."""
    for batch in read_batches(data):
        if batch.last_offset < begin or (end is not None and batch.last_offset >= end):
            continue
        yield batch, is_control(batch, data), records_of(batch, data)
