"""A Kafka connection for tests of the wire format: every byte is written by hand.

It does not use the broker's own codec, so that a mistake there cannot hide.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from types import TracebackType

import crc32c

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
PRODUCE = 0
FETCH = 1
LIST_OFFSETS = 2
METADATA = 3
API_VERSIONS = 18


class Wire:
    """One connection; requests with header version 1."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", timeout_s: float = 60.0) -> None:
        self.socket = socket.create_connection((host, port), timeout_s)
        self._correlation_id = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    def send_frame(self, body: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def request(self, api_key: int, version: int, body: bytes = b"") -> bytes:
        """Sends one request and returns the body of its answer, after the correlation id."""
        self._correlation_id += 1
        header = struct.pack(">hhih", api_key, version, self._correlation_id, -1)
        self.send_frame(header + body)
        frame = self.read_frame()
        assert frame is not None, "the server closed the connection"
        assert struct.unpack_from(">i", frame)[0] == self._correlation_id
        return frame[4:]

    def read_frame(self) -> bytes | None:
        """Returns the next frame, or None when the server has closed the connection."""
        head = self._read(4)
        if head is None:
            return None
        return self._read(struct.unpack(">i", head)[0])

    def closed_by_server(self) -> bool:
        """Returns whether the server closes the connection without sending anything before."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _read(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionError:
                return None
            if not part:
                return None
            data += part
        return data


def fetch_records(port: int, topic: str, partition: int, offset: int = 0, host: str = "127.0.0.1") -> bytes:
    """Returns the record batches that a Fetch v4 returns from an offset on."""
    name = topic.encode()
    body = struct.pack(">iiiib", -1, 0, 1, 50_000_000, 0)
    body += struct.pack(f">ih{len(name)}siiqi", 1, len(name), name, 1, partition, offset, 50_000_000)
    with Wire(port, host=host) as wire:
        answer = wire.request(FETCH, 4, body)
    # throttle time, one topic, its name, one partition: index, error, high watermark, last stable offset
    at = 4 + 4 + 2 + len(name) + 4
    _, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
    assert error == 0, f"fetch of {topic}-{partition}: error {error}"
    at += 26 + 16 * max(aborted, 0)
    (size,) = struct.unpack_from(">i", answer, at)
    return answer[at + 4 : at + 4 + size]


def codecs_on_the_wire(port: int, topic: str, partition: int) -> set[str]:
    """Returns the compression codecs of a partition's batches."""
    records = fetch_records(port, topic, partition)
    found = set()
    position = 0
    while position < len(records):
        (size,) = struct.unpack_from(">i", records, position + 8)
        (attributes,) = struct.unpack_from(">h", records, position + 21)
        found.add(CODEC_NAMES[attributes & 7])
        position += 12 + size
    return found


def record(delta: int, key: bytes | None, value: bytes | None) -> bytes:
    """Returns one record of a v2 batch, its lengths as zigzag varints."""
    body = b"\x00" + _varint(0) + _varint(delta) + _nullable(key) + _nullable(value) + _varint(0)
    return _varint(len(body)) + body


def batch(
    records: Sequence[bytes],
    *,
    magic: int = 2,
    attributes: int = 0,
    base_offset: int = 0,
    last_delta: int | None = None,
    count: int | None = None,
    timestamp: int = 1_700_000_000_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
    crc_error: int = 0,
    size_error: int = 0,
) -> bytes:
    """Returns a v2 batch; named arguments differ from what a correct client would write."""
    count = len(records) if count is None else count
    last_delta = len(records) - 1 if last_delta is None else last_delta
    checked = struct.pack(">hiqqqhii", attributes, last_delta, timestamp, timestamp, *producer, count) + b"".join(
        records
    )
    crc = (crc32c.crc32c(checked) + crc_error) & 0xFFFFFFFF
    head = struct.pack(">qiibI", base_offset, 9 + len(checked) + size_error, -1, magic, crc)
    return head + checked


def produce_body(topic: str, partition: int, records: bytes | None, *, acks: int = 1) -> bytes:
    """Returns the body of a Produce request, the same in versions 3 to 8."""
    name = topic.encode()
    body = struct.pack(f">hhiih{len(name)}si", -1, acks, 10_000, 1, len(name), name, 1)
    return body + struct.pack(">ii", partition, -1 if records is None else len(records)) + (records or b"")


def produce(port: int, topic: str, partition: int, records: bytes) -> tuple[int, int]:
    """Returns the error code and base offset of a Produce v7."""
    with Wire(port) as wire:
        answer = wire.request(PRODUCE, 7, produce_body(topic, partition, records))
    _, error, offset = struct.unpack_from(">ihq", answer, 4 + 2 + len(topic.encode()) + 4)
    return error, offset


def list_offsets(port: int, topic: str, partition: int, timestamp: int) -> tuple[int, int]:
    """Returns the error code and offset of a ListOffsets v1."""
    name = topic.encode()
    body = struct.pack(f">iih{len(name)}siiq", -1, 1, len(name), name, 1, partition, timestamp)
    with Wire(port) as wire:
        answer = wire.request(LIST_OFFSETS, 1, body)
    _, error, _, offset = struct.unpack_from(">ihqq", answer, 4 + 2 + len(name) + 4)
    return error, offset


def end_offset(port: int, topic: str, partition: int) -> int:
    error, offset = list_offsets(port, topic, partition, -1)
    assert error == 0, f"ListOffsets of {topic}-{partition}: error {error}"
    return offset


def wait_until_led(port: int, topic: str, partition: int = 0) -> None:
    """Waits until a partition has a leader: a topic is created a moment before, and requests without a client are not
    retried.
    """
    deadline = time.monotonic() + 120
    while (error := list_offsets(port, topic, partition, -1)[0]) != 0:
        assert time.monotonic() < deadline, f"{topic}-{partition} has no leader: error {error}"
        time.sleep(0.01)


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _nullable(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data
