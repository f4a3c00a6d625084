"""Background writing of logs' small files: a starting broker assigns an epoch to every partition in a short time, and
one that gets thousands of new partitions writes their topic ids.

A few files are written at a time, so that neither the pool nor the loop is blocked. The pool writes and syncs each one
under a temporary name; back on the loop it is renamed into place, unless its content has changed meanwhile. So a file
that the log itself wrote is never replaced by an older version. Nothing depends on when this happens (see `epochs`,
`identity`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple, Protocol

from barnabas.common.errors import is_exhausted
from barnabas.common.host import Disk, Host, Timer
from barnabas.storage.checkpoints import NEXT_SUFFIX, remove_quietly

#: The number of renames in a row, which takes a few milliseconds of the loop.
_FILES_AT_ONCE = 16
_CHECKS_PER_TURN = 500
_IDLE_MS = 5_000


class BackgroundFile(Protocol):
    """A small file of one log that is written in the background."""

    #: The log's directory.
    directory: str

    @property
    def version(self) -> int:
        """The version of the file's content, which increases with every change."""

    @property
    def path(self) -> str: ...

    @property
    def is_saved(self) -> bool:
        """Whether the file is up to date."""

    @property
    def needs_write(self) -> bool:
        """Whether the file should be written soon."""

    def encode(self) -> bytes:
        """Returns the content that the file should have."""

    def take_draft(self, version: int, temporary: str) -> None:
        """Renames a synced draft into place; `version` is the version of the content that it has. Raises OSError."""


class Pace(NamedTuple):
    """The delays of background writing: from a change to the write, from the last of many changes to the write, and
    between two batches.
    """

    delay_ms: int
    quiet_ms: int
    pause_ms: int


#: The first records of a leader epoch often arrive soon after it begins.
EPOCHS = Pace(delay_ms=500, quiet_ms=0, pause_ms=10)
#: Files are not written while partitions are created one after the other: producers do not wait for them.
TOPIC_IDS = Pace(delay_ms=2_000, quiet_ms=1_500, pause_ms=50)


class _Writing(NamedTuple):
    file: BackgroundFile
    version: int
    path: str
    data: bytes


class BackgroundWriter:
    """A writer of the small files of all logs of a broker, in the background. `on_failed(directory of the log, error)`
    is called when a write fails.
    """

    def __init__(self, host: Host, pace: Pace, on_failed: Callable[[str, OSError], None]) -> None:
        self._host = host
        self._pace = pace
        self._on_failed = on_failed
        self._waiting: dict[BackgroundFile, None] = {}
        #: Unsaved files whose writing can wait, such as the epochs of most logs after a restart.
        self._idle: dict[BackgroundFile, None] = {}
        self._timer: Timer | None = None
        self._changed_ms = 0
        self._busy = False
        self._stopped = False

    def changed(self, file: BackgroundFile) -> None:
        """Schedules the writing of a file that is not up to date."""
        self._idle.pop(file, None)
        self._waiting[file] = None
        if self._pace.quiet_ms:
            self._changed_ms = self._host.clock.now_ms()
        self._arm(self._pace.delay_ms)

    def stop(self) -> None:
        """Stops writing in the background. The logs write their remaining files when they are closed."""
        self._stopped = True
        self._waiting.clear()
        self._idle.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, delay_ms: int) -> None:
        if self._timer is None and not self._busy and not self._stopped:
            self._timer = self._host.timers.call_later(delay_ms, self._write_some)

    def _arm_next(self) -> None:
        if self._waiting:
            self._arm(self._pace.pause_ms)
        elif self._idle:
            self._arm(_IDLE_MS)

    def _write_some(self) -> None:
        self._timer = None
        if self._pace.quiet_ms and self._host.clock.now_ms() < self._changed_ms + self._pace.quiet_ms:
            self._arm(self._pace.quiet_ms)
            return
        if not self._waiting:
            self._waiting, self._idle = self._idle, {}
        batch: list[_Writing] = []
        for file in tuple(islice(self._waiting, _CHECKS_PER_TURN)):
            if len(batch) == _FILES_AT_ONCE:
                break
            del self._waiting[file]
            if file.needs_write:
                batch.append(_Writing(file, file.version, file.path + NEXT_SUFFIX, file.encode()))
            elif not file.is_saved:
                self._idle[file] = None
        if not batch:
            self._arm_next()
            return
        self._busy = True
        disk = self._host.disk
        self._host.blocking.run(lambda: _write(disk, batch), lambda failed, error: self._done(batch, failed, error))

    def _done(self, batch: list[_Writing], failed: dict[str, OSError] | None, error: BaseException | None) -> None:
        self._busy = False
        if self._stopped:
            return
        if error is not None:
            self._host.faults.report("cannot write checkpoint files of logs in the background", error)
        for writing in batch:
            failure = None if failed is None else failed.get(writing.path)
            try:
                if failure is None and error is None:
                    writing.file.take_draft(writing.version, writing.path)
            except FileNotFoundError:
                continue  # The log was deleted or moved; it writes the file itself if needed.
            except OSError as unnamed:
                failure = unnamed
            if failure is not None and not is_exhausted(failure):
                self._on_failed(writing.file.directory, failure)
        self._arm_next()


def _write(disk: Disk, batch: list[_Writing]) -> dict[str, OSError]:
    """Writes drafts of small files and syncs them. Returns the errors by path."""
    failed: dict[str, OSError] = {}
    for writing in batch:
        try:
            disk.write(writing.path, writing.data, sync=True)
        except FileNotFoundError:
            continue  # The log was deleted or moved.
        except OSError as error:
            remove_quietly(disk, writing.path)
            failed[writing.path] = error
    return failed
