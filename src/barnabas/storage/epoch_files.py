"""Leader epoch checkpoints written beside the loop: a broker that starts assigns an epoch to every partition at once.

A few at a time, so that neither the pool nor the loop is held up. In the pool each goes to a file of its own beside the
checkpoint and is synced; back on the loop it takes the name, unless the epochs have changed meanwhile. So whatever is
written at once, by the log itself, is never replaced by something older. Nothing depends on when this happens (see
`epochs`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.common.errors import is_exhausted
from barnabas.common.host import Disk, Host, Timer
from barnabas.storage.checkpoints import EPOCHS_BESIDE_SUFFIX, remove_quietly
from barnabas.storage.epochs import LeaderEpochCache

#: Between the first change and its writing: a term's first records often come with it.
_DELAY_MS = 500
#: As many renames on the loop at once take a few milliseconds.
_FILES_AT_ONCE = 16


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
        self._timer: Timer | None = None
        self._busy = False
        self._stopped = False

    def changed(self, cache: LeaderEpochCache) -> None:
        self._waiting[cache] = None
        if self._timer is None and not self._busy and not self._stopped:
            self._timer = self._host.timers.call_later(_DELAY_MS, self._write_some)

    def stop(self) -> None:
        """What still waits is written by the logs themselves as they are closed."""
        self._stopped = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write_some(self) -> None:
        self._timer = None
        batch: list[_Writing] = []
        while self._waiting and len(batch) < _FILES_AT_ONCE:
            cache = next(iter(self._waiting))
            del self._waiting[cache]
            if not cache.is_saved:
                batch.append(_Writing(cache, cache.version, cache.path + EPOCHS_BESIDE_SUFFIX, cache.encode()))
        if batch:
            self._busy = True
            self._host.blocking.run(
                lambda: _write(self._host.disk, batch), lambda failed, error: self._done(batch, failed or {}, error)
            )

    def _done(self, batch: list[_Writing], failed: dict[str, OSError], error: BaseException | None) -> None:
        self._busy = False
        if self._stopped:
            return
        if error is not None:
            self._host.faults.report("cannot write leader epochs", error)
        for writing in batch:
            failure = failed.get(writing.path)
            try:
                if failure is None and error is None:
                    writing.cache.written_beside(writing.version, writing.path)
            except FileNotFoundError:
                continue  # its log was deleted or moved: it is written when it must be
            except OSError as unnamed:
                failure = unnamed
            if failure is not None and not is_exhausted(failure):
                self._on_failed(writing.cache.directory, failure)
        if self._waiting:
            self._write_some()


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
