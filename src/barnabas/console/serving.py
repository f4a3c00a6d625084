"""The console as a server: its socket, TLS, and the loop that serves until it is stopped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import uvicorn

from barnabas.console.application import application
from barnabas.console.connections import LimitedConnection
from barnabas.console.pages import Pages
from barnabas.console.state import Console
from barnabas.monitor.ending import end_tasks

#: The maximum number of concurrent requests, including live streams.
_CONNECTIONS_MAX: Final = 500
_HEADERS_MAX: Final = 32 * 1024
#: The time for requests to end after the server was asked to stop, and how often what is left is cancelled.
_SERVED_S: Final = 3.0
_CANCELS: Final = 3


@dataclass(frozen=True, slots=True)
class Place:
    """The address of the console. `certificate` and `key` are files, for TLS."""

    host: str = "127.0.0.1"
    port: int = 8088
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_tls(self) -> bool:
        return self.certificate is not None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


async def serve(console: Console, place: Place, *, on_ready: Callable[[str], None], pages: Pages | None = None) -> None:
    """Serves until it is cancelled. Calls `on_ready` with the address. Raises OSError if it cannot be used."""
    with _listening(place) as listening:
        port = listening.getsockname()[1]
        config = uvicorn.Config(
            application(console, pages),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            http=LimitedConnection,
            loop="none",
            limit_concurrency=_CONNECTIONS_MAX,
            h11_max_incomplete_event_size=_HEADERS_MAX,
            timeout_graceful_shutdown=1,
            proxy_headers=False,
            ssl_certfile=place.certificate,
            ssl_keyfile=None if place.key is None else str(place.key),
        )
        server = _Server(config)
        async with console:
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            try:
                while not server.started and not serving.done():
                    await asyncio.sleep(0.01)
                if not serving.done():
                    shown = f"[{place.host}]" if ":" in place.host else place.host
                    on_ready(f"{'https' if place.is_tls else 'http'}://{shown}:{port}/")
                await asyncio.shield(serving)
            finally:
                console.stop()
                server.should_exit = True
                await asyncio.wait([serving], timeout=_SERVED_S)
                await end_tasks([serving], tries=_CANCELS)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the signals to the command."""
        yield


def _listening(place: Place) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((place.host, place.port))
        listening.listen(256)
    except OSError:
        listening.close()
        raise
    return listening
