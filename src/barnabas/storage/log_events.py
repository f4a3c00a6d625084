"""The listeners of a log: its keeper, such as the log manager, and the replica that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.common.host import Disk

if TYPE_CHECKING:
    from barnabas.storage.log import Log


class LogEvents:
    """The handler of a log's events for its keeper. The default removes the files of deleted segments."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def on_segments_deleted(self, log: Log, files: list[str]) -> None:
        """Called after the files of deleted segments were renamed to `.deleted`."""
        for path in files:
            self._disk.remove(path)

    def on_rolled(self, log: Log) -> None:
        """Called after a new active segment was begun."""

    def on_truncating(self, log: Log) -> None:
        """Called when the recovery point went back; its checkpoint must be written before anything is truncated or
        appended."""

    def on_truncated(self, log: Log) -> None:
        """Called after the log was truncated."""


class LogSignals:
    """The listeners of a log: its keeper, and the replica that it belongs to."""

    __slots__ = ("_start_moved", "keeper")

    def __init__(self, keeper: LogEvents) -> None:
        self.keeper = keeper
        self._start_moved: Callable[[], None] | None = None

    def connect(self, keeper: LogEvents) -> None:
        """Sets the keeper that gets all further events. A log that is being opened has none."""
        self.keeper = keeper

    def watch_start(self, moved: Callable[[], None]) -> None:
        """Sets a callback for increases of the log start offset."""
        self._start_moved = moved

    def take_over_from(self, former: LogSignals) -> None:
        """Takes over the callback from the log that this log replaces."""
        self._start_moved = former._start_moved

    def start_moved(self) -> None:
        if self._start_moved is not None:
            self._start_moved()
