"""The frame reader returns exactly the frames that were sent, however the stream is cut, and bounds its memory."""

from __future__ import annotations

import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import DecodeError, FrameTooLarge
from barnabas.protocol.frame_reader import FrameReader, ReceiveArea

_MAX = 1 << 20


def feed(reader: FrameReader, data: bytes, cut: int) -> list[bytes]:
    """Feeds `data` in pieces of at most `cut` bytes, and returns the resulting frames."""
    frames = []
    position = 0
    while position < len(data):
        room = reader.get_buffer()
        assert len(room) > 0
        count = min(cut, len(room), len(data) - position)
        room[:count] = data[position : position + count]
        reader.received(count)
        position += count
        while (frame := reader.next_frame()) is not None:
            frames.append(bytes(frame))
    return frames


def framed(bodies: list[bytes]) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


@given(
    bodies=st.lists(st.binary(max_size=300), max_size=20),
    cut=st.integers(1, 700),
    area=st.integers(16, 400),
)
def test_frames_come_out_as_sent(bodies: list[bytes], cut: int, area: int) -> None:
    reader = FrameReader(ReceiveArea(area), _MAX)
    assert feed(reader, framed(bodies), cut) == bodies


@given(sizes=st.lists(st.integers(0, 400_000), min_size=1, max_size=4), cut=st.integers(10_000, 300_000))
def test_large_frames_come_out_as_sent(sizes: list[int], cut: int) -> None:
    bodies = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    assert feed(FrameReader(ReceiveArea(), _MAX), framed(bodies), cut) == bodies


def test_two_connections_share_one_area_without_mixing() -> None:
    area = ReceiveArea(64)
    one, two = FrameReader(area, _MAX), FrameReader(area, _MAX)
    stream_one, stream_two = framed([b"a" * 50, b"b" * 10]), framed([b"c" * 30, b"d" * 70])
    out_one: list[bytes] = []
    out_two: list[bytes] = []
    for start in range(0, 128, 7):
        out_one += feed(one, stream_one[start : start + 7], 7)
        out_two += feed(two, stream_two[start : start + 7], 7)
    assert out_one == [b"a" * 50, b"b" * 10]
    assert out_two == [b"c" * 30, b"d" * 70]


@given(sizes=st.lists(st.integers(0, 900_000), min_size=1, max_size=4), cut=st.integers(10_000, 300_000))
def test_allocated_buffers_hold_the_same_frames(sizes: list[int], cut: int) -> None:
    bodies = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    area = ReceiveArea(allocate=lambda size: memoryview(mmap.mmap(-1, size)))
    reader = FrameReader(area, _MAX)
    assert feed(reader, framed(bodies), cut) == bodies
    reader.close()
    assert area.held_bytes == 0


@given(
    streams=st.lists(st.lists(st.integers(0, 200_000), max_size=3), min_size=1, max_size=4),
    cut=st.integers(1_000, 300_000),
    small=st.booleans(),
)
def test_held_bytes_are_those_of_all_connections(streams: list[list[int]], cut: int, small: bool) -> None:
    area = ReceiveArea()
    if small:
        area.read_bytes_max = 16_384
    readers = [FrameReader(area, _MAX) for _ in streams]
    for reader, sizes in zip(readers, streams, strict=True):
        data = framed([b"x" * size for size in sizes])
        feed(reader, data[:-1], cut)
        assert reader.held_bytes <= sum(4 + size for size in sizes)
        assert area.held_bytes == sum(each.held_bytes for each in readers)
        if reader.missing_bytes:
            assert reader.missing_bytes == 1
    for reader in readers:
        reader.close()
    assert area.held_bytes == 0


def test_an_announced_frame_costs_nothing_until_it_comes() -> None:
    reader = FrameReader(ReceiveArea(), 100 * _MAX)
    assert feed(reader, (90 * _MAX).to_bytes(4, "big"), 4) == []
    assert len(reader.get_buffer()) <= 1 << 17


def test_buffers_of_finished_large_frames_are_used_again() -> None:
    area = ReceiveArea()
    body = b"x" * 600_000
    for _ in range(3):
        reader = FrameReader(area, _MAX)
        assert feed(reader, framed([body]), 100_000) == [body]
        reader.get_buffer()
        reader.close()
    assert sum(len(buffer) for buffer in area._free) <= 4 * 4 * _MAX


@pytest.mark.parametrize("size", [_MAX + 1, 0x7FFFFFFF])
def test_a_frame_above_the_limit_is_refused(size: int) -> None:
    with pytest.raises(FrameTooLarge):
        feed(FrameReader(ReceiveArea(), _MAX), size.to_bytes(4, "big"), 4)


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(DecodeError):
        feed(FrameReader(ReceiveArea(), _MAX), b"\xff\xff\xff\xff", 4)


def test_reads_stay_as_large_as_the_first_after_an_incomplete_frame() -> None:
    """An own buffer of 4 kB for the rest of a frame made every later read as small as that."""
    area = ReceiveArea()
    reader = FrameReader(area, _MAX)
    stream = framed([bytes([number]) * 197 for number in range(200)]) * 50
    sizes = []
    position = 0
    while position < len(stream):
        room = reader.get_buffer()
        sizes.append(len(room))
        count = min(len(room), 60_001, len(stream) - position)
        room[:count] = stream[position : position + count]
        reader.received(count)
        position += count
        while reader.next_frame() is not None:
            pass
    assert min(sizes) > len(area.view) // 2
    assert area.held_bytes == 0


def test_an_incomplete_frame_outlives_a_read_that_brought_nothing() -> None:
    area = ReceiveArea()
    one, two = FrameReader(area, _MAX), FrameReader(area, _MAX)
    stream = framed([b"a" * 100])
    assert feed(one, stream[:60], 60) == []
    one.get_buffer()  # The host finds nothing to read, and does not call `received`.
    assert feed(two, framed([b"b" * 100]), 104) == [b"b" * 100]
    assert feed(one, stream[60:], 60) == [b"a" * 100]
