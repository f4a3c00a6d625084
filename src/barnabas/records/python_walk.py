"""The walk over a batch's records in plain Python, for installations without the compiled module.

Nothing is read before it is known to be inside its record, whatever the bytes are. Most varints here have one byte, and
a call would cost more than the decoding, so that case is written inline each time.
"""

from __future__ import annotations

from array import array

from barnabas.common.host import Buffer
from barnabas.records.record import write_varint

NAME = "python"

NO_FAULT = 0
NO_LENGTH = 1
WRONG_LENGTH = 2
NO_TIMESTAMP_DELTA = 3
NO_OFFSET_DELTA = 4
WRONG_KEY = 5
WRONG_VALUE = 6
WRONG_HEADER_COUNT = 7
WRONG_HEADER_KEY = 8
WRONG_HEADER_VALUE = 9
WRONG_END = 10
TRAILING_BYTES = 11

#: The size of the shortest record: its length, and one byte for each of six fields.
RECORD_BYTES_MIN = 7

_SIGN_64 = 1 << 63
_MASK_64 = (1 << 64) - 1
_LONG_MAX = (1 << 63) - 1
_VARINT_MAX = 0xFFFFFFFF
_VARLONG_MAX = (1 << 64) - 1


class _Fault(Exception):
    """Ends a walk over the records; its argument is the number of the fault, as in `walk.Survey`."""


def _varint(data: Buffer, place: int, end: int, raw_max: int, fault: int) -> tuple[int, int]:
    """Returns the zigzag varint at `place` and the position after it."""
    raw = shift = 0
    while place < end:
        byte = data[place]
        place += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw > raw_max:
                break
            return (raw >> 1) ^ -(raw & 1), place
        shift += 7
        if (1 << shift) > raw_max:
            break
    raise _Fault(fault)


def _headers(data: Buffer, place: int, stop: int, count: int) -> int:
    """Skips a record's headers; returns the position after them."""
    if count < 0 or 2 * count > stop - place:
        raise _Fault(WRONG_HEADER_COUNT)
    for _ in range(count):
        size, place = _varint(data, place, stop, _VARINT_MAX, WRONG_HEADER_KEY)
        if not 0 <= size <= stop - place:
            raise _Fault(WRONG_HEADER_KEY)
        size, place = _varint(data, place + size, stop, _VARINT_MAX, WRONG_HEADER_VALUE)
        if not -1 <= size <= stop - place:
            raise _Fault(WRONG_HEADER_VALUE)
        if size > 0:
            place += size
    return place


def _record(data: Buffer, at: int, end: int) -> tuple[int, int, int, int, int, int, int]:
    """Reads the record that begins at `at`, before `end`. Returns the deltas of timestamp and offset, start and size of
    key and of value, and its end."""
    length, place = _varint(data, at, end, _VARINT_MAX, NO_LENGTH)
    stop = place + length
    if length < 0 or stop > end:
        raise _Fault(WRONG_LENGTH)
    timestamp, place = _varint(data, place + 1, stop, _VARLONG_MAX, NO_TIMESTAMP_DELTA)
    offset, place = _varint(data, place, stop, _VARINT_MAX, NO_OFFSET_DELTA)
    key_size, key_start = _varint(data, place, stop, _VARINT_MAX, WRONG_KEY)
    if not -1 <= key_size <= stop - key_start:
        raise _Fault(WRONG_KEY)
    place = key_start + key_size if key_size > 0 else key_start
    value_size, value_start = _varint(data, place, stop, _VARINT_MAX, WRONG_VALUE)
    if not -1 <= value_size <= stop - value_start:
        raise _Fault(WRONG_VALUE)
    place = value_start + value_size if value_size > 0 else value_start
    count, place = _varint(data, place, stop, _VARINT_MAX, WRONG_HEADER_COUNT)
    if count:
        place = _headers(data, place, stop, count)
    if place != stop:
        raise _Fault(WRONG_END)
    return timestamp, offset, key_start, key_size, value_start, value_size, stop


