# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled form of `python_walk`: the same results for the same bytes, about a hundred times faster.

Nothing is read before it is known to be inside its record, whatever the bytes are. A walk over many records releases
the interpreter's lock, so that in a thread it does not block the event loop.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.limits cimport LLONG_MAX
from libc.string cimport memcpy

from array import array

NAME = "compiled"

ctypedef const unsigned char* Bytes

cdef enum:
    VARINT_BYTES_MAX = 5
    VARLONG_BYTES_MAX = 10
    #: For this many records or fewer the lock is kept: the walk is shorter than a switch of threads.
    FEW_RECORDS = 512

cdef enum Fault:
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

cdef struct Row:
    long long size
    long long offset_at
    long long offset_end
    long long timestamp_delta
    long long offset_delta
    long long start
    long long key_start
    long long key_size
    long long value_start
    long long value_size
    long long end

cdef struct Findings:
    long long records
    long long place
    int fault
    bint is_numbered
    long long first_without_key
    long long without_key
    long long min_timestamp
    long long max_timestamp
    long long largest


cdef inline bint _varint(Bytes data, long long* place, long long end, long long* value) noexcept nogil:
    """Reads the 32-bit zigzag varint at `place` and moves `place` after it; False if none ends before `end`."""
    cdef unsigned long long raw
    cdef unsigned long long byte
    cdef long long at = place[0]
    cdef int shift = 7
    if at >= end:
        return False
    raw = data[at]
    if raw >= 0x80:
        raw &= 0x7F
        while True:
            at += 1
            if at >= end or shift > 28:
                return False
            byte = data[at]
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if raw >> 32:
            return False
    value[0] = <long long>(raw >> 1) ^ -<long long>(raw & 1)
    place[0] = at + 1
    return True


cdef inline bint _varlong(Bytes data, long long* place, long long end, long long* value) noexcept nogil:
    """Reads a 64-bit zigzag varint like `_varint`."""
    cdef unsigned long long raw
    cdef unsigned long long byte
    cdef long long at = place[0]
    cdef int shift = 7
    if at >= end:
        return False
    raw = data[at]
    if raw >= 0x80:
        raw &= 0x7F
        while True:
            at += 1
            if at >= end or shift > 63:
                return False
            byte = data[at]
            if shift == 63 and byte > 1:
                return False
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    value[0] = <long long>(raw >> 1) ^ -<long long>(raw & 1)
    place[0] = at + 1
    return True


cdef int _record(Bytes data, long long at, long long end, Row* row) noexcept nogil:
    """Reads the record that begins at `at`, before `end`. Returns its fault, or NO_FAULT."""
    cdef long long place = at, length, stop, count
    if not _varint(data, &place, end, &length):
        return NO_LENGTH
    if length < 0 or length > end - place:
        return WRONG_LENGTH
    stop = place + length
    row.size = length
    row.start = at
    row.end = stop
    place += 1
    if not _varlong(data, &place, stop, &row.timestamp_delta):
        return NO_TIMESTAMP_DELTA
    row.offset_at = place
    if not _varint(data, &place, stop, &row.offset_delta):
        return NO_OFFSET_DELTA
    row.offset_end = place
    if not _varint(data, &place, stop, &length) or length < -1 or length > stop - place:
        return WRONG_KEY
    row.key_start = place
    row.key_size = length
    if length > 0:
        place += length
    if not _varint(data, &place, stop, &length) or length < -1 or length > stop - place:
        return WRONG_VALUE
    row.value_start = place
    row.value_size = length
    if length > 0:
        place += length
    if not _varint(data, &place, stop, &count) or count < 0 or 2 * count > stop - place:
        return WRONG_HEADER_COUNT
    while count:
        count -= 1
        if not _varint(data, &place, stop, &length) or length < 0 or length > stop - place:
            return WRONG_HEADER_KEY
        place += length
        if not _varint(data, &place, stop, &length) or length < -1 or length > stop - place:
            return WRONG_HEADER_VALUE
        if length > 0:
            place += length
    return NO_FAULT if place == stop else WRONG_END


cdef void _survey(
    Bytes data, long long place, long long end, long long count, long long base_timestamp, Findings* found
) noexcept nogil:
    cdef Row row
    cdef long long index = 0, timestamp, start = place
    cdef int fault = NO_FAULT
    found.is_numbered = True
    found.first_without_key = -1
    found.without_key = 0
    found.min_timestamp = LLONG_MAX
    found.max_timestamp = -1
    found.largest = 0
    while index < count:
        fault = _record(data, place, end, &row)
        if fault:
            break
        if row.offset_delta != index:
            found.is_numbered = False
        if row.key_size < 0:
            if not found.without_key:
                found.first_without_key = index
            found.without_key += 1
        # 64-bit sums wrap, as in Java.
        timestamp = <long long>(<unsigned long long>base_timestamp + <unsigned long long>row.timestamp_delta)
        if timestamp > found.max_timestamp:
            found.max_timestamp = timestamp
        if timestamp < found.min_timestamp and timestamp != -1:
            found.min_timestamp = timestamp
        if row.size > found.largest:
            found.largest = row.size
        place = row.end
        index += 1
    if not fault and place != end:
        fault = TRAILING_BYTES
    found.records = index
    found.place = place - start
    found.fault = fault


