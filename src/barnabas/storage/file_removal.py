"""Delayed removal of deleted files: they are renamed immediately, and removed in the background after
`file.delete.delay.ms`.

Readers that began before the deletion can continue meanwhile. The next startup finds files that were not removed by
their names, and removes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from barnabas.common.host import Disk, Host, Timer

#: Prepares the removal of these paths, then calls the function.
Prepare = Callable[[list[str], Callable[[], None]], None]


class DelayedRemoval:
    """Files and directories to be removed in the background after a delay; one timer for all."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._waiting: deque[tuple[int, list[str]]] = deque()
        self._timer: Timer | None = None
        #: The function to call before files are removed; by default there is nothing to prepare.
        self.prepare: Prepare = _nothing_to_prepare

    def add(self, paths: list[str], delay_ms: int) -> None:
        if paths:
            self._waiting.append((self._host.clock.now_ms() + delay_ms, paths))
            self._arm()

    def cancel(self) -> None:
        """Stops. The next startup finds and removes the remaining files."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is None and self._waiting:
            due_ms = min(due for due, _ in self._waiting)
            delay_ms = max(0, due_ms - self._host.clock.now_ms())
            self._timer = self._host.timers.call_later(delay_ms, self._remove_due)

    def _remove_due(self) -> None:
        self._timer = None
        now_ms = self._host.clock.now_ms()
        paths = [path for due, some in self._waiting if due <= now_ms for path in some]
        self._waiting = deque(entry for entry in self._waiting if entry[0] > now_ms)
        self.prepare(paths, lambda: self._host.blocking.run(lambda: _remove(self._host.disk, paths), self._removed))
        self._arm()

    def _removed(self, _: object, error: BaseException | None) -> None:
        if error is not None:
            self._host.faults.report("cannot remove deleted files", error)


def _nothing_to_prepare(paths: list[str], then: Callable[[], None]) -> None:
    then()


def _remove(disk: Disk, paths: list[str]) -> None:
    for path in paths:
        if disk.is_dir(path):
            disk.remove_tree(path)
        elif disk.exists(path):
            disk.remove(path)
