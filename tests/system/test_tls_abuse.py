"""Connections over TLS that fail: none of them leaves a connection or a slot of the limits behind."""

from __future__ import annotations

import contextlib
import re
import select
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.support.log_in_listeners import Listeners
from tests.support.process_figures import falls_to
from tests.support.tls_failures import ADDRESSES, Failing, hello

import kafka_jars

GROWTH_BYTES_MAX: Final = 50 * 1024 * 1024
PER_LISTENER: Final = 60
PER_ADDRESS: Final = 30


class Limited:
    """A broker whose TLS listener has limits, with its gauges."""

    def __init__(self, folder: Path) -> None:
        (self._metrics_port,) = kafka_jars.free_ports(1)
        self.listeners = Listeners(
            folder,
            {
                "barnabas.metrics.listener": f"127.0.0.1:{self._metrics_port}",
                "listener.name.sasl_ssl.ssl.client.auth": "requested",
                "listener.name.sasl_ssl.max.connections": str(PER_LISTENER),
                "max.connections.per.ip": str(PER_ADDRESS),
                "socket.listen.backlog.size": "1000",
            },
        )
        self.listeners.server.start()
        self.clients = Failing(self.listeners.tls_port, self.listeners.stores, folder / "elsewhere")

    def connections(self) -> int:
        """Returns the gauge of the connections of the TLS listener."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        found = re.search(
            r'^kafka_server_socket_server_metrics_connection_count{listener="SASL_SSL"} (\d+)', text, re.M
        )
        assert found is not None
        return int(found[1])

    def check_slots(self, first: str, second: str) -> None:
        """Checks that two addresses can have as many connections as the limits allow, together all of the listener, and
        no more: a slot that was not released is missing here.
        """
        with contextlib.ExitStack() as stack:
            for address in (first, second):
                for _ in range(PER_ADDRESS - 1):
                    stack.enter_context(self.clients.connected(address))
                last = stack.enter_context(self.clients.served(address))
                if address == first:
                    refused = stack.enter_context(self.clients.connected(address))
                    with contextlib.suppress(ConnectionError):
                        assert refused.recv(1) == b""
            waiting = stack.enter_context(self.clients.connected("127.0.0.1"))
            with contextlib.suppress(ConnectionError):
                waiting.sendall(hello(self.clients.trusting))
            assert not select.select([waiting], [], [], 0.3)[0], "the listener has no slot for it"
            last.close()
            assert select.select([waiting], [], [], 30)[0]


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    made = Limited(tmp_path_factory.mktemp("tls-abuse"))
    yield made
    made.listeners.server.stop()


@pytest.mark.parametrize(
    "failures", [2_000, pytest.param(100_000, marks=[pytest.mark.full, pytest.mark.timeout(1800)])]
)
def test_failures_over_tls_leave_no_connection_behind(limited: Limited, failures: int) -> None:
    """S17: handshakes that are cut, refused or not TLS at all, certificates that either side refuses, and log-ins that
    fail or are cut.
    """
    clients, listeners = limited.clients, limited.listeners
    for address in ADDRESSES[:2]:
        clients.served(address).close()
    assert falls_to(0, limited.connections) == 0
    descriptors, resident = listeners.descriptors(), listeners.resident_bytes()
    begin_s, cpu_s = time.monotonic(), listeners.cpu_s()
    for number in range(failures):
        clients.fail(number)
    spent_s, cpu_s = time.monotonic() - begin_s, listeners.cpu_s() - cpu_s
    print(f"{failures} failures in {spent_s:.0f} s, CPU: broker {cpu_s:.0f} s, clients {time.process_time():.0f} s")
    assert falls_to(0, limited.connections) == 0
    assert falls_to(descriptors, listeners.descriptors) <= descriptors
    growth = listeners.resident_bytes() - resident
    print(f"{growth / 1e6:.1f} MB more memory")
    assert growth < GROWTH_BYTES_MAX
    for first, second in zip(ADDRESSES[::2], ADDRESSES[1::2], strict=True):
        limited.check_slots(first, second)
        assert falls_to(0, limited.connections) == 0
    assert "Traceback" not in listeners.server.log_path.read_text()
