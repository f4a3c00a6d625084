"""Clients that send no whole request, or read no answer: their connections end, and others are answered."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import pytest
from tests.support.console_server import RunningConsole, target_of

from barnabas.console.pages import Pages
from barnabas.console.security.gate import CONTENT_SECURITY_POLICY
from barnabas.testing.phantom import PhantomCluster

HEAD_S, STALLED_S = 0.5, 0.5
CONNECTIONS_MAX = 20
LARGE = 40_000_000


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    folder = tmp_path_factory.mktemp("static")
    (folder / "assets").mkdir()
    (folder / "index.html").write_text("<!doctype html>")
    (folder / "assets" / "large.js").write_bytes(b"x" * LARGE)
    return Pages(folder)


@pytest.fixture
def console(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningConsole]:
    monkeypatch.setattr("barnabas.console.connections._HEAD_S", HEAD_S)
    monkeypatch.setattr("barnabas.console.connections._STALLED_S", STALLED_S)
    monkeypatch.setattr("barnabas.console.serving._CONNECTIONS_MAX", CONNECTIONS_MAX)
    with PhantomCluster(topics=1) as phantom, RunningConsole([target_of(phantom)], pages=pages) as running:
        yield running


def connect(console: RunningConsole, stack: ExitStack) -> socket.socket:
    parts = urlsplit(console.url)
    found = stack.enter_context(socket.socket())
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    found.settimeout(10)
    found.connect((parts.hostname, parts.port))
    return found


@pytest.mark.parametrize("begin", [b"", b"GET / HTTP/1.1\r\nHost: 127.0"], ids=["nothing", "a part"])
def test_so_many_clients_without_a_request_keep_others_out_for_a_limited_time(
    console: RunningConsole, begin: bytes
) -> None:
    with ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX + 5):
            connect(console, stack).sendall(begin)
        console.until(lambda: console.request("GET", "/").status == 503, "the server is not full")
        answer = console.request("GET", "/api/overview")
        assert answer.code == "unreachable"
        assert answer.json["error"]["text"] == "this console has too many connections"
        assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert answer.headers["connection"] == "close"
        console.until(lambda: console.request("GET", "/").status == 200, "they keep others out", within_s=10)


def test_what_is_no_request_gets_the_headers_of_all_answers(console: RunningConsole) -> None:
    with ExitStack() as stack:
        client = connect(console, stack)
        client.sendall(b"nonsense\r\n\r\n")
        answer = b""
        while part := client.recv(65_536):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request")
    assert CONTENT_SECURITY_POLICY.encode() in head
    assert b"nosniff" in head
    assert b"nonsense" not in body


@pytest.mark.parametrize("first", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"], ids=["new", "kept alive"])
def test_a_request_that_trickles_in_ends(console: RunningConsole, first: bytes) -> None:
    with ExitStack() as stack:
        client = connect(console, stack)
        client.sendall(first)
        if first:
            assert b"200 OK" in client.recv(65_536)
        client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        begin_s = time.monotonic()
        with pytest.raises(ConnectionError):
            while time.monotonic() - begin_s < 20:
                client.sendall(b"x")
                time.sleep(0.05)
        assert HEAD_S - 0.1 < time.monotonic() - begin_s < 15


def test_a_body_that_trickles_in_ends(console: RunningConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.console.security.gate._BODY_S", HEAD_S)
    head = (
        f"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nContent-Length: {LARGE // 100}\r\n"
    )
    with ExitStack() as stack:
        client = connect(console, stack)
        client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode())
        client.setblocking(False)
        answer, begin_s = b"", time.monotonic()
        while b"\r\n\r\n" not in answer and time.monotonic() - begin_s < 15:
            with suppress(BlockingIOError):
                answer += client.recv(65_536)
            with suppress(ConnectionError):
                client.send(b" ")
            time.sleep(0.05)
    assert answer.startswith(b"HTTP/1.1 504")
    assert b"connection: close" in answer


def test_an_answer_that_nobody_reads_ends(console: RunningConsole) -> None:
    with ExitStack() as stack:
        client = connect(console, stack)
        client.sendall(b"GET /assets/large.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        time.sleep(4 * STALLED_S)
        read = 0
        with suppress(ConnectionError):
            while part := client.recv(1 << 20):
                read += len(part)
        assert read < LARGE, "the rest was not thrown away"


def test_an_answer_that_is_read_slowly_arrives(console: RunningConsole) -> None:
    """The answer takes several times as long as a client can stand still."""
    with ExitStack() as stack:
        client = connect(console, stack)
        client.sendall(b"GET /assets/large.js HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        read, begin_s = 0, time.monotonic()
        while part := client.recv(1 << 20):
            read += len(part)
            if time.monotonic() - begin_s < 4 * STALLED_S:
                time.sleep(0.02)
        assert read > LARGE
        assert time.monotonic() - begin_s >= 4 * STALLED_S


def test_a_stream_that_waits_for_news_does_not_end(console: RunningConsole) -> None:
    console.filled()
    with console.live("overview") as messages:
        assert next(messages)[1] == "hello"
        time.sleep(4 * HEAD_S)
        assert console.console is not None
        assert console.console.streams.open == 1
