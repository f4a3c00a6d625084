"""/metrics on a real socket: its answers, its clients, and failures."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta

import pytest
import uvloop
from tests.support.metrics import Metrics
from tests.support.wired import WiredBroker

from barnabas.broker.assembly import Broker
from barnabas.broker.metrics import catalogue
from barnabas.common.errors import ConfigError
from barnabas.common.metrics import GAUGE, Family, Sample, single
from barnabas.server.exporter import Certificates, Exporter
from barnabas.tls.certificates import Certificate

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]
pytestmark = pytest.mark.parametrize("make_loop", LOOPS)


def run(make_loop: Callable[[], asyncio.AbstractEventLoop], main: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(asyncio.wait_for(main, 120))


@contextlib.asynccontextmanager
async def exporting(certificates: Certificates = lambda: ()) -> AsyncIterator[Exporter]:
    exporter = Exporter(WiredBroker().broker, lambda: [("PLAINTEXT", 7)], None, certificates)
    await exporter.start("127.0.0.1:0")
    try:
        yield exporter
    finally:
        exporter.close()


async def call(exporter: Exporter, request: bytes) -> tuple[str, str]:
    """Returns (status line, body)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", exporter.port)
    writer.write(request)
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return head.splitlines()[0], body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n".encode()


def test_a_scrape(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        async with exporting() as exporter:
            status, body = await call(exporter, get("/metrics?x=1"))
            metrics = Metrics(body)
            assert status == "HTTP/1.1 200 OK"
            assert metrics("kafka_server_socket_server_metrics_connection_count", listener="PLAINTEXT") == 7
            assert metrics("barnabas_exporter_scrapes_total") == 1
            assert metrics("kafka_controller_kafkacontroller_activecontrollercount") == 1
            assert all(
                metrics("barnabas_exporter_collector_up", collector=name) for name in (*catalogue.COLLECTORS, "quorum")
            )

    run(make_loop, main())


def test_the_ends_of_certificates(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    one, two = (Certificate(b"", "CN=node", frozenset(), begin, begin + timedelta(days=days)) for days in (30, 60))

    async def main() -> None:
        async with exporting(lambda: [("SSL", one), ("SSL", two), ("PEERS", two)]) as exporter:
            metrics = Metrics((await call(exporter, get("/metrics")))[1])
            name = "barnabas_certificate_not_after_seconds"
            assert metrics(name, listener="SSL", subject="CN=node") == one.not_after.timestamp()
            assert metrics(name, listener="PEERS", subject="CN=node") == two.not_after.timestamp()

    run(make_loop, main())


def test_other_requests(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        async with exporting() as exporter:
            assert (await call(exporter, get("/")))[0] == "HTTP/1.1 200 OK"
            assert (await call(exporter, get("/secrets")))[0].startswith("HTTP/1.1 404")
            assert (await call(exporter, b"POST /metrics HTTP/1.1\r\n\r\n"))[0].startswith("HTTP/1.1 405")
            assert (await call(exporter, b"\r\n\r\n"))[0].startswith("HTTP/1.1 405")
            assert await call(exporter, b"HEAD /metrics HTTP/1.1\r\n\r\n") == ("HTTP/1.1 200 OK", "")
            assert (await call(exporter, b"GET /metrics HTTP/1.1\r\nX: " + b"y" * 9000))[0].startswith("HTTP/1.1 431")

    run(make_loop, main())


def test_a_large_answer_is_whole_and_others_are_served_meanwhile(
    make_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is written in parts: another client is answered before a slow one has read everything."""
    many = 100_000

    def large(broker: Broker) -> Iterator[Family]:
        yield Family("many", GAUGE, "Many.", (Sample((("n", str(number)),), number) for number in range(many)))

    async def main() -> None:
        async with exporting() as exporter:
            reader, writer = await asyncio.open_connection("127.0.0.1", exporter.port)
            writer.write(get("/metrics"))
            assert (await call(exporter, get("/")))[0] == "HTTP/1.1 200 OK"
            body = (await reader.read()).decode()
            writer.close()
            assert body.count("\nmany{") == many
            assert 'collector_up{collector="large"} 1' in body

    monkeypatch.setattr(catalogue, "collectors_of", lambda broker: {"large": large})
    run(make_loop, main())


def test_a_collector_that_fails_is_reported_and_fails_alone(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """G30: a failure of the metrics is seen in them."""

    def broken(broker: Broker) -> Iterator[Family]:
        yield single("before", GAUGE, "Before.", 1)
        raise RuntimeError("no luck")

    def sound(broker: Broker) -> Iterator[Family]:
        yield single("sound", GAUGE, "Sound.", 1)

    async def main() -> None:
        async with exporting() as exporter:
            for scrape in (1, 2):
                metrics = Metrics((await call(exporter, get("/metrics")))[1])
                assert metrics("sound") == 1
                assert metrics("barnabas_exporter_collector_up", collector="broken") == 0
                assert metrics("barnabas_exporter_collector_up", collector="sound") == 1
                assert metrics("barnabas_exporter_failures_total") == scrape

    monkeypatch.setattr(catalogue, "collectors_of", lambda broker: {"broken": broken, "sound": sound})
    with caplog.at_level(logging.WARNING, "barnabas.metrics"):
        run(make_loop, main())
    assert len([record for record in caplog.records if "no luck" in record.getMessage()]) == 1


def test_a_port_in_use_costs_a_line_and_no_more(
    make_loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            exporter = Exporter(WiredBroker().broker, list)
            await exporter.start(f"127.0.0.1:{taken.getsockname()[1]}")
            assert exporter.port is None
            exporter.close()

    with caplog.at_level(logging.WARNING, "barnabas.metrics"):
        run(make_loop, main())
    assert [record.getMessage().startswith("no metrics: cannot listen on") for record in caplog.records] == [True]


@pytest.mark.parametrize("address", ["9404", "host:", "host:port", "host:70000"])
def test_what_is_no_address_is_refused(make_loop: Callable[[], asyncio.AbstractEventLoop], address: str) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match=r"barnabas\.metrics\.listener"):
            await Exporter(WiredBroker().broker, list).start(address)

    run(make_loop, main())


def test_a_scrape_loads_the_collectors_and_a_start_does_not(
    make_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        for name in [name for name in sys.modules if name.startswith("barnabas.broker.metrics")]:
            monkeypatch.delitem(sys.modules, name)
        async with exporting() as exporter:
            assert "barnabas.broker.metrics.catalogue" not in sys.modules
            await call(exporter, get("/metrics"))
            assert "barnabas.broker.metrics.catalogue" in sys.modules

    run(make_loop, main())
