"""The endpoint /metrics over HTTP for Prometheus: `barnabas.metrics.listener=HOST:PORT`, disabled if that is not set.

A response is written a few hundred lines at a time, so that clients are served in between. Failures stay local:
`barnabas_exporter_collector_up` shows a collector that raises, and an address that is in use is logged in one line. The
collectors are imported at the first scrape.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, cast

from barnabas import __version__
from barnabas.common.errors import ConfigError
from barnabas.common.metrics import COUNTER, GAUGE, Family, Sample, labelled, lines_of, single
from barnabas.server.turns import Turns

if TYPE_CHECKING:
    from barnabas.broker.assembly import Broker
    from barnabas.tls.certificates import Certificate

log = logging.getLogger("barnabas.metrics")

_REQUEST_BYTES_MAX: Final = 8192
_TIMEOUT_S: Final = 30.0
_LINES_AT_ONCE: Final = 300
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

#: (name of a listener, its open connections)
Connections = Callable[[], Iterable[tuple[str, int]]]
#: Returns (listener, certificate) for each certificate of this node.
Certificates = Callable[[], "Iterable[tuple[str, Certificate]]"]


class Exporter:
    """The HTTP listener for /metrics, and the metrics about the listener itself."""

    def __init__(
        self,
        broker: Broker,
        connections: Connections,
        turns: Turns | None = None,
        certificates: Certificates = lambda: (),
    ) -> None:
        self._broker = broker
        self._connections = connections
        self._certificates = certificates
        self.turns = turns or Turns()
        self._server: asyncio.Server | None = None
        self._start_s = time.time()
        self._failed: set[str] = set()
        self.scrapes = 0
        self.failures = 0

    async def start(self, text: str) -> None:
        """Listens at "HOST:PORT". If the address cannot be bound, logs that and serves no metrics. Raises
        ConfigError for an invalid address.
        """
        host, port = _address(text)
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Visit(self), host or None, port, reuse_address=True)
        except OSError as error:
            log.warning("no metrics: cannot listen on %s: %s", text, error.strerror or error)
            return
        log.info("metrics at http://%s:%d/metrics", host or "localhost", self.port)

    @property
    def port(self) -> int | None:
        """The bound port; None if the exporter does not listen."""
        if self._server is None or not self._server.sockets:
            return None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def text(self) -> Iterator[str]:
        """Returns all lines of one scrape."""
        self.scrapes += 1
        begin_s = time.monotonic()
        collectors = importlib.import_module("barnabas.broker.metrics.catalogue").collectors_of(self._broker)
        health = {}
        for name, collect in collectors.items():
            try:
                for family in collect(self._broker):
                    yield from lines_of(family)
            except Exception as error:
                self._note_failure(name, error)
                health[name] = 0
            else:
                self._failed.discard(name)
                health[name] = 1
        for family in self._own(health, begin_s):
            yield from lines_of(family)

    def _note_failure(self, name: str, error: Exception) -> None:
        self.failures += 1
        if name not in self._failed:
            self._failed.add(name)
            log.warning("cannot collect the metrics of %s: %s: %s", name, type(error).__name__, error, exc_info=error)

    def _ends(self) -> Iterator[Family]:
        ends: dict[tuple[tuple[str, str], ...], int] = {}
        for listener, each in self._certificates():
            labels = (("listener", listener), ("subject", each.subject))
            end_s = round(each.not_after.timestamp())
            ends[labels] = min(end_s, ends.get(labels, end_s))
        if ends:
            yield Family(
                "barnabas_certificate_not_after_seconds",
                GAUGE,
                "Expiry time of a certificate of this node, in seconds since the epoch",
                [Sample(labels, end_s) for labels, end_s in ends.items()],
            )

    def _own(self, health: dict[str, int], begin_s: float) -> Iterator[Family]:
        yield labelled(
            "kafka_server_socket_server_metrics_connection_count",
            GAUGE,
            "Open connections",
            "listener",
            self._connections(),
        )
        yield labelled(
            "barnabas_exporter_collector_up",
            GAUGE,
            "0 if these metrics are missing or incomplete in this scrape",
            "collector",
            health.items(),
        )
        yield from self._ends()
        yield from self.turns.families()
        yield single("barnabas_exporter_scrapes_total", COUNTER, "Started scrapes", self.scrapes)
        yield single("barnabas_exporter_failures_total", COUNTER, "Failed collectors", self.failures)
        yield single(
            "barnabas_exporter_scrape_seconds",
            GAUGE,
            "Duration of this scrape, including requests served in between",
            round(time.monotonic() - begin_s, 6),
        )
        info = (("version", __version__), ("node_id", str(self._broker.config.node_id)))
        yield Family("barnabas_build_info", GAUGE, "1.", [Sample(info, 1)])
        yield single("process_cpu_seconds_total", COUNTER, "CPU time of this process in seconds", time.process_time())
        yield single(
            "process_start_time_seconds", GAUGE, "Start time of this process in seconds since the epoch", self._start_s
        )
        memory_bytes = _resident_bytes()
        if memory_bytes is not None:
            yield single(
                "process_resident_memory_bytes", GAUGE, "Resident memory of this process in bytes", memory_bytes
            )


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"Invalid value {text} for configuration barnabas.metrics.listener: expected HOST:PORT")
    return host.strip("[]"), int(port)


def _resident_bytes() -> int | None:
    try:
        with open("/proc/self/statm", encoding="ascii") as stream:
            return int(stream.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return None


class _Visit(asyncio.Protocol):
    """A connection of a scraper: its request and the response."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._received = b""
        self._body: Iterator[str] | None = None
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(_TIMEOUT_S, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._body is not None:
            return
        self._received += data
        if b"\r\n\r\n" in self._received or b"\n\n" in self._received:
            self._answer(self._received.split(b"\n", 1)[0].decode("latin-1").split())
        elif len(self._received) > _REQUEST_BYTES_MAX:
            self._begin("431 Request Header Fields Too Large", "too much\n")

    def _answer(self, request: list[str]) -> None:
        method, target = (request[0], request[1].partition("?")[0]) if len(request) >= 2 else ("", "")
        if method not in ("GET", "HEAD"):
            self._begin("405 Method Not Allowed", "only GET\n", headers="Allow: GET, HEAD\r\n")
        elif target == "/metrics":
            self._begin("200 OK", () if method == "HEAD" else self._exporter.text())
        elif target == "/":
            self._begin("200 OK", "Barnabas: the metrics of this broker are at /metrics\n")
        else:
            self._begin("404 Not Found", "only /metrics exists\n")

    def _begin(self, status: str, body: Iterable[str], *, headers: str = "") -> None:
        assert self._transport is not None, "the client is connected"
        self._body = iter((body,) if isinstance(body, str) else body)
        head = f"HTTP/1.1 {status}\r\nContent-Type: {_CONTENT_TYPE}\r\n{headers}Connection: close\r\n\r\n"
        self._transport.write(head.encode())
        self._exporter.turns.run(self._go_on)

    def _go_on(self) -> None:
        if self._transport is None or self._body is None or self._is_paused:
            return
        lines = list(itertools.islice(self._body, _LINES_AT_ONCE))
        if not lines:
            self._transport.close()
            return
        self._transport.write("".join(lines).encode())
        asyncio.get_running_loop().call_soon(self._exporter.turns.run, self._go_on)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._exporter.turns.run(self._go_on)
