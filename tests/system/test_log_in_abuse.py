"""Peers that do not log in: they cost little memory, and leave no connection behind."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Final

import confluent_kafka
import pytest
from tests.clients.servers import BarnabasServer
from tests.support.log_in import authenticate, handshake, plain, sized, versions
from tests.support.process_figures import descriptors, falls_to, resident_bytes
from tests.system.test_log_in import client_properties, secured

import kafka_jars

PEERS: Final = 2_000
#: The number of local addresses of peers: each has about 28,000 ports, which rest for a minute after a connection.
SOURCES: Final = 20
GROWTH_BYTES_MAX: Final = 50 * 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasServer]:
    port, controller_port = kafka_jars.free_ports(2)
    made = BarnabasServer(tmp_path_factory.mktemp("abuse"), port=port, properties=secured(port, controller_port))
    made.start()
    yield made
    made.stop()


def _connected(port: int, number: int = 0) -> socket.socket:
    source = (f"127.0.0.{1 + number % SOURCES}", 0)
    made = socket.create_connection(("127.0.0.1", port), timeout=30, source_address=source)
    made.settimeout(30)
    return made


def _delivered(server: BarnabasServer, topic: str) -> float:
    """Returns the time that a logged-in client needed for one record."""
    producer = confluent_kafka.Producer(client_properties(server.bootstrap, "PLAIN"))
    failed: list[object] = []
    begin_s = time.monotonic()
    producer.produce(topic, b"value", on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(30) == 0
    assert not failed
    return time.monotonic() - begin_s


def test_peers_without_a_log_in_cost_little_memory(server: BarnabasServer) -> None:
    """S2, CVE-2022-34917: 2,000 peers announce frames of 512 kB and send them slowly."""
    _delivered(server, "warm")
    before = resident_bytes(server.pid)
    peers = [_connected(server.port) for _ in range(PEERS)]
    try:
        for peer in peers:
            peer.sendall((524_288).to_bytes(4, "big") + b"\x00\x11\x00\x01")
        for _ in range(3):
            for peer in peers:
                peer.sendall(b"x" * 100)
        assert _delivered(server, "warm") < 5
        assert resident_bytes(server.pid) - before < GROWTH_BYTES_MAX
    finally:
        for peer in peers:
            peer.close()


@pytest.mark.parametrize(
    "failures", [3_000, pytest.param(100_000, marks=[pytest.mark.full, pytest.mark.timeout(1800)])]
)
def test_failed_log_ins_leave_no_connection_behind(server: BarnabasServer, failures: int) -> None:
    """S17: connections end in every state of the gate; then the process has as many descriptors and as little memory
    as before.
    """
    _delivered(server, "warm")
    time.sleep(0.5)
    before = descriptors(server.pid)
    resident = resident_bytes(server.pid)
    endings = (
        b"",
        b"\x16\x03\x01\x02\x00\x01",
        sized(versions()),
        sized(versions(), versions()),
        sized(handshake("GSSAPI")),
        sized(versions(), handshake()),
        sized(handshake(), authenticate(plain("alice", "guess"))),
        sized(handshake(), authenticate(plain("nobody", "guess"))),
        sized(handshake(version=0), plain("alice", "guess")),
        (1 << 30).to_bytes(4, "big"),
    )
    for number in range(failures):
        peer = _connected(server.port, number)
        peer.sendall(endings[number % len(endings)])
        if number % 3:
            peer.shutdown(socket.SHUT_WR)
        peer.close()
    assert falls_to(before, lambda: descriptors(server.pid)) <= before
    assert resident_bytes(server.pid) - resident < GROWTH_BYTES_MAX
    assert _delivered(server, "warm") < 10
    assert "marker-Secret" not in server.log_path.read_text()
