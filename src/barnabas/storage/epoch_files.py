"""Leader epoch checkpoints written beside the loop: a broker that starts assigns an epoch to every partition at once.

A few at a time, so that neither the pool nor the loop is held up. In the pool each goes to a file of its own beside the
checkpoint and is synced; back on the loop it takes the name, unless the epochs have changed meanwhile. So whatever is
written at once, by the log itself, is never replaced by something older. Nothing depends on when this happens (see
`epochs`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from barnabas.common.errors import is_exhausted
from barnabas.common.host import Disk, Host, Timer
from barnabas.storage.checkpoints import EPOCHS_BESIDE_SUFFIX, remove_quietly
from barnabas.storage.epochs import LeaderEpochCache

#: Between the first change and its writing: a term's first records often come with it.
_DELAY_MS = 500
#: As many renames on the loop at once take a few milliseconds.
_FILES_AT_ONCE = 16
_LOOKS_AT_ONCE = 500
_PAUSE_MS = 10
_IDLE_MS = 5_000


class _Writing(NamedTuple):
    cache: LeaderEpochCache
    version: int
    path: str
    data: bytes


class EpochWriter:
    """`epochs.EpochFiles` for all logs of a broker. `on_failed(log's directory, error)` hears of what went wrong."""

    def __init__(self, host: Host, on_failed: Callable[[str, OSError], None]) -> None:
        self._host = host
        self._on_failed = on_failed
        self._waiting: dict[LeaderEpochCache, None] = {}
        #: Those in whose newest epoch nothing was written yet: most of ten thousand, after a start.
        self._idle: dict[LeaderEpochCache, None] = {}
        self._timer: Timer | None = None
        self._busy = False
        self._stopped = False

    def changed(self, cache: LeaderEpochCache) -> None:
        self._idle.pop(cache, None)
        self._waiting[cache] = None
        self._arm(_DELAY_MS)

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
            self._arm(_PAUSE_MS)
        elif self._idle:
            self._arm(_IDLE_MS)

    def _write_some(self) -> None:
        self._timer = None
        if not self._waiting:
            self._waiting, self._idle = self._idle, {}
        batch: list[_Writing] = []
        for cache in tuple(islice(self._waiting, _LOOKS_AT_ONCE)):
            if len(batch) == _FILES_AT_ONCE:
                break
            del self._waiting[cache]
            if cache.is_owed:
                batch.append(_Writing(cache, cache.version, cache.path + EPOCHS_BESIDE_SUFFIX, cache.encode()))
            elif not cache.is_saved:
                self._idle[cache] = None
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
            self._host.faults.report("cannot write leader epochs", error)
        for writing in batch:
            failure = None if failed is None else failed.get(writing.path)
            try:
                if failure is None and error is None:
                    writing.cache.written_beside(writing.version, writing.path)
            except FileNotFoundError:
                continue  # its log was deleted or moved: it is written when it must be
            except OSError as unnamed:
                failure = unnamed
            if failure is not None and not is_exhausted(failure):
                self._on_failed(writing.cache.directory, failure)
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
