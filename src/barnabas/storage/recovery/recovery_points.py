"""Recovery points that follow the ends of logs while the broker runs, so that a startup after a kill is short.

After a kill, everything above the recovery points has to be scanned. Every `log.flush.offset.checkpoint.interval.ms`,
and sooner when more than `barnabas.log.unsynced.bytes.max` are unsynced in one directory, the logs with the most
unsynced bytes are synced one after the other in the background; then the checkpoint is written. Small amounts are not
worth a sync: a few hundred kilobytes are scanned in milliseconds.

There is one timer for all logs, and one sync at a time. A topic's `flush.messages` and `flush.ms`, which promise more,
are applied independently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from barnabas.common.config import BrokerConfig
from barnabas.common.host import Host, Timer
from barnabas.storage.directories import root_of
from barnabas.storage.log import Log
from barnabas.storage.slices import run_slices

_CHECK_INTERVAL_MS: Final = 5_000
_LEFT_BYTES: Final = 1 << 19
_NEVER_MS: Final = 1 << 40

#: Syncs a log and calls back at the end, whether or not the sync succeeded.
Sync = Callable[[Log, Callable[[], None]], None]


class RecoveryPoints:
    """Advances the recovery points. `logs` returns all logs of working directories, `sync` syncs one in the background,
    `checkpoint` writes the result."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        logs: Callable[[], Iterable[Log]],
        sync: Sync,
        checkpoint: Callable[[], None],
    ) -> None:
        self._host = host
        self._config = config
        self._logs = logs
        self._sync = sync
        self._checkpoint = checkpoint
        self._timer: Timer | None = None
        self._last_ms = 0
        self._waiting: list[Log] = []
        self._is_stopped = True
        #: The bytes of a directory that can stay above the recovery points after a pass.
        self.left_bytes = _LEFT_BYTES
        #: The syncs requested since startup.
        self.count = 0

    def start(self) -> None:
        self._is_stopped = False
        self._last_ms = self._host.clock.now_ms()
        self._check_later()

    def stop(self) -> None:
        self._is_stopped = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_later(self) -> None:
        if not self._is_stopped:
            self._timer = self._host.timers.call_later(_CHECK_INTERVAL_MS, self._check)

    def _check(self) -> None:
        unsynced: dict[str, list[tuple[int, Log]]] = {}
        run_slices(self._host, self._find(unsynced), lambda: self._begin(unsynced), self._wait)

    def _wait(self, timer: Timer) -> None:
        self._timer = timer

    def _find(self, unsynced: dict[str, list[tuple[int, Log]]]) -> Iterator[None]:
        """Collects the logs with records above their recovery points, by directory."""
        for log in self._logs():
            if log.recovery_point < log.log_end_offset:
                unsynced.setdefault(root_of(log.directory), []).append((log.unsynced_bytes, log))
            yield

    def _begin(self, unsynced: Mapping[str, list[tuple[int, Log]]]) -> None:
        if self._is_stopped:
            return
        interval_ms = self._config.int_of("log.flush.offset.checkpoint.interval.ms")
        bytes_max = self._config.int_of("barnabas.log.unsynced.bytes.max")
        now_ms = self._host.clock.now_ms()
        is_due = interval_ms < _NEVER_MS and now_ms - self._last_ms >= interval_ms
        chosen: list[Log] = []
        for found in unsynced.values() if bytes_max else ():
            left = sum(size for size, _ in found)
            if not is_due and left <= bytes_max:
                continue
            for size, log in sorted(found, key=_size, reverse=True):
                if left <= self.left_bytes:
                    break
                left -= size
                chosen.append(log)
        if is_due:
            self._last_ms = now_ms
        if chosen:
            chosen.reverse()
            self._waiting = chosen
            self._next()
        else:
            self._check_later()

    def _next(self) -> None:
        """Syncs the next log, after the previous one is done."""
        if self._is_stopped:
            return
        while self._waiting:
            log = self._waiting.pop()
            if log.recovery_point < log.log_end_offset:
                self.count += 1
                self._sync(log, self._next)
                return
        self._checkpoint()
        self._check_later()


def _size(found: tuple[int, Log]) -> int:
    return found[0]
