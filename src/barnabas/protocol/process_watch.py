"""A watch of another process by an idle connection: its end is the first sign that the process has ended.

When a process dies, its system closes its connections immediately. So this side keeps one open that carries nothing,
and dials again when it closes. A refused dial then means that no process listens there any more.

    dialling --connected--> known --closed--> dialling again --connected--> known
                                                    '--refused--> gone --a response--> known

A dial that was refused before any connection says nothing about a process. A paused process keeps its connections; one
that cannot be reached lets dials time out, which says nothing either. While the system cleans up after a dead process,
its listener can still accept for a moment: the connection closes, and the next dial is refused.

After the process was gone, only a response to a request shows that it serves again: a process that has started again
accepts connections before it has joined its cluster.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from barnabas.common.host import Link, Links, Timer, Timers

#: ApiVersions version 0 without a client id: every broker responds to it.
PROBE_REQUEST: Final = struct.pack(">ihhih", 10, 18, 0, 0, -1)

_BUFFER_BYTES: Final = 4096
#: A dial without a result is abandoned after this time.
_DIAL_MS_MAX: Final = 2_000
#: The pause between dials after a connection has closed, and their number before the pause becomes long.
_PAUSE_MS: Final = 10
_QUICK_DIALS: Final = 20
_LONG_PAUSE_MS: Final = 1_000


class WatchHost(Protocol):
    """The ports that a watch needs."""

    @property
    def timers(self) -> Timers: ...
    @property
    def links(self) -> Links: ...


class ProcessEvents(NamedTuple):
    """The callbacks of the watch of a process."""

    #: The callback when a connection has ended and a dial was refused; it is called once until `on_answer`.
    on_gone: Callable[[], None]
    #: The callback when the process responds after it was gone.
    on_answer: Callable[[], None]


class ProcessWatch:
    """The watch of one address; it is the `common.host.LinkEnd` of its links in turn.

    `is_known`: whether the first dial already counts, because the process is known to have listened there.
    """

    def __init__(
        self, host: WatchHost, address: tuple[str, int], events: ProcessEvents, *, is_known: bool = False
    ) -> None:
        self._host = host
        self._address = address
        self._events = events
        self._is_known = is_known
        self._is_gone = False
        self._is_closed = False
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._link: Link | None = None
        self._timer: Timer | None = None
        #: The number of connection attempts since the last connection that lasted.
        self._dials = 0

    def start(self) -> None:
        self._dial()

    def close(self) -> None:
        """Ends the watch; no callback follows."""
        self._is_closed = True
        self._cancel()
        if self._link is not None:
            self._link.close()
            self._link = None

    def _dial(self) -> None:
        self._timer = self._host.timers.call_later(_DIAL_MS_MAX, self._abandon)
        self._dials += 1
        self._link = self._host.links.dial(*self._address, self)

    def _abandon(self) -> None:
        """Gives up an attempt to connect: the peer cannot be reached, which does not show whether its process is
        running.
        """
        if self._link is not None:
            self._link.close()
            self._link = None
        self._dial()

    def _dial_in(self, delay_ms: int) -> None:
        self._cancel()
        self._timer = self._host.timers.call_later(delay_ms, self._dial)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- common.host.LinkEnd

    def connected(self) -> None:
        if self._is_closed or self._link is None:
            return
        self._cancel()
        if self._is_gone:
            self._link.write([PROBE_REQUEST])
        else:
            self._is_known = True
            self._timer = self._host.timers.call_later(_LONG_PAUSE_MS, self._lasted)

    def _lasted(self) -> None:
        self._timer = None
        self._dials = 0

    def get_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        if self._is_gone and not self._is_closed:
            self._is_gone, self._is_known = False, True
            self._events.on_answer()

    def closed(self, error: OSError | None) -> None:
        if self._is_closed:
            return
        self._link = None
        was_refused = isinstance(error, ConnectionRefusedError)
        if self._is_gone or (was_refused and not self._is_known):
            self._dial_in(_LONG_PAUSE_MS)
        elif was_refused:
            self._is_gone, self._is_known = True, False
            self._dial_in(_LONG_PAUSE_MS)
            self._events.on_gone()
        elif self._dials == 0:
            self._cancel()
            self._dial()
        else:
            self._dial_in(_PAUSE_MS if self._dials < _QUICK_DIALS else _LONG_PAUSE_MS)
