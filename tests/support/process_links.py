"""Links to processes that listen and end, for a `ProcessWatch`, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from barnabas.common.host import LinkEnd, PeerLink
from barnabas.simulation.host import MemoryLink, VirtualTime


class Listening(Enum):
    """The results of a dial to a process."""

    ACCEPTS = "it accepts"
    REFUSES = "no process listens, or a firewall rejects"
    SILENT = "nothing answers"
    #: The listener accepts, and closes the connection immediately.
    CLOSES = "it accepts and closes"


class ProcessLink(MemoryLink):
    """A connection; a write is answered if the process responds."""

    def __init__(self, links: ProcessLinks, port: int, end: LinkEnd) -> None:
        super().__init__()
        self.links = links
        self.port = port
        self.end = end
        self.is_connected = False

    def write(self, chunks: object) -> None:
        assert self.is_connected
        if self.links.responds(self.port):
            self.links.time.call_soon(self._answer)

    def _answer(self) -> None:
        if not self.is_closed:
            self.end.get_buffer()[:1] = b"x"
            self.end.received(1)

    def arrive(self) -> None:
        if self.is_closed:
            return
        found = self.links.found(self.port)
        if found is Listening.REFUSES:
            self.cut(ConnectionRefusedError(111, "Connection refused"))
        elif found is not Listening.SILENT:
            self.is_connected = True
            self.end.connected()
            if found is Listening.CLOSES:
                self.links.time.call_soon(self.cut)

    def cut(self, error: OSError | None = None) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.end.closed(error)


class ProcessLinks:
    """The links of one host. `found` says what a dial to a port finds; `responds` whether a request is answered."""

    def __init__(
        self, time: VirtualTime, found: Callable[[int], Listening], responds: Callable[[int], bool] = lambda port: True
    ) -> None:
        self.time = time
        self.found = found
        self.responds = responds
        self.dialled: list[ProcessLink] = []

    def dial(self, host: str, port: int, end: LinkEnd, tls: str | None = None) -> PeerLink:
        link = ProcessLink(self, port, end)
        self.dialled.append(link)
        self.time.call_soon(link.arrive)
        return link

    def cut(self, port: int) -> None:
        """Ends the connections to this port."""
        for link in self.dialled:
            if link.port == port and link.is_connected:
                self.time.call_soon(link.cut)

    @property
    def open_ports(self) -> list[int]:
        """The ports with a connection."""
        return sorted(link.port for link in self.dialled if link.is_connected and not link.is_closed)
