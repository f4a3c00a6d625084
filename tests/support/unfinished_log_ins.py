"""Clients that begin a log-in and never complete it, in a separate process, so that they take no time from the
measurement next to them:

    with Peers(port, "slow", 2_000) as peers:
        peers.connect()      ... they are connected and misbehave ...
        peers.disconnect()

| kind | each client |
|---|---|
| announced | announces a frame of 512 kB, sends 300 bytes of it, and waits |
| slow | announces a frame of 512 kB, and sends one byte of it every four seconds |
| tagged | sends half of a frame of 4 kB that consists of tagged fields; 100 each second complete theirs and return |
| arrays | sends half of a frame whose token has 2 GB; 100 each second complete theirs and return |
| tls | as `announced`, after a handshake of TLS |

Between its steps the process sleeps.
"""

from __future__ import annotations

import select
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.support.log_in import handshake, sized

ANNOUNCED: Final = (524_288).to_bytes(4, "big") + b"\x00\x11\x00\x01" + b"x" * 296
#: The pauses between two steps, in each of which one client acts.
_SLOW_PAUSE_S: Final = 0.002
_RETURN_PAUSE_S: Final = 0.01


def _tagged() -> bytes:
    """Returns an ApiVersions request with 1,300 tagged fields in its header."""
    fields = b"".join(bytes([tag & 0x7F | 0x80, tag >> 7, 0]) for tag in range(128, 1_428))
    return sized(bytes.fromhex("0012000300000001ffff") + bytes([1_300 & 0x7F | 0x80, 1_300 >> 7]) + fields)


def _arrays() -> bytes:
    """Returns a handshake and a SaslAuthenticate request that announces a token of 2 GB."""
    announcing = bytes.fromhex("0024000200000001ffff00") + b"\xff\xff\xff\xff\x07" + b"x" * 100
    return sized(handshake(), announcing)


class _Clients:
    """The clients of one kind, in the process of their own."""

    def __init__(self, port: int, kind: str, count: int, trusted: str) -> None:
        self._port = port
        self._count = count
        self._tls = ssl.create_default_context(cafile=trusted) if kind == "tls" else None
        data = {"tagged": _tagged(), "arrays": _arrays()}.get(kind)
        self._first = ANNOUNCED if data is None else data[: len(data) - 100]
        self._rest = b"" if data is None else data[len(data) - 100 :]
        self._step: Callable[[], None] = {"slow": self._send_slowly}.get(kind, self._return if data else lambda: None)
        self._pause_s = _SLOW_PAUSE_S if kind == "slow" else _RETURN_PAUSE_S
        self._links: list[socket.socket] = []
        self._at = 0

    def _connected(self) -> socket.socket:
        link = socket.create_connection(("127.0.0.1", self._port), 30)
        if self._tls is not None:
            link = self._tls.wrap_socket(link, server_hostname="localhost")
        link.sendall(self._first)
        return link

    def connect(self) -> None:
        self._links = [self._connected() for _ in range(self._count)]

    def disconnect(self) -> None:
        for link in self._links:
            link.close()
        self._links = []

    def _next(self) -> int:
        self._at = (self._at + 1) % self._count
        return self._at

    def _send_slowly(self) -> None:
        self._links[self._next()].send(b"x")

    def _return(self) -> None:
        """Completes a frame, which the broker refuses, and connects again."""
        at = self._next()
        link = self._links[at]
        link.sendall(self._rest)
        while link.recv(4_096):
            pass  # The broker closes it.
        link.close()
        self._links[at] = self._connected()

    def act(self) -> None:
        """Misbehaves until the next line of standard input."""
        while not select.select([sys.stdin], [], [], self._pause_s if self._links else None)[0]:
            self._step()


class Peers:
    """The process of the clients, as a context manager."""

    def __init__(self, port: int, kind: str, count: int, trusted: Path) -> None:
        self._command = [sys.executable, "-m", __name__, str(port), kind, str(count), str(trusted)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Peers:
        root = Path(__file__).resolve().parents[2]
        self._process = subprocess.Popen(self._command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def connect(self) -> None:
        self._tell("connect")

    def disconnect(self) -> None:
        self._tell("disconnect")

    def _tell(self, command: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n".encode())
        self._process.stdin.flush()
        assert self._process.stdout.readline() == b"done\n", "the process of the clients failed"


def main() -> None:
    clients = _Clients(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
    clients.act()
    while command := sys.stdin.readline().strip():
        {"connect": clients.connect, "disconnect": clients.disconnect}[command]()
        print("done", flush=True)
        clients.act()
    clients.disconnect()


if __name__ == "__main__":
    main()