def survey(data, long long start, long long count, long long base_timestamp):
    """Implements `walk.Walker.survey`."""
    cdef Py_buffer view
    cdef Findings found
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if start < 0 or start > view.len:
            raise ValueError(f"byte {start} of {view.len}")
        if count <= FEW_RECORDS:
            _survey(<Bytes>view.buf, start, view.len, count, base_timestamp, &found)
        else:
            with nogil:
                _survey(<Bytes>view.buf, start, view.len, count, base_timestamp, &found)
    finally:
        PyBuffer_Release(&view)
    return (
        found.records,
        found.place,
        found.fault,
        found.is_numbered,
        found.first_without_key,
        found.without_key,
        found.min_timestamp,
        found.max_timestamp,
        found.largest,
    )


def index(data, long long start, long long count):
    """Implements `walk.Walker.index`."""
    cdef Py_buffer view
    cdef Row row
    cdef long long place = start, number = 0, rows
    cdef int fault = NO_FAULT
    cdef long long[::1] offsets, timestamps, starts, key_starts, key_sizes, value_starts, value_sizes, ends
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if start < 0 or start > view.len:
            raise ValueError(f"byte {start} of {view.len}")
        # A record takes at least 7 bytes, which bounds the memory allocated for `count` records.
        rows = max(0, min(count, (view.len - start) // 7))
        columns = tuple([array("q", bytes(8 * rows)) for _ in range(8)])
        if rows:
            offsets, timestamps, starts, key_starts, key_sizes, value_starts, value_sizes, ends = columns
            with nogil:
                while number < rows:
                    fault = _record(<Bytes>view.buf, place, view.len, &row)
                    if fault:
                        break
                    offsets[number] = row.offset_delta
                    timestamps[number] = row.timestamp_delta
                    starts[number] = row.start - start
                    key_starts[number] = row.key_start - start
                    key_sizes[number] = row.key_size
                    value_starts[number] = row.value_start - start
                    value_sizes[number] = row.value_size
                    ends[number] = row.end - start
                    place = row.end
                    number += 1
        if not fault and number < count:
            fault = _record(<Bytes>view.buf, place, view.len, &row)
        if not fault and place != view.len:
            fault = TRAILING_BYTES
    finally:
        PyBuffer_Release(&view)
    if number < rows:
        offsets = timestamps = starts = key_starts = key_sizes = value_starts = value_sizes = ends = None
        for column in columns:
            del column[number:]
    return (number, place - start, fault, *columns)


cdef inline int _write_varint(unsigned char* out, unsigned long long value) noexcept nogil:
    """Writes a non-negative number as a zigzag varint; returns its size in bytes."""
    cdef int size = 0
    value <<= 1
    while value > 0x7F:
        out[size] = <unsigned char>(value & 0x7F) | 0x80
        value >>= 7
        size += 1
    out[size] = <unsigned char>value
    return size + 1


cdef long long _renumber(Bytes data, long long place, long long end, long long count, unsigned char* out) noexcept nogil:
    cdef Row row
    cdef long long index, made = 0, head, tail
    cdef int size
    cdef unsigned char delta[10]
    for index in range(count):
        if _record(data, place, end, &row):
            return -1
        size = _write_varint(delta, index)
        head = row.offset_at - (row.end - row.size)
        tail = row.end - row.offset_end
        made += _write_varint(&out[made], head + size + tail)
        memcpy(&out[made], &data[row.end - row.size], head)
        made += head
        memcpy(&out[made], delta, size)
        made += size
        memcpy(&out[made], &data[row.offset_end], tail)
        made += tail
        place = row.end
    return made


def renumber(data, long long start, long long count):
    """Implements `walk.Walker.renumber`."""
    cdef Py_buffer view
    cdef long long made
    cdef unsigned char* made_in
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if start < 0 or start > view.len or count < 0 or count > (view.len - start) // 7:
            raise ValueError(f"{count} records from byte {start} of {view.len}")
        # A record grows by at most four bytes in its offset delta and one in its length.
        out = PyByteArray_FromStringAndSize(NULL, view.len - start + 5 * count)
        made_in = <unsigned char*>PyByteArray_AS_STRING(out)
        with nogil:
            made = _renumber(<Bytes>view.buf, start, view.len, count, made_in)
        if made < 0:
            raise ValueError("a record is incomplete")
    finally:
        PyBuffer_Release(&view)
    PyByteArray_Resize(out, made)
    return out
