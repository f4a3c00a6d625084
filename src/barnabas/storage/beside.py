"""Small files of logs that are written beside the loop: a broker that starts assigns an epoch to every partition at
once, and one that is given thousands of new partitions notes their topic ids.

A few at a time, so that neither the pool nor the loop is held up. In the pool each goes to a file of its own beside the
right one and is synced; back on the loop it takes the name, unless what it says has changed meanwhile. So whatever is
written at once, by the log itself, is never replaced by something older. Nothing depends on when this happens (see
`epochs`, `identity`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple, Protocol

from barnabas.common.errors import is_exhausted
from barnabas.common.host import Disk, Host, Timer
from barnabas.storage.checkpoints import BESIDE_SUFFIX, remove_quietly

#: As many renames on the loop at once take a few milliseconds.
_FILES_AT_ONCE = 16
_LOOKS_AT_ONCE = 500
_IDLE_MS = 5_000


class BesideFile(Protocol):
    """One small file of one log."""

    #: The log's.
    directory: str

    @property
    def version(self) -> int:
        """Rises with every change of what it should say."""

    @property
    def path(self) -> str: ...

    @property
    def is_saved(self) -> bool:
        """Whether the file says all."""

    @property
    def is_owed(self) -> bool:
        """Whether it should be written soon."""

    def encode(self) -> bytes:
        """What it should say."""

    def written_beside(self, version: int, temporary: str) -> None:
        """What it should have said at that version stands there, synced. Raises OSError."""


class Pace(NamedTuple):
    """How soon after a change, how long after the last one of many, and with what pauses between a few."""

    delay_ms: int
    quiet_ms: int
    pause_ms: int


#: A term's first records often come soon after it began.
EPOCHS = Pace(delay_ms=500, quiet_ms=0, pause_ms=10)
#: Not while partitions are made one after the other: whoever writes to them does not wait.
TOPIC_IDS = Pace(delay_ms=2_000, quiet_ms=1_500, pause_ms=50)


class _Writing(NamedTuple):
    file: BesideFile
    version: int
    path: str
    data: bytes


class BesideWriter:
    """For all logs of a broker. `on_failed(log's directory, error)` hears of what went wrong."""

    def __init__(self, host: Host, pace: Pace, on_failed: Callable[[str, OSError], None]) -> None:
        self._host = host
        self._pace = pace
        self._on_failed = on_failed
        self._waiting: dict[BesideFile, None] = {}
        #: Those that are not owed: the epochs of most of ten thousand logs, after a start.
        self._idle: dict[BesideFile, None] = {}
        self._timer: Timer | None = None
        self._changed_ms = 0
        self._busy = False
        self._stopped = False

    def changed(self, file: BesideFile) -> None:
        """It is not saved."""
        self._idle.pop(file, None)
        self._waiting[file] = None
        if self._pace.quiet_ms:
            self._changed_ms = self._host.clock.now_ms()
        self._arm(self._pace.delay_ms)

    def stop(self) -> None:
        """What still waits is written by the logs themselves as they are closed."""
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
        for file in tuple(islice(self._waiting, _LOOKS_AT_ONCE)):
            if len(batch) == _FILES_AT_ONCE:
                break
            del self._waiting[file]
            if file.is_owed:
                batch.append(_Writing(file, file.version, file.path + BESIDE_SUFFIX, file.encode()))
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
                    writing.file.written_beside(writing.version, writing.path)
            except FileNotFoundError:
                continue  # its log was deleted or moved: it is written when it must be
            except OSError as unnamed:
                failure = unnamed
            if failure is not None and not is_exhausted(failure):
                self._on_failed(writing.file.directory, failure)
        self._arm_next()


def _write(disk: Disk, batch: list[_Writing]) -> dict[str, OSError]:
    """What could not be written, by its path."""
    failed: dict[str, OSError] = {}
    for writing in batch:
        try:
            disk.write(writing.path, writing.data, sync=True)
        except FileNotFoundError:
            continue  # its log was deleted or moved
        except OSError as error:
            remove_quietly(disk, writing.path)
            failed[writing.path] = error
    return failed
