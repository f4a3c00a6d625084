"""Limits of connections beside Apache Kafka: the same connections are served, refused and delayed by both."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from tests.clients.servers import BarnabasServer

import kafka_jars
from barnabas.cli import entry

PROPERTIES = {"quota.window.num": "3", "max.connections.per.ip.overrides": "127.0.0.7:2"}
REST = "listener.name.plaintext.max.connection.creation.rate"
#: An ApiVersions request of version 0.
REQUEST = bytes.fromhex("0000000a00120000000000010000")

Servers = list[BarnabasServer | kafka_jars.KafkaServer]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    made: Servers = [
        kafka_jars.KafkaServer(tmp_path_factory.mktemp("kafka"), properties=PROPERTIES),
        BarnabasServer(tmp_path_factory.mktemp("barnabas"), properties=PROPERTIES),
    ]
    try:
        for each in made:
            each.start()
        yield made
    finally:
        for each in made:
            each.stop()


def run(server: BarnabasServer | kafka_jars.KafkaServer, *arguments: str) -> None:
    assert entry.run([*arguments, "--bootstrap", f"127.0.0.1:{server.port}"]) == 0
    time.sleep(0.5)  # A broker of Kafka answers before it has the change.


def connected(server: BarnabasServer | kafka_jars.KafkaServer, address: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), 10, (address, 0))


def is_served(link: socket.socket) -> bool:
    link.settimeout(10)
    try:
        link.sendall(REQUEST)
        return bool(link.recv(1))
    except ConnectionError:
        return False


def served_one_by_one(server: BarnabasServer | kafka_jars.KafkaServer, address: str, seconds: float) -> tuple[int, int]:
    """Connects again and again. Returns how many connections were served, and how many were closed."""
    counts = [0, 0]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with connected(server, address) as link:
            counts[not is_served(link)] += 1
    return counts[0], counts[1]


@pytest.mark.full
def test_an_address_has_as_many_connections_as_its_override(servers: Servers) -> None:
    results = []
    for server in servers:
        links = [connected(server, "127.0.0.7") for _ in range(4)]
        results.append([is_served(link) for link in links])
        for link in links:
            link.close()
    assert results == [[True, True, False, False]] * 2


@pytest.mark.full
def test_an_address_above_its_quota_is_held_as_long(servers: Servers) -> None:
    results = []
    for server in servers:
        run(server, "quotas", "set", "--ip", "127.0.0.9", "connection_creation_rate=2")
        results.append(served_one_by_one(server, "127.0.0.9", 9))
    (kafka, kafka_closed), (ours, ours_closed) = results
    # The quota allows two per second and that of the windows that were empty before, less the rest of the last wait.
    assert 10 <= kafka <= 26, results
    assert abs(kafka - ours) <= 3, results
    assert abs(kafka_closed - ours_closed) <= 3, results


@pytest.mark.full
def test_a_listener_above_its_rate_rests_as_long(servers: Servers) -> None:
    times = []
    for server in servers:
        run(server, "configs", "alter", "--broker", "1", "--add", f"{REST}=5")
        begin = time.monotonic()
        links = [connected(server, "127.0.0.1") for _ in range(50)]
        assert all(is_served(link) for link in links)
        times.append(time.monotonic() - begin)
        for link in links:
            link.close()
        run(server, "configs", "alter", "--broker", "1", "--delete", REST)
    assert 5 < times[0] < 14, times
    assert abs(times[0] - times[1]) < 2, times
