# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled twin of `numpy_parser`: the same places from the same bytes, and the same bytes refused.

Nothing is read before it is known to lie inside its record, whatever the bytes say. Plain buffers and numpy arrays as
memory views: no headers of numpy are needed to build it.
"""

from libc.string cimport memcpy

import numpy as np
import pyarrow as pa

from barnabas.records.header import invalid
from barnabas.spark.parsed import Parsed

NAME = "compiled"

ctypedef const unsigned char* Bytes

cdef enum:
    VARINT_BYTES_MAX = 5
    VARLONG_BYTES_MAX = 10


cdef inline bint _varint(Bytes data, long long* place, long long end, int size_max, long long* value) noexcept nogil:
    """The zigzag varint at `place`, which moves behind it; False where there is none before `end`."""
    cdef unsigned long long raw = 0
    cdef unsigned long long byte
    cdef long long at = place[0]
    cdef int index
    for index in range(size_max):
        if at >= end:
            return False
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            value[0] = <long long>(raw >> 1) ^ -<long long>(raw & 1)
            place[0] = at
            return True
    return False


def parse(data, list spans):
    """See `parsed.Parser`."""
    cdef long long total = 0
    cdef long long start, end, count, size = len(data)
    for start, end, count in spans:
        # A record takes at least 7 bytes: refuse before allocating.
        if not 0 <= count <= end - start or start < 0 or end > size:
            raise invalid(f"a record count of {count} in {end - start} bytes of records")
        total += count
    arrays = tuple([np.empty(total, np.int64) for _ in Parsed._fields])
    if not total:
        for start, end, count in spans:
            if end != start:
                raise invalid(f"no records in {end - start} bytes")
        return Parsed(*arrays)
    cdef const unsigned char[::1] view = data
    cdef long long[::1] timestamps = arrays[0], offsets = arrays[1]
    cdef long long[::1] key_starts = arrays[2], key_sizes = arrays[3]
    cdef long long[::1] value_starts = arrays[4], value_sizes = arrays[5]
    cdef long long[::1] header_starts = arrays[6], header_counts = arrays[7], ends = arrays[8]
    cdef Bytes raw = &view[0]
    cdef long long row = 0, last, place, length, stop, number
    for start, end, count in spans:
        place = start
        last = row + count
        with nogil:
            while row < last:
                if not _varint(raw, &place, end, VARINT_BYTES_MAX, &length) or length < 0 or length > end - place:
                    break
                stop = place + length
                place += 1
                if not _varint(raw, &place, stop, VARLONG_BYTES_MAX, &number):
                    break
                timestamps[row] = number
                if not _varint(raw, &place, stop, VARINT_BYTES_MAX, &number):
                    break
                offsets[row] = number
                if not _varint(raw, &place, stop, VARINT_BYTES_MAX, &number) or number > stop - place:
                    break
                key_starts[row] = place
                key_sizes[row] = number
                if number > 0:
                    place += number
                if not _varint(raw, &place, stop, VARINT_BYTES_MAX, &number) or number > stop - place:
                    break
                value_starts[row] = place
                value_sizes[row] = number
                if number > 0:
                    place += number
                if not _varint(raw, &place, stop, VARINT_BYTES_MAX, &number) or number < 0:
                    break
                # A header takes at least 2 bytes.
                if 2 * number > stop - place or (number == 0 and place != stop):
                    break
                header_starts[row] = place
                header_counts[row] = number
                ends[row] = stop
                place = stop
                row += 1
        if row < last:
            raise invalid(f"record {row - last + count} of {count} is none")
        if place != end:
            raise invalid(f"{count} records end at byte {place - start} of {end - start}")
    return Parsed(*arrays)


def binary(data, starts, sizes):
    """See `parsed.Parser`."""
    cdef long long rows = len(starts)
    if not rows:
        return pa.array([], pa.binary())
    cdef const long long[::1] start = starts
    cdef const long long[::1] size = sizes
    cdef const unsigned char[::1] view = data
    edges = np.empty(rows + 1, np.int32)
    cdef int[::1] edge = edges
    cdef long long row, total = 0, length = len(view), nulls = 0
    for row in range(rows):
        edge[row] = <int>total
        if size[row] < 0:
            nulls += 1
        elif start[row] < 0 or size[row] > length - start[row]:
            raise invalid("a byte string reaches beyond its records")
        else:
            total += size[row]
    edge[rows] = <int>total
    assert total < 2**31, "more bytes than one array holds"
    found = np.empty(total, np.uint8)
    cdef unsigned char[::1] out = found
    validity = None
    cdef unsigned char[::1] valid
    if nulls:
        bits = np.zeros((rows + 7) // 8, np.uint8)
        validity = pa.py_buffer(bits)
        valid = bits
        for row in range(rows):
            if size[row] >= 0:
                valid[row >> 3] |= <unsigned char>(1 << (row & 7))
    if total:
        with nogil:
            for row in range(rows):
                if size[row] > 0:
                    memcpy(&out[edge[row]], &view[start[row]], size[row])
    return pa.Array.from_buffers(pa.binary(), rows, [validity, pa.py_buffer(edges), pa.py_buffer(found)], nulls)
