"""Removal of directories that a start set aside as `-stray`, after a day.

The day begins when this broker first finds the directory under that name; a file `stray-since` in it has the time, so
that restarts do not extend it. The removal checks in the background once an hour, and only if there is such a
directory.
"""

from __future__ import annotations

from typing import Final

from barnabas.common.host import Disk, Host, Timer
from barnabas.storage.checkpoints import write_atomically
from barnabas.storage.file_removal import DelayedRemoval

KEPT_MS: Final = 24 * 3_600_000
SINCE_FILE: Final = "stray-since"
_FIRST_CHECK_MS: Final = 1_000
_CHECK_INTERVAL_MS: Final = 3_600_000


class StrayRemoval:
    """Removes stray directories when they are due."""

    def __init__(self, host: Host, removal: DelayedRemoval) -> None:
        self._host = host
        self._removal = removal
        self._paths: dict[str, None] = {}
        self._timer: Timer | None = None

    def add(self, path: str) -> None:
        """Adds a directory that was set aside, now or at an earlier startup."""
        self._paths[path] = None
        if self._timer is None:
            self._timer = self._host.timers.call_later(_FIRST_CHECK_MS, self._check)

    def stop(self) -> None:
        """Stops; the next startup finds the directories by their names."""
        self._paths.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        disk, paths, now_ms = self._host.disk, list(self._paths), self._host.clock.wall_ms()
        self._timer = self._host.timers.call_later(_CHECK_INTERVAL_MS, self._check)
        self._host.blocking.run(lambda: [path for path in paths if _is_due(disk, path, now_ms)], self._checked)

    def _checked(self, due: list[str], error: BaseException | None) -> None:
        if error is not None:
            self._host.faults.report("cannot list stray directories", error)
            return
        due = [path for path in due if path in self._paths]
        for path in due:
            del self._paths[path]
        if due:
            named = ", ".join(due[:3]) + (f" and {len(due) - 3} more" if len(due) > 3 else "")
            self._host.faults.inform(f"removing stray directories after a day: {named}")
            self._removal.add(due, 0)
        if not self._paths and self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _is_due(disk: Disk, path: str, now_ms: int) -> bool:
    """Returns whether the directory's day is over. The day begins now if there is no valid time yet, or the clock was
    set back."""
    file = f"{path}/{SINCE_FILE}"
    try:
        since_ms = int(disk.read(file)) if disk.exists(file) else None
    except ValueError:
        since_ms = None
    except OSError:
        return False
    if since_ms is not None and since_ms <= now_ms:
        return now_ms - since_ms >= KEPT_MS
    try:
        write_atomically(disk, file, str(now_ms).encode())
    except OSError:
        # The disk is full, or the directory is gone: checked again later.
        return False
    return False
