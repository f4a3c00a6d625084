"""Whether the metadata log of this node takes records, and what the log tells an operator about it.

A leader that finds no room gives up its office to a voter that has some; a voter without room does not stand for
election, follows the committed records in memory, and says with its fetches that it has none (decision 0012).
"""

from __future__ import annotations

from typing import Final

from barnabas.common.host import Host
from barnabas.common.reports import LimitedReports
from barnabas.storage.health import WriteHealth

_NO_ROOM: Final = "no room"


class Room:
    def __init__(self, host: Host, health: WriteHealth, log_dir: str) -> None:
        self._health = health
        self._log_dir = log_dir
        #: Of all that the quorum may repeat.
        self.reports = LimitedReports(host.faults, host.clock)

    @property
    def is_there(self) -> bool:
        """False from an append that found none, or a directory that hangs or is slow, until a probe went well."""
        return self._health.has_room(self._log_dir)

    @property
    def cause(self) -> str:
        return self._health.cause_of(self._log_dir)

    def refused(self, error: BaseException) -> None:
        """An append to the log, or what must be written before it, found no room."""
        self.reports.report(_NO_ROOM, f"the metadata log cannot be written: {error}", error)
        self._health.refused(self._log_dir)

    def took(self) -> None:
        """An append went well."""
        if self.reports.is_reported(_NO_ROOM):
            self.reports.over(_NO_ROOM, "the metadata log can be written again")
