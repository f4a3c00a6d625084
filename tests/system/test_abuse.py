"""Bytes that no client should send: they end their own connection, and no other client is affected."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clients.drivers import Record
from tests.clients.python_clients import ConfluentKafka
from tests.clients.servers import Server, target
from tests.clients.wire import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    Wire,
    batch,
    end_offset,
    fetch_records,
    produce,
    produce_body,
    record,
    wait_until_led,
)

Names = Callable[[str], str]

UNKNOWN_SERVER_ERROR = -1
NONE = 0
CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10
INVALID_TIMESTAMP = 32
UNSUPPORTED_VERSION = 35
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
INVALID_RECORD = 87

FRAME_LIMIT = 104_857_600  # socket.request.max.bytes


def create_topic(server: Server, topic: str) -> None:
    ConfluentKafka(server.bootstrap).create_topic(topic, 1)
    wait_until_led(server.port, topic)


def resident_bytes(pid: int) -> int:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024


@pytest.fixture
def others_unharmed(server: Server, new_topic_name: Names) -> Iterator[None]:
    """Keeps a connection open through the test and then sees that it and the data path still work."""
    with Wire(server.port) as bystander:
        bystander.request(API_VERSIONS, 0)
        before = resident_bytes(server.pid)
        logged = server.log_path.stat().st_size
        yield
        assert bystander.request(API_VERSIONS, 0)[:2] == b"\x00\x00"
        assert resident_bytes(server.pid) - before < 150_000_000
    topic = new_topic_name("after-abuse")
    client = ConfluentKafka(server.bootstrap)
    client.create_topic(topic, 1)
    client.produce(topic, "lz4", [Record(b"k", b"v")])
    assert [each.value for each in client.consume(topic, 0, 1)] == [b"v"]
    if target() == "barnabas":
        assert b"Traceback" not in server.log_path.read_bytes()[logged:]


@pytest.mark.usefixtures("others_unharmed")
def test_random_bytes_end_their_connection(server: Server) -> None:
    chance = random.Random(1)
    for _ in range(50):
        with Wire(server.port) as wire:
            wire.socket.sendall(b"\x7f" + chance.randbytes(chance.randrange(8, 2_000)))
            assert wire.closed_by_server()


@pytest.mark.usefixtures("others_unharmed")
@pytest.mark.parametrize("size", [-1, -(2**31), FRAME_LIMIT + 1, 2**31 - 1])
def test_impossible_frame_sizes_end_the_connection(server: Server, size: int) -> None:
    with Wire(server.port) as wire:
        wire.socket.sendall(struct.pack(">i", size))
        assert wire.closed_by_server()


@pytest.mark.usefixtures("others_unharmed")
def test_truncated_frames_are_forgotten_with_their_connection(server: Server) -> None:
    for sent in (1, 3, 4, 5, 9, 60):
        with Wire(server.port) as wire:
            wire.socket.sendall((struct.pack(">i", 100) + bytes(96))[:sent])


@pytest.mark.usefixtures("others_unharmed")
@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00",
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", -5, 0, 1, -1),
        struct.pack(">hhih", METADATA, 99, 1, -1),
        struct.pack(">hhih", METADATA, -1, 1, -1),
        struct.pack(">hhih", API_VERSIONS, 0, 1, 500),
        struct.pack(">hhihi", METADATA, 1, 1, -1, 2**31 - 1),
        struct.pack(">hhihi", METADATA, 1, 1, -1, 1_000_000),
        struct.pack(">hhihih", METADATA, 1, 1, -1, 1, 30_000),
        struct.pack(">hhihih", METADATA, 1, 1, -1, 1, -1),
        struct.pack(">hhih", FETCH, 4, 1, -1) + bytes(5),
        struct.pack(">hhih", PRODUCE, 7, 1, -1),
        struct.pack(">hhihB", METADATA, 12, 1, -1, 0) + b"\xff\xff\xff\xff\x7f",
    ],
    ids=[
        "empty",
        "one byte",
        "unknown api",
        "negative api",
        "version too new",
        "negative version",
        "client id too long",
        "array of two billion",
        "array of a million",
        "string too long",
        "null where none may be",
        "fetch cut off",
        "produce without body",
        "endless varint",
    ],
)
def test_malformed_requests_end_the_connection(server: Server, frame: bytes) -> None:
    with Wire(server.port) as wire:
        wire.send_frame(frame)
        assert wire.closed_by_server()


@pytest.mark.usefixtures("others_unharmed")
def test_too_new_api_versions_request_is_answered_in_version_zero(server: Server) -> None:
    with Wire(server.port) as wire:
        answer = wire.request(API_VERSIONS, 99, b"\x00junk")
        error, count = struct.unpack_from(">hi", answer)
        ranges = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[6:])}
        assert error == UNSUPPORTED_VERSION
        assert count == len(ranges)
        assert ranges[API_VERSIONS] == (0, 4)
        again = wire.request(API_VERSIONS, 0)
        assert again[:2] == b"\x00\x00"


@pytest.mark.usefixtures("others_unharmed")
def test_requests_in_one_packet_are_answered_in_their_order(server: Server) -> None:
    with Wire(server.port) as wire:
        frames = [struct.pack(">hhih", API_VERSIONS, 0, number, -1) for number in range(100)]
        wire.socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
        answered = []
        for _ in frames:
            frame = wire.read_frame()
            assert frame is not None
            answered.append(struct.unpack_from(">i", frame)[0])
        assert answered == list(range(100))


@pytest.mark.usefixtures("others_unharmed")
def test_a_request_that_arrives_byte_by_byte_is_answered(server: Server) -> None:
    with Wire(server.port) as wire:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frame = struct.pack(">hhih", API_VERSIONS, 0, 77, -1)
        for byte in struct.pack(">i", len(frame)) + frame:
            wire.socket.sendall(bytes([byte]))
        answer = wire.read_frame()
        assert answer is not None
        assert answer[:6] == struct.pack(">ih", 77, NONE)


@pytest.mark.usefixtures("others_unharmed")
def test_announced_but_unsent_frames_cost_no_memory(server: Server) -> None:
    if target() == "kafka":
        pytest.skip("Kafka reserves the memory of a frame as soon as it knows its size")
    before = resident_bytes(server.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            wire = stack.enter_context(Wire(server.port))
            wire.socket.sendall(struct.pack(">ihhih", FRAME_LIMIT, METADATA, 1, 1, -1) + bytes(10_000))
        with Wire(server.port) as other:
            other.request(API_VERSIONS, 0)
        assert resident_bytes(server.pid) - before < 50_000_000


@pytest.mark.usefixtures("others_unharmed")
def test_a_client_that_asks_and_never_reads_costs_little_memory(server: Server, new_topic_name: Names) -> None:
    topic = new_topic_name("unread")
    create_topic(server, topic)
    for _ in range(4):
        assert produce(server.port, topic, 0, batch([record(0, None, bytes(900_000))]))[0] == NONE
    name = struct.pack(f">h{len(topic)}s", len(topic), topic.encode())
    limits = struct.pack(">iiiibi", -1, 0, 1, 4_000_000, 0, 1)
    body = struct.pack(">hhih", FETCH, 4, 1, -1) + limits + name + struct.pack(">iiqi", 1, 0, 0, 4_000_000)
    before = resident_bytes(server.pid)
    with Wire(server.port) as wire:
        wire.socket.settimeout(1.0)
        with contextlib.suppress(TimeoutError):
            for _ in range(2_000):
                wire.socket.sendall(struct.pack(">i", len(body)) + body)
        with Wire(server.port) as other:
            other.request(API_VERSIONS, 0)
        assert resident_bytes(server.pid) - before < 100_000_000


ONE = [record(0, b"k", b"v")]
BAD_BATCHES = {
    "crc": (batch(ONE, crc_error=1), CORRUPT_MESSAGE),
    "magic 3": (batch(ONE, magic=3), CORRUPT_MESSAGE),
    "negative magic": (batch(ONE, magic=-1), CORRUPT_MESSAGE),
    "count too high": (batch(ONE, count=2), INVALID_RECORD),
    "count too low": (batch([record(0, b"k", b"v"), record(1, b"k", b"v")], count=1), INVALID_RECORD),
    "negative count": (batch(ONE, count=-1), INVALID_RECORD),
    "no records": (batch([], last_delta=-1), INVALID_RECORD),
    "last offset delta": (batch(ONE, last_delta=5), INVALID_RECORD),
    "control batch": (batch(ONE, attributes=0x20), INVALID_RECORD),
    "unknown codec": (batch(ONE, attributes=5), UNKNOWN_SERVER_ERROR),
    "too large": (batch([record(0, None, bytes(1_100_000))]), MESSAGE_TOO_LARGE),
    "cut off": (batch(ONE)[:-1], INVALID_RECORD),
    "header only": (batch(ONE)[:20], INVALID_RECORD),
    "two batches": (batch(ONE) * 2, INVALID_RECORD),
    "size too small": (batch(ONE, size_error=-30), CORRUPT_MESSAGE),
    "far future": (batch(ONE, timestamp=9_000_000_000_000), INVALID_TIMESTAMP),
    "transactional without an id": (batch(ONE, attributes=0x10), TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}


@pytest.mark.usefixtures("others_unharmed")
@pytest.mark.parametrize("name", BAD_BATCHES)
def test_bad_batches_are_refused_and_nothing_is_stored(server: Server, new_topic_name: Names, name: str) -> None:
    data, expected = BAD_BATCHES[name]
    topic = new_topic_name("bad-batches")
    create_topic(server, topic)
    good = batch([record(0, b"k", b"before")])
    assert produce(server.port, topic, 0, good) == (NONE, 0)

    assert produce(server.port, topic, 0, data) == (expected, -1)

    assert end_offset(server.port, topic, 0) == 1
    assert produce(server.port, topic, 0, good) == (NONE, 1)
    stored = fetch_records(server.port, topic, 0)
    assert len(stored) == 2 * len(good)
    assert stored.count(b"before") == 2


@pytest.mark.usefixtures("others_unharmed")
def test_produce_without_acks_that_fails_closes_the_connection(server: Server, new_topic_name: Names) -> None:
    topic = new_topic_name("no-acks")
    create_topic(server, topic)
    with Wire(server.port) as wire:
        header = struct.pack(">hhih", PRODUCE, 7, 1, -1)
        wire.send_frame(header + produce_body(topic, 0, batch(ONE), acks=0))
        assert wire.request(API_VERSIONS, 0)[:2] == b"\x00\x00"
        wire.send_frame(header + produce_body(topic, 0, batch(ONE, crc_error=1), acks=0))
        assert wire.closed_by_server()
    assert end_offset(server.port, topic, 0) == 1


@pytest.mark.usefixtures("others_unharmed")
def test_mutated_requests_are_answered_or_end_their_connection(server: Server, new_topic_name: Names) -> None:
    """Valid requests with a few bytes changed: any answer will do, as long as the server and its data stay whole."""
    topic = new_topic_name("mutated")
    create_topic(server, topic)
    good = batch([record(number, b"key", b"value") for number in range(3)])
    assert produce(server.port, topic, 0, good) == (NONE, 0)
    name = struct.pack(f">h{len(topic)}s", len(topic), topic.encode())
    fetch_part = struct.pack(">iiqi", 1, 0, 0, 1_000_000)
    seeds = [
        (PRODUCE, 7, produce_body(topic, 0, good)),
        (FETCH, 4, struct.pack(">iiiibi", -1, 10, 1, 1_000_000, 0, 1) + name + fetch_part),
        (2, 1, struct.pack(">ii", -1, 1) + name + struct.pack(">iiq", 1, 0, -1)),
        (METADATA, 4, struct.pack(">i", 1) + name + b"\x00"),
        (METADATA, 12, b"\x00\x01\x01\x00\x00"),
        (10, 0, struct.pack(">h5s", 5, b"group")),
        (API_VERSIONS, 3, b"\x00\x05name\x05vers\x00"),
        (22, 0, struct.pack(">hi", -1, 1000)),
        (32, 1, struct.pack(">ib", 1, 2) + name + struct.pack(">ib", -1, 0)),
        (23, 3, struct.pack(">ii", -2, 1) + name + struct.pack(">iiii", 1, 0, -1, 0)),
    ]
    chance = random.Random(20_250_101)
    for _ in range(400):
        key, version, body = chance.choice(seeds)
        mutated = bytearray(body)
        for _ in range(chance.randrange(1, 4)):
            position = chance.randrange(len(mutated))
            mutated[position] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        if chance.random() < 0.2:
            del mutated[chance.randrange(len(mutated)) :]
        with Wire(server.port, timeout_s=60) as wire:
            wire.send_frame(struct.pack(">hhih", key, version, 5, -1) + mutated)
            # The half-close shows the server that no more will come; the connection must end by itself.
            wire.socket.shutdown(socket.SHUT_WR)
            while wire.read_frame() is not None:
                pass
    # A mutated header may be stored (its own checksum guards the rest), a mutated record never.
    stored = fetch_records(server.port, topic, 0)
    assert len(stored) % len(good) == 0
    bodies = {stored[start + 61 : start + len(good)] for start in range(0, len(stored), len(good))}
    assert bodies == {good[61:]}


def test_idle_connections_are_closed_after_their_time(own_server: Callable[..., Server]) -> None:
    server = own_server(connections_max_idle_ms="4000")
    server.start()
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(Wire(server.port)) for _ in range(40)]
        for wire in idle:
            wire.request(API_VERSIONS, 0)
        # While they wait, another connection is served.
        client = ConfluentKafka(server.bootstrap)
        client.create_topic("served", 1)
        client.produce("served", "none", [Record(b"k", b"v")])
        assert all(wire.closed_by_server() for wire in idle)
