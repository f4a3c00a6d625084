"""The exporter: metrics of every partition over HTTP, for Prometheus.

    server = MetricsServer(feeds, clock_ms)
    await server.start("0.0.0.0", 9308)

A scrape is written in pieces, with the feeds served in between, and compressed if the scraper asks for that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Final

from barnabas.monitor.availability import Availability
from barnabas.monitor.changes import Change
from barnabas.monitor.cluster_feeds import ClusterFeeds
from barnabas.monitor.metric_blocks import MetricBlocks, packed
from barnabas.monitor.metric_text import COUNTER, GAUGE, cluster_text, course_text, family, group_text
from barnabas.monitor.packed_changes import PackedChanges

_REQUEST_BYTES_MAX: Final = 16 * 1024
_TIMEOUT_S: Final = 60.0
#: Pieces that are joined before others are served.
_PIECES_AT_ONCE: Final = 100
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer:
    def __init__(self, feeds: ClusterFeeds, clock_ms: Callable[[], int]) -> None:
        self._feeds = feeds
        self._clock_ms = clock_ms
        self.blocks = MetricBlocks(feeds.table)
        self._availability = Availability(feeds.table)
        self._server: asyncio.Server | None = None
        self._scrapes = 0
        self._scrape_s = 0.0

    async def start(self, host: str, port: int) -> int:
        """Listens, and returns the port. Raises OSError if the address cannot be used."""
        self._server = await asyncio.start_server(self._visit, host, port, limit=_REQUEST_BYTES_MAX)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def count(self, changes: Iterable[Change], packed: Iterable[PackedChanges] = ()) -> None:
        for change in changes:
            self._availability.count(change)
        for each in packed:
            self._availability.count_packed(each)

    async def body(self, *, is_gzip: bool) -> bytes:
        """Returns the metrics, in Prometheus's text format."""
        begin_s = time.perf_counter()
        found = bytearray()
        for count, piece in enumerate(chain(self._other(is_gzip), self.blocks.pieces(is_gzip=is_gzip))):
            found += piece
            if count % _PIECES_AT_ONCE == _PIECES_AT_ONCE - 1:
                await asyncio.sleep(0)
        self._scrapes += 1
        self._scrape_s = time.perf_counter() - begin_s
        return bytes(found)

    def _other(self, is_gzip: bool) -> Iterator[bytes]:
        now_ms, table = self._clock_ms(), self._feeds.table
        parts = chain(
            cluster_text(table, self._feeds.problem, now_ms),
            group_text(table, self._feeds.groups),
            course_text(table, self._availability, now_ms),
            self._own(),
        )
        text = "".join(parts).encode()
        yield packed(text) if is_gzip else text

    def _own(self) -> Iterator[str]:
        yield family("barnabas_exporter_scrapes_total", COUNTER, "Complete scrapes", [({}, self._scrapes)])
        yield family("barnabas_exporter_scrape_seconds", GAUGE, "Duration of the last scrape", [({}, self._scrape_s)])
        yield family(
            "barnabas_exporter_partial_failures",
            GAUGE,
            "Brokers whose part of the metrics is outdated",
            [({}, len(self._feeds.table.silent))],
        )

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while True:
                async with asyncio.timeout(_TIMEOUT_S):
                    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                writer.write(await self._answer(head))
                async with asyncio.timeout(_TIMEOUT_S):
                    await writer.drain()
                if "connection: close" in head.lower():
                    break
        writer.close()

    async def _answer(self, head: str) -> bytes:
        lines = head.split("\r\n")
        words = lines[0].split()
        method, target = (words[0], words[1].partition("?")[0]) if len(words) >= 2 else ("", "")
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", b"only GET\n", "Allow: GET, HEAD\r\n")
        if target != "/metrics":
            is_root = target == "/"
            text = b"Barnabas: the metrics of the cluster are at /metrics\n" if is_root else b"only /metrics exists\n"
            return _response("200 OK" if is_root else "404 Not Found", text)
        is_gzip = any(line.lower().startswith("accept-encoding:") and "gzip" in line.lower() for line in lines)
        body = await self.body(is_gzip=is_gzip)
        found = _response("200 OK", body, "Content-Encoding: gzip\r\n" if is_gzip else "")
        return found[: -len(body)] if method == "HEAD" else found


def _response(status: str, body: bytes, headers: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {_CONTENT_TYPE}\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
