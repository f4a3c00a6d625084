"""The reach of a peer: facts about one that does not answer, which distinguish a lost link from a process that hangs.

the last request            acknowledged by the peer's system, or not
the next dial               connects: the system is there, its process does not answer
                            refused: the system is there, no process listens
                            unreachable, silent: the system does not answer either
"""

from __future__ import annotations

import errno
from typing import Final, NamedTuple

from barnabas.common.host import LinkCondition, PeerLink

CONNECTS: Final = "connects"
REFUSED: Final = "refused"
UNREACHABLE: Final = "unreachable"
SILENT: Final = "silent"
_NO_ROUTE: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN})


def result_of(error: OSError | None) -> str:
    """Returns the result of a dial that failed with this error."""
    if isinstance(error, ConnectionRefusedError):
        return REFUSED
    return UNREACHABLE if error is not None and error.errno in _NO_ROUTE else SILENT


class Reach(NamedTuple):
    """The facts about a peer that does not answer."""

    #: Whether its system left the last request without an acknowledgement; None if that is unknown.
    is_unacknowledged: bool | None = None
    #: The result of the last dial since; "" before there was one.
    dialled: str = ""


class ReachNotes:
    """The facts about the peer of one channel, which calls the methods at the events of its links."""

    __slots__ = ("_has_failed", "_link", "known")

    def __init__(self) -> None:
        self.known = Reach()
        #: The link while it works.
        self._link: PeerLink | None = None
        self._has_failed = False

    def condition(self) -> LinkCondition | None:
        """Returns the condition of the network; None while there is no connection, or if it is unknown."""
        return None if self._link is None else self._link.condition()

    def opened(self, link: PeerLink | None) -> None:
        self._link, self._has_failed, self.known = link, False, Reach()

    def overdue(self, *, is_connected: bool) -> None:
        """Notes the state of the network when an answer does not arrive in time."""
        if self._link is not None:
            condition = self._link.condition()
            self.known = Reach(None if condition is None else condition.is_unacknowledged)
        elif not is_connected:
            self._dialled(SILENT)

    def connected(self) -> None:
        self._dialled(CONNECTS)

    def closed(self, error: OSError | None, *, is_connected: bool) -> None:
        """Notes why a link ended, or a dial failed."""
        if isinstance(error, ConnectionRefusedError) or (error is not None and not is_connected):
            self._dialled(result_of(error))

    def failed(self) -> None:
        self._link, self._has_failed = None, True

    def _dialled(self, result: str) -> None:
        if self._has_failed:
            self.known = self.known._replace(dialled=result)
