"""A Kafka connection for tests that look at the wire itself: every byte is laid by hand.

Nothing here uses the broker's own codec, so a mistake there cannot hide.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
FETCH = 1
API_VERSIONS = 18


class Wire:
    """One connection; requests with header version 1."""

    def __init__(self, port: int, *, timeout_s: float = 10.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
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
        """The next frame, or None when the server has closed the connection."""
        head = self._read(4)
        if head is None:
            return None
        return self._read(struct.unpack(">i", head)[0])

    def closed_by_server(self) -> bool:
        """Waits until the server closes; anything that it sends before is an answer and says False."""
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


def fetch_records(port: int, topic: str, partition: int, offset: int = 0) -> bytes:
    """The record batches that a Fetch v4 answers from an offset on."""
    name = topic.encode()
    body = struct.pack(">iiiib", -1, 0, 1, 50_000_000, 0)
    body += struct.pack(f">ih{len(name)}siiqi", 1, len(name), name, 1, partition, offset, 50_000_000)
    with Wire(port) as wire:
        answer = wire.request(FETCH, 4, body)
    # throttle time, one topic, its name, one partition: index, error, high watermark, last stable offset
    at = 4 + 4 + 2 + len(name) + 4
    _, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
    assert error == 0, f"fetch of {topic}-{partition}: error {error}"
    at += 26 + 16 * max(aborted, 0)
    (size,) = struct.unpack_from(">i", answer, at)
    return answer[at + 4 : at + 4 + size]


def codecs_on_the_wire(port: int, topic: str, partition: int) -> set[str]:
    """The compression codecs of the batches that a partition holds."""
    records = fetch_records(port, topic, partition)
    found = set()
    position = 0
    while position < len(records):
        (size,) = struct.unpack_from(">i", records, position + 8)
        (attributes,) = struct.unpack_from(">h", records, position + 21)
        found.add(CODEC_NAMES[attributes & 7])
        position += 12 + size
    return found