def _read_fast(data: bytes, place: int, end: int) -> tuple[int, int, int, int, int]:
    """Reads the record at `place` with few checks. Returns its length, the deltas of its timestamp and offset, the size
    of its key, and its end.

    In a malformed record, the fields do not end at the end that the length gives, or the bytes run out; `_record` then
    finds the fault.
    """
    length = data[place]
    body = place + 2
    if length < 0x80:
        length = (length >> 1) ^ -(length & 1)
    else:
        length, body = _varint(data, place, end, _VARINT_MAX, NO_LENGTH)
        body += 1
    stop = body - 1 + length
    delta = data[body]
    if delta < 0x80:
        body += 1
        delta = (delta >> 1) ^ -(delta & 1)
    else:
        delta, body = _varint(data, body, end, _VARLONG_MAX, NO_TIMESTAMP_DELTA)
    offset = data[body]
    if offset < 0x80:
        body += 1
        offset = (offset >> 1) ^ -(offset & 1)
    else:
        offset, body = _varint(data, body, end, _VARINT_MAX, NO_OFFSET_DELTA)
    key_size = data[body]
    if key_size < 0x80:
        body += 1
        key_size = (key_size >> 1) ^ -(key_size & 1)
    else:
        key_size, body = _varint(data, body, end, _VARINT_MAX, WRONG_KEY)
    if key_size > 0:
        body += key_size
    size = data[body]
    if size < 0x80:
        body += 1
        size = (size >> 1) ^ -(size & 1)
    else:
        size, body = _varint(data, body, end, _VARINT_MAX, WRONG_VALUE)
    if size > 0:
        body += size
    if data[body] or body + 1 != stop or size < -1 or key_size < -1 or stop > end:
        stop = _record(data, place, end)[-1]
    return length, delta, offset, key_size, stop


def survey(
    data: Buffer, start: int, count: int, base_timestamp: int
) -> tuple[int, int, int, bool, int, int, int, int, int]:
    """Implements `walk.Walker.survey`."""
    data = bytes(data)  # Single bytes are read twice as fast from bytes as from views.
    end = len(data)
    if not 0 <= start <= end:
        raise ValueError(f"byte {start} of {end}")
    place, number, fault = start, 0, NO_FAULT
    is_numbered = True
    first_without_key, without_key = -1, 0
    least, most, largest = _LONG_MAX, -1, 0
    try:
        while number < count:
            length, delta, offset, key_size, stop = _read_fast(data, place, end)
            if offset != number:
                is_numbered = False
            if key_size < 0:
                if not without_key:
                    first_without_key = number
                without_key += 1
            timestamp = base_timestamp + delta
            if not -_SIGN_64 <= timestamp < _SIGN_64:
                timestamp = ((timestamp + _SIGN_64) & _MASK_64) - _SIGN_64
            if timestamp > most:
                most = timestamp
            if timestamp < least and timestamp != -1:
                least = timestamp
            if length > largest:
                largest = length
            place = stop
            number += 1
        if place != end:
            fault = TRAILING_BYTES
    except (IndexError, _Fault):
        fault = _fault_at(data, place, end)
    return number, place - start, fault, is_numbered, first_without_key, without_key, least, most, largest


def _fault_at(data: Buffer, place: int, end: int) -> int:
    """Returns the fault of the malformed record at `place`."""
    try:
        _record(data, place, end)
    except _Fault as found:
        return int(found.args[0])
    raise AssertionError(f"the record at byte {place} is whole")


def index(data: Buffer, start: int, count: int) -> tuple[int, int, int, *tuple[array[int], ...]]:
    """Implements `walk.Walker.index`."""
    end = len(data)
    if not 0 <= start <= end:
        raise ValueError(f"byte {start} of {end}")
    columns = tuple(array("q") for _ in range(8))
    offsets, timestamps, starts, key_starts, key_sizes, value_starts, value_sizes, ends = columns
    place, number, fault = start, 0, NO_FAULT
    try:
        while number < count:
            timestamp, offset, key_start, key_size, value_start, value_size, stop = _record(data, place, end)
            offsets.append(offset)
            timestamps.append(timestamp)
            starts.append(place - start)
            key_starts.append(key_start - start)
            key_sizes.append(key_size)
            value_starts.append(value_start - start)
            value_sizes.append(value_size)
            ends.append(stop - start)
            place = stop
            number += 1
        if place != end:
            fault = TRAILING_BYTES
    except _Fault as found:
        fault = found.args[0]
    return (number, place - start, fault, *columns)


def renumber(data: Buffer, start: int, count: int) -> bytearray:
    """Implements `walk.Walker.renumber`."""
    data = bytes(data)
    end, place = len(data), start
    out = bytearray()
    try:
        for number in range(count):
            stop = _record(data, place, end)[-1]
            length, body = _varint(data, place, end, _VARINT_MAX, NO_LENGTH)
            _, offset_at = _varint(data, body + 1, stop, _VARLONG_MAX, NO_TIMESTAMP_DELTA)
            _, offset_end = _varint(data, offset_at, stop, _VARINT_MAX, NO_OFFSET_DELTA)
            delta = bytearray()
            write_varint(delta, number)
            write_varint(out, length - (offset_end - offset_at) + len(delta))
            out += data[body:offset_at]
            out += delta
            out += data[offset_end:stop]
            place = stop
    except _Fault:
        raise ValueError("a record is incomplete") from None
    return out
