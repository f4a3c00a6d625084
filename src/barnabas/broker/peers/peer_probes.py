"""Dials to peers that do not answer: whether their systems accept connections, refuse them, or are not there.

A channel abandons a dial after 2 s and repeats it, to be connected soon when the peer is back. The network needs about
3 s to say that there is no such machine (Linux asks three times for its hardware address), so a dial that is to find
that out waits longer. It is plain TCP, also to a listener with TLS: the process that would shake hands may be paused.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from barnabas.common.host import Host, Link, Timer
from barnabas.protocol.reach import CONNECTS, SILENT, result_of

_BUFFER_BYTES: Final = 256
#: A dial without a result is abandoned after this time.
_DIAL_MS_MAX: Final = 5_000

Address = tuple[str, int]


class PeerProbes:
    """The dials, at most one at a time for each peer."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._probes: dict[int, _Probe] = {}

    def result(self, peer: int, address: Address) -> str:
        """Returns the result of the last dial to a peer that is silent; "" while there is none. The first call, and one
        after a dial without any answer, begins a dial.
        """
        probe = self._probes.get(peer)
        if probe is None:
            probe = self._probes[peer] = _Probe(self._host, address)
        elif probe.result == SILENT:
            probe.dial()
        return probe.result

    def keep(self, silent: Collection[int]) -> None:
        """Forgets the peers that are not silent any more."""
        for peer in [peer for peer in self._probes if peer not in silent]:
            self._probes.pop(peer).close()

    def close(self) -> None:
        self.keep(())


class _Probe:
    """The dials to one peer; it is the `common.host.LinkEnd` of each of them in turn."""

    def __init__(self, host: Host, address: Address) -> None:
        self._host = host
        self._address = address
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._link: Link | None = None
        self._timer: Timer | None = None
        self.result = ""
        self.dial()

    def dial(self) -> None:
        if self._link is None:
            self._timer = self._host.timers.call_later(_DIAL_MS_MAX, self._on_timeout)
            self._link = self._host.links.dial(*self._address, self)

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        self._timer = None
        self._end(SILENT)

    def _end(self, result: str) -> None:
        self.result = result
        self.close()

    def connected(self) -> None:
        if self._link is not None:
            self._end(CONNECTS)

    def get_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        """Ignores what arrives: nothing was asked."""

    def closed(self, error: OSError | None) -> None:
        if self._link is not None:
            self._link = None
            self._end(result_of(error))
