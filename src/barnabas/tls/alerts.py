"""The alert that ends a failed handshake: it says why this node refuses a client, for example its certificate.

OpenSSL writes the alert into the buffer of outgoing bytes, but neither asyncio nor uvloop sends what is in the buffer
when a handshake fails. So the client would see a closed connection without a reason.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from contextvars import ContextVar
from typing import Any, Final

#: The socket of the connection whose handshake the current task waits for.
HANDSHAKING: Final[ContextVar[socket.socket | None]] = ContextVar("handshaking", default=None)


class _Connection(ssl.SSLObject):
    """One side of a connection, which sends the alert of its failed handshake."""

    #: The bytes to send.
    outgoing: ssl.MemoryBIO
    #: The socket to send them to; None if it is not known.
    link: socket.socket | None

    def send_alerts(self, outgoing: ssl.MemoryBIO, link: socket.socket | None) -> None:
        """Sets the source and the receiver of alerts, after `ssl` has constructed the object."""
        self.outgoing, self.link = outgoing, link

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            alert = self.outgoing.read()
            if self.link is not None and alert:
                # Best effort: the connection ends in any case.
                with contextlib.suppress(OSError):
                    self.link.send(alert)
            raise


class ServerContext(ssl.SSLContext):
    """A context of a server whose clients get the alert of a failed handshake."""

    sslobject_class = _Connection

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **options: Any) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *args, **options)
        assert isinstance(made, _Connection)
        made.send_alerts(outgoing, HANDSHAKING.get())
        return made
