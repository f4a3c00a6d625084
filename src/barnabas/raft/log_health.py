"""Whether the metadata log of this node can be written, and the reports about that to an operator.

A leader whose log cannot be written resigns in favour of a voter that can write; a voter that cannot write starts no
elections, follows the committed records in memory, and reports this state in its fetches (decision 0012).
"""

from __future__ import annotations

from typing import Final

from barnabas.common.host import Host
from barnabas.common.reports import LimitedReports
from barnabas.storage.health import WriteHealth

#: The error message to a client whose change has no space in the log.
NO_SPACE: Final = "There is no space for the metadata log."
_UNWRITABLE: Final = "unwritable"


class LogHealth:
    """The write state of the metadata log's directory."""

    def __init__(self, host: Host, health: WriteHealth, log_dir: str) -> None:
        self._health = health
        self._log_dir = log_dir
        #: The rate-limited reports about the metadata log.
        self.reports = LimitedReports(host.faults, host.clock)

    @property
    def is_writable(self) -> bool:
        """Whether the log can be written: False from a failed append or a slow disk until a probe succeeds."""
        return self._health.has_space(self._log_dir)

    @property
    def cause(self) -> str:
        return self._health.cause_of(self._log_dir)

    def on_refused(self, error: BaseException) -> None:
        """Records that there was no space for an append to the log, or for a write that must precede it."""
        self.reports.report(_UNWRITABLE, f"the metadata log cannot be written: {error}", error)
        self._health.refused(self._log_dir)

    def on_success(self) -> None:
        """Records that an append to the metadata log succeeded."""
        if self.reports.is_reported(_UNWRITABLE):
            self.reports.over(_UNWRITABLE, "the metadata log can be written again")
