"""Connections to a TLS listener that fail, each in one of the states between the accept and the log-in.

`FAILURES` has each kind with its share of a thousand. Most kinds are cheap for both sides: what is sent is prepared,
and no answer is read. Those with a complete handshake cost about 3 ms.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.support.log_in import authenticate, handshake, plain, sized
from tests.support.tls_stores import Stores

from barnabas.embedded.authority import issue, make_authority

#: The local addresses of the clients: each has about 28,000 ports, which rest for a minute after a connection.
ADDRESSES: Final = tuple(f"127.0.0.{number}" for number in range(2, 22))
#: A `struct linger` that makes a close a reset.
_RESET: Final = b"\1\0\0\0\0\0\0\0"
#: The number of failed log-ins of which one waits for its answer, which the broker delays by 100 ms.
_WAITS_EACH: Final = 20


def hello(context: ssl.SSLContext) -> bytes:
    """Returns the first message of a client."""
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


class Failing:
    """The clients of one listener."""

    def __init__(self, port: int, stores: Stores, folder: Path) -> None:
        self._port = port
        self.trusting = ssl.create_default_context(cafile=stores.trusted)
        self._distrusting = ssl.create_default_context()
        self._stranger = ssl.create_default_context(cafile=stores.trusted)
        self._stranger.load_cert_chain(issue(make_authority(folder), "stranger", ["localhost"]))
        # The broker's key is of ECDSA, so a client with suites of RSA only has none in common with it.
        rsa_only = ssl.create_default_context()
        rsa_only.maximum_version = ssl.TLSVersion.TLSv1_2
        rsa_only.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
        self._hello, self._rsa_hello = hello(self.trusting), hello(rsa_only)
        self._count = 0

    def connected(self, address: str) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self._port), timeout=60, source_address=(address, 0))
        made.settimeout(60)
        return made

    def served(self, address: str) -> ssl.SSLSocket:
        """Returns a connection whose handshake is complete and that was answered."""
        link = self.trusting.wrap_socket(self.connected(address), server_hostname="127.0.0.1")
        link.sendall(sized(handshake()))
        assert link.recv(1_000)
        return link

    # -- the kinds: each returns a connection to close

    def silent(self, link: socket.socket) -> socket.socket:
        return link

    def no_tls(self, link: socket.socket) -> socket.socket:
        link.sendall(sized(handshake()))
        return link

    def garbage(self, link: socket.socket) -> socket.socket:
        link.sendall(b"\x16\x03\x01\x00\x02zz")
        return link

    def cut_in_the_hello(self, link: socket.socket) -> socket.socket:
        link.sendall(self._hello[: 1 + self._count % (len(self._hello) - 1)])
        return link

    def cut_after_the_hello(self, link: socket.socket) -> socket.socket:
        link.sendall(self._hello)
        return link

    def refused(self, link: socket.socket) -> socket.socket:
        link.sendall(self._rsa_hello)
        return link

    def distrusting(self, link: socket.socket) -> socket.socket:
        with contextlib.suppress(ssl.SSLCertVerificationError):
            self._distrusting.wrap_socket(link, server_hostname="127.0.0.1")
            raise AssertionError("the certificate is not trusted")
        return link

    def stranger(self, link: socket.socket) -> socket.socket:
        over_tls = self._stranger.wrap_socket(link, server_hostname="127.0.0.1")
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            assert over_tls.recv(1) == b"", "the certificate is refused"
        return over_tls

    def cut_in_the_log_in(self, link: socket.socket) -> socket.socket:
        over_tls = self.trusting.wrap_socket(link, server_hostname="127.0.0.1")
        data = sized(handshake(), authenticate(plain("alice", "guess")))
        over_tls.sendall(data[: self._count % len(data)])
        return over_tls

    def guessing(self, link: socket.socket) -> socket.socket:
        over_tls = self.trusting.wrap_socket(link, server_hostname="127.0.0.1")
        over_tls.sendall(sized(handshake(), authenticate(plain("alice", "guess"))))
        if self._count % _WAITS_EACH == 0:
            answers = b""
            while data := over_tls.recv(1_000):
                answers += data
            assert b"Invalid username or password" in answers
        return over_tls

    def fail(self, number: int) -> None:
        """Makes one connection, which fails and is closed: by a reset, by a FIN first, or at once."""
        self._count = number // 1_000 + number
        link = _KINDS[number * 619 % len(_KINDS)](self, self.connected(ADDRESSES[number % len(ADDRESSES)]))
        with contextlib.suppress(OSError):
            if number % 3 == 0:
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            elif number % 3 == 1:
                link.shutdown(socket.SHUT_WR)
        link.close()


Kind = Callable[[Failing, socket.socket], socket.socket]

FAILURES: Final[dict[Kind, int]] = {
    Failing.silent: 40,
    Failing.no_tls: 200,
    Failing.garbage: 100,
    Failing.cut_in_the_hello: 400,
    Failing.cut_after_the_hello: 70,
    Failing.refused: 50,
    Failing.distrusting: 40,
    Failing.stranger: 20,
    Failing.cut_in_the_log_in: 40,
    Failing.guessing: 40,
}


def _kinds() -> Iterator[Kind]:
    for kind, share in FAILURES.items():
        yield from [kind] * share


#: The kind of each connection, again and again.
_KINDS: Final = tuple(_kinds())
