"""The order of requests: appended, synced in groups, applied, sent to watchers, answered (`SyncRequestProcessor`).

    write   appended now; finished, in the order of all writes, when a sync covers it
    defer   a read behind a write of its session, or a `sync`: finished when all before it are

Writes of one turn of the loop, and those that arrive during a sync, share the next one; a long turn begins it before
its end, so that the disk is busy meanwhile. A large group is finished in several turns, so that others are served in
between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from barnabas.common.host import Clock, Timers
from barnabas.zookeeper.server.outstanding_changes import OutstandingChanges
from barnabas.zookeeper.server.ports import TransactionLog
from barnabas.zookeeper.server.sessions import Session
from barnabas.zookeeper.tree.database import Database, TxnResult
from barnabas.zookeeper.txns import TxnEntry

#: The number of requests that a turn finishes at least, and the time after which the turn ends.
_TURN_REQUESTS: Final = 64
TURN_MS: Final = 8
#: The appended entries for which a sync begins within a turn.
_SYNC_ENTRIES: Final = 32

_NO_RESULT: Final = TxnResult(0)


class _Queued:
    __slots__ = ("entry", "finish", "session")

    def __init__(self, entry: TxnEntry | None, session: Session | None, finish: Callable[[TxnResult], None]) -> None:
        self.entry = entry
        self.session = session
        self.finish = finish


class Pipeline:
    """The requests that wait for a sync. `on_turn_end` is called after a turn, to send the answers."""

    def __init__(
        self,
        log: TransactionLog,
        database: Database,
        changes: OutstandingChanges,
        timers: Timers,
        clock: Clock,
        on_turn_end: Callable[[], None],
    ) -> None:
        self._log = log
        self._database = database
        self._changes = changes
        self._timers = timers
        self._clock = clock
        self._on_turn_end = on_turn_end
        self._queue: deque[_Queued] = deque()
        #: Appended entries that no sync covers yet, those that the running sync covers, and synced ones to finish.
        self._unsynced = 0
        self._syncing = 0
        self._synced = 0
        self._sync_scheduled = False
        self._finishing = False

    def __len__(self) -> int:
        return len(self._queue)

    def write(self, entry: TxnEntry, session: Session | None, finish: Callable[[TxnResult], None]) -> None:
        """Appends a transaction; `finish` gets its result after it was synced and applied."""
        self._log.append(entry)
        self._unsynced += 1
        self._enqueue(_Queued(entry, session, finish))
        if not self._syncing:
            if self._unsynced >= _SYNC_ENTRIES:
                self._sync_within_turn()
            elif not self._sync_scheduled:
                self._sync_scheduled = True
                self._timers.call_soon(self._sync)

    def defer(self, session: Session | None, finish: Callable[[], None]) -> None:
        """Calls `finish` when all requests before this one are finished."""
        if self._queue:
            self._enqueue(_Queued(None, session, lambda _: finish()))
        else:
            finish()

    def _enqueue(self, queued: _Queued) -> None:
        self._queue.append(queued)
        if queued.session is not None:
            queued.session.unanswered += 1

    def _sync_within_turn(self) -> None:
        """Begins a sync. No request is finished before this turn is over, even if the log takes no time."""
        was_finishing, self._finishing = self._finishing, True
        self._sync()
        if not was_finishing:
            if self._synced:
                self._timers.call_soon(self._finish)
            else:
                self._finishing = False

    def _sync(self) -> None:
        self._sync_scheduled = False
        if self._unsynced and not self._syncing:
            self._syncing, self._unsynced = self._unsynced, 0
            self._log.sync(self._on_synced)

    def _on_synced(self) -> None:
        self._synced += self._syncing
        self._syncing = 0
        self._sync()
        if not self._finishing:
            self._finish()

    def _finish(self) -> None:
        """Finishes requests that have been synced, until this turn is used up."""
        queue, end_ms = self._queue, self._clock.now_ms() + TURN_MS
        self._finishing = True
        count = 0
        while queue and (self._synced or queue[0].entry is None):
            if count >= _TURN_REQUESTS and self._clock.now_ms() >= end_ms:
                self._timers.call_soon(self._finish)
                self._on_turn_end()
                return
            count += 1
            queued = queue.popleft()
            if queued.session is not None:
                queued.session.unanswered -= 1
            if queued.entry is None:
                queued.finish(_NO_RESULT)
            else:
                self._synced -= 1
                queued.finish(self._apply(queued.entry))
        self._finishing = False
        self._on_turn_end()

    def _apply(self, entry: TxnEntry) -> TxnResult:
        result = self._database.apply(entry.header, entry.txn)
        self._changes.applied(entry.header.zxid)
        self._log.applied(entry)
        return result
