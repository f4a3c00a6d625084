"""Reads of data outside the page cache, from a real process: other clients are not delayed, the bytes are right, and
few files are open however many are read.
"""

from __future__ import annotations

import hashlib
import os
import resource
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka.admin
import pytest
from tests.clients.servers import Server
from tests.clients.wire import Wire, wait_until_led

NewServer = Callable[..., Server]

TOTAL_BYTES = 300 * 1024 * 1024
SLICE_BYTES = 1024 * 1024
#: The time that a request can wait while another client reads 300 MB from the disk. The exact value depends on the
#: machine; bench/ measures it. The system's counters of each thread show that other threads waited for the disk. A
#: read-ahead for a loop that finds all in memory is counted for the loop.
SLOWEST_S = 5.0
FETCH, METADATA = 1, 3


def create(server: Server, topic: str, **configs: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3})
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 1, config=settings)])[topic].result(120)
    wait_until_led(server.port, topic)


def fill(server: Server, topic: str, total_bytes: int) -> None:
    settings = {"bootstrap.servers": server.bootstrap, "linger.ms": 20, "batch.size": 1_000_000, "log_level": 3}
    producer = confluent_kafka.Producer(settings)
    value = os.urandom(100_000)
    for number in range(total_bytes // len(value)):
        while True:
            try:
                producer.produce(topic, value, key=str(number), partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def log_bytes(server: Server, topic: str) -> Iterator[bytes]:
    for path in segments(server, topic):
        yield path.read_bytes()


def segments(server: Server, topic: str) -> list[Path]:
    return sorted((server.data_dir / f"{topic}-0").glob("*.log"))


def drop_from_cache(paths: list[Path]) -> bool:
    """Evicts files from the page cache. Returns whether the first page and the middle one of each file are out of
    it.
    """
    cold = True
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            for position in (0, os.fstat(fd).st_size // 2):
                cold = cold and not is_cached(fd, position)
        finally:
            os.close(fd)
    return cold


def is_cached(fd: int, position: int) -> bool:
    try:
        return os.preadv(fd, [bytearray(1)], position, os.RWF_NOWAIT) >= 0
    except BlockingIOError:
        return False


def disk_reads(server: Server) -> tuple[int, int]:
    """Bytes that came from the disk for the thread of the loop, and for all threads."""
    threads = {int(path.name): path / "io" for path in Path(f"/proc/{server.pid}/task").iterdir()}
    counts = {
        thread: int(next(line for line in path.read_text().splitlines() if line.startswith("read_bytes")).split()[1])
        for thread, path in threads.items()
    }
    return counts[server.pid], sum(counts.values())


def fetch(wire: Wire, topic: str, offset: int, max_bytes: int = SLICE_BYTES) -> bytes:
    """Returns the records in the answer to a Fetch of version 4 for one partition."""
    name = topic.encode()
    body = struct.pack(">iiiib", -1, 500, 1, 1 << 26, 0) + struct.pack(">ih", 1, len(name)) + name
    answer = wire.request(FETCH, 4, body + struct.pack(">iiqi", 1, 0, offset, max_bytes))
    position = 4 + 4 + 2 + len(name) + 4
    _, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, position)
    assert error == 0
    position += struct.calcsize(">ihqqi") + 16 * max(0, aborted)
    return answer[position + 4 :]


def read_all(server: Server, topic: str) -> Iterator[bytes]:
    """Yields whole batches, byte for byte, to the end of the log."""
    offset = 0
    with Wire(server.port, timeout_s=60) as wire:
        while True:
            data = fetch(wire, topic, offset)
            position = 0
            while len(data) - position >= 61:
                base, length = struct.unpack_from(">qi", data, position)
                if position + 12 + length > len(data):
                    break
                offset = base + struct.unpack_from(">i", data, position + 23)[0] + 1
                position += 12 + length
            if position == 0:
                return
            yield data[:position]


class Bystander:
    """Asks for metadata all the time on a connection of its own, and notes how long the answers took."""

    def __init__(self, server: Server) -> None:
        self.waits_s: list[float] = []
        self._wire = Wire(server.port, timeout_s=60)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._wire.socket.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            start = time.perf_counter()
            self._wire.request(METADATA, 1, struct.pack(">i", 0))
            self.waits_s.append(time.perf_counter() - start)
            time.sleep(0.001)


@pytest.fixture
def cold_server(own_server: NewServer) -> Server:
    """`cold` has 300 MB in several segments, none of which is in the page cache."""
    server = own_server(log_segment_bytes=str(64 * 1024 * 1024))
    server.start()
    create(server, "cold")
    fill(server, "cold", TOTAL_BYTES)
    if not hasattr(os, "RWF_NOWAIT"):
        pytest.skip("this system does not tell what is in its page cache")
    if not drop_from_cache(segments(server, "cold")):
        pytest.skip("the page cache keeps what it is told to drop (a file system in memory?)")
    return server


def test_a_reader_of_cold_data_holds_up_nobody(cold_server: Server) -> None:
    received = hashlib.sha256()
    loop_before, all_before = disk_reads(cold_server)
    with Bystander(cold_server) as bystander:
        start = time.perf_counter()
        count = 0
        for data in read_all(cold_server, "cold"):
            received.update(data)
            count += len(data)
        seconds = time.perf_counter() - start
    expected = hashlib.sha256()
    for data in log_bytes(cold_server, "cold"):
        expected.update(data)
    assert count >= TOTAL_BYTES * 0.99
    assert received.digest() == expected.digest()
    loop_after, all_after = disk_reads(cold_server)
    assert all_after - all_before > TOTAL_BYTES * 0.9, "read from the disk"
    assert (all_after - all_before) - (loop_after - loop_before) > SLICE_BYTES, "and waited for beside the loop"
    waits_s = sorted(bystander.waits_s)
    print(
        f"\n{count / seconds / 1e6:.0f} MB/s; others: {len(waits_s)} requests, "
        f"p50 {waits_s[len(waits_s) // 2] * 1e3:.2f} ms, p99 {waits_s[int(len(waits_s) * 0.99)] * 1e3:.2f} ms, "
        f"slowest {waits_s[-1] * 1e3:.2f} ms"
    )
    assert waits_s[-1] < SLOWEST_S


def test_few_files_are_open_however_many_are_read(own_server: NewServer) -> None:
    server = own_server(log_segment_bytes=str(1024 * 1024))
    server.start()
    create(server, "many")
    fill(server, "many", 160 * 1024 * 1024)
    paths = segments(server, "many")
    assert len(paths) > 150
    server.stop()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (96, hard))
    try:
        server.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    drop_from_cache(paths)
    most = 0
    received = hashlib.sha256()
    for data in read_all(server, "many"):
        received.update(data)
        most = max(most, len(os.listdir(f"/proc/{server.pid}/fd")))
    expected = hashlib.sha256(b"".join(log_bytes(server, "many")))
    assert received.digest() == expected.digest()
    assert 20 < most < 96
