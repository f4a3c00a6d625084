"""The listeners of a log: its keeper, such as the log manager, and the replica that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from barnabas.common.host import Disk

#: The type of a log, whose module imports this one.
L = TypeVar("L")


class LogEvents(Generic[L]):
    """The handler of a log's events for the log's manager. The default removes the files of deleted segments."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def on_segments_deleted(self, log: L, files: list[str]) -> None:
        """Receives the files of deleted segments, which were renamed to `.deleted`."""
        for path in files:
            self._disk.remove(path)

    def on_rolled(self, log: L) -> None:
        """Handles a new active segment."""

    def on_truncating(self, log: L) -> None:
        """Handles a recovery point that was lowered. Its checkpoint must be written before anything is truncated or
        appended.
        """

    def on_truncated(self, log: L) -> None:
        """Handles a truncation of the log."""


class LogSignals(Generic[L]):
    """The listeners of a log: its manager, and the replica that it belongs to."""

    __slots__ = ("_start_moved", "keeper")

    def __init__(self, keeper: LogEvents[L]) -> None:
        self.keeper = keeper
        self._start_moved: Callable[[], None] | None = None

    def connect(self, keeper: LogEvents[L]) -> None:
        """Sets the manager that gets all further events. A log that is being opened has none."""
        self.keeper = keeper

    def watch_start(self, moved: Callable[[], None]) -> None:
        """Sets a callback for increases of the log start offset."""
        self._start_moved = moved

    def take_over_from(self, former: LogSignals[L]) -> None:
        """Adopts the callback of the log that this log replaces."""
        self._start_moved = former._start_moved

    def start_moved(self) -> None:
        if self._start_moved is not None:
            self._start_moved()
