"""Requests to servers of the web: slow, gone and lying ones, and that none holds up the loop."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic, sleep
from typing import Any

import pytest

from barnabas.common.host import WebRequest
from barnabas.server.turns import Turns
from barnabas.server.web_requests import WebClient


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append((self.command, self.path, b"", dict(self.headers)))  # type: ignore[attr-defined]
        self._answer()

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.command, self.path, content, dict(self.headers)))  # type: ignore[attr-defined]
        self._answer()

    def _answer(self) -> None:
        if self.path == "/status":
            self.send_error(500)
        elif self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/document")
            self.end_headers()
        elif self.path == "/drops":
            # A byte at a time: no single read is slow.
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            for _ in range(20):
                self.wfile.write(b"x")
                sleep(0.1)
        elif self.path == "/head":
            for sign in b"HTTP/1.1 200 OK and so on and so on":
                self.wfile.write(bytes([sign]))
                sleep(0.1)
        elif self.path == "/endless":
            self.send_response(200)
            self.end_headers()
            for _ in range(100):
                self.wfile.write(bytes(10_000))
        elif self.path == "/short":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"{}")
        else:
            self.send_response(200)
            self.send_header("Content-Length", "8")
            self.end_headers()
            self.wfile.write(b"document")

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, bytes, dict[str, str]]] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores peers that left: that is what the tests are about."""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def fetch(request: WebRequest) -> tuple[bytes | None, OSError | None]:
    return run([request])[0]


def run(requests: list[WebRequest]) -> list[tuple[bytes | None, OSError | None]]:
    """Fetches documents. The loop must stay free meanwhile."""
    found: list[tuple[bytes | None, OSError | None]] = []

    async def wait() -> None:
        client = WebClient(asyncio.get_running_loop(), Turns())
        for request in requests:
            client.fetch(request, lambda content, error: found.append((content, error)))
        assert not found, "never within the call"
        slowest, last = 0.0, monotonic()
        while len(found) < len(requests):
            await asyncio.sleep(0.002)
            slowest, last = max(slowest, monotonic() - last), monotonic()
        assert slowest < 1, "the loop was held up"
        # A result that comes too late is dropped, and no thread is left behind.
        await asyncio.sleep(0.05)
        assert len(found) == len(requests)
        assert not [each for each in threading.enumerate() if each.name == "barnabas-web"]

    asyncio.run(wait())
    return found


def test_a_document_is_fetched(server: Server) -> None:
    url = f"http://127.0.0.1:{server.server_port}"
    assert fetch(WebRequest(f"{url}/document?a=b")) == (b"document", None)
    posted = WebRequest(f"{url}/token", b"a=b", (("Authorization", "Basic x"), ("Content-Type", "text/plain")))
    assert fetch(posted) == (b"document", None)
    (got, _), (post, _) = [(each[:3], each) for each in server.asked]
    assert got == ("GET", "/document?a=b", b"")
    assert post == ("POST", "/token", b"a=b")
    assert server.asked[1][3]["Authorization"] == "Basic x"


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("/status", "it answers with status 500"),
        ("/moved", "it answers with status 302"),
        ("/endless", "more than 100000 bytes"),
        ("/short", "IncompleteRead|cut off"),
        ("/drops", "no answer in time"),
        ("/head", "no answer in time"),
    ],
)
def test_a_response_that_is_not_the_document_is_an_error(server: Server, path: str, cause: str) -> None:
    began = monotonic()
    content, error = fetch(
        WebRequest(f"http://127.0.0.1:{server.server_port}{path}", timeout_ms=500, bytes_max=100_000)
    )
    assert content is None
    assert error is not None
    assert any(each in str(error) for each in cause.split("|")), error
    assert monotonic() - began < 1
    assert [path for _, path, _, _ in server.asked] == [path], "redirects are not followed"


def test_a_server_that_is_gone_or_does_not_speak_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        content, error = fetch(WebRequest(f"http://127.0.0.1:{port}/", timeout_ms=200))
        assert (content, type(error)) == (None, TimeoutError)
    content, error = fetch(WebRequest(f"http://127.0.0.1:{port}/"))
    assert isinstance(error, ConnectionRefusedError)


def test_https_checks_the_certificate(server: Server) -> None:
    content, error = fetch(WebRequest(f"https://127.0.0.1:{server.server_port}/document", timeout_ms=2_000))
    assert content is None
    assert isinstance(error, OSError)


def test_there_are_only_so_many_requests_at_a_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        found = run([WebRequest(url, timeout_ms=300)] * 20)
    assert [str(error) for _, error in found].count("too many requests wait") == 4
    assert [type(error) for _, error in found].count(TimeoutError) == 16
