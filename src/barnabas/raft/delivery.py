"""The delivery of committed batches to listeners, each once and in order, and the callbacks that wait for it.

Invariant: what was delivered is never revoked. A truncation below it would be the loss of a committed record, and the
node stops (Raft's state machine safety).

A follower whose log cannot be written still delivers committed batches (`deliver_ahead`): a majority has them on disk,
and a broker that does not learn of new leaders would serve from old metadata. They are fetched again for the log later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import NamedTuple

from barnabas.common.continuations import later
from barnabas.raft.commits import CommitListener, CommittedBatch
from barnabas.raft.snapshots import Snapshot, SnapshotId


class _Waiting(NamedTuple):
    """A callback that waits until everything before `end_offset` is delivered."""

    end_offset: int
    base_offset: int
    done: Callable[[int], None] | None
    failed: Callable[[], None] | None


class Delivery:
    """The batches of the log that wait for their commit, the listeners, and the waiting callbacks."""

    def __init__(self, listeners: list[CommitListener]) -> None:
        self.listeners = listeners
        #: Batches that are in the log and not delivered.
        self._appended: deque[CommittedBatch] = deque()
        self._waiting: deque[_Waiting] = deque()
        #: The offset before which all records were delivered.
        self.offset = 0
        #: The offset before which all records are known to be committed; -1 if unknown.
        self.high_watermark = -1
        #: The end of the log while batches beyond it are delivered; None when the log has all of them.
        self._log_end: int | None = None
        self._delivering = False

    @property
    def offset_in_log(self) -> int:
        """Returns the offset before which all records were delivered and are in the log."""
        return self.offset if self._log_end is None else self._log_end

    def appended(self, batch: CommittedBatch) -> None:
        if self._log_end is not None:
            self._log_end = batch.last_offset + 1
            if self._log_end >= self.offset:
                self._log_end = None
            if batch.last_offset < self.offset:
                return
        self._appended.append(batch)

    def deliver_ahead(self, batches: Iterable[CommittedBatch], log_end: int, high_watermark: int) -> None:
        """Delivers the committed batches among these, which begin at the end of the log and are not in it."""
        self.commit(min(high_watermark, log_end), is_all=False)
        self.high_watermark = max(self.high_watermark, high_watermark)
        if self._delivering or self._appended or self.offset < log_end:
            return
        self._delivering = True
        try:
            for batch in batches:
                if batch.base_offset < self.offset:
                    continue
                if batch.base_offset != self.offset or batch.last_offset >= high_watermark:
                    break
                self._log_end = log_end
                for listener in self.listeners:
                    listener.on_commit(batch)
                self.offset = batch.last_offset + 1
            if self.offset >= high_watermark:
                for listener in self.listeners:
                    listener.on_caught_up()
        finally:
            self._delivering = False

    def truncated(self, end_offset: int) -> None:
        assert end_offset >= self.offset_in_log, f"truncation of committed records at {end_offset}"
        while self._appended and self._appended[-1].last_offset >= end_offset:
            self._appended.pop()

    def reset(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """Continues from a snapshot. The snapshot contains at least everything that was delivered."""
        self._appended.clear()
        if self._log_end is not None:
            self._log_end = snapshot_id.end_offset
            if snapshot_id.end_offset < self.offset:
                return
            self._log_end = None
        assert snapshot_id.end_offset >= self.offset, "a snapshot older than the records already delivered"
        self.offset = snapshot_id.end_offset
        self.high_watermark = max(self.high_watermark, snapshot_id.end_offset)
        for listener in self.listeners:
            listener.on_snapshot(snapshot_id, snapshot)

    def note_high_watermark(self, high_watermark: int) -> None:
        """Records that everything before this offset is committed; the next `commit` delivers it."""
        self.high_watermark = max(self.high_watermark, high_watermark)

    def commit(self, high_watermark: int, *, is_all: bool) -> None:
        """Delivers everything before `high_watermark`. `is_all`: nothing beyond is known to be committed."""
        self.note_high_watermark(high_watermark)
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._appended and self._appended[0].last_offset < self.high_watermark:
                batch = self._appended.popleft()
                for listener in self.listeners:
                    listener.on_commit(batch)
                self.offset = batch.last_offset + 1
            assert self.offset <= self.high_watermark, "only committed batches are delivered"
            if is_all:
                for listener in self.listeners:
                    listener.on_caught_up()
        finally:
            self._delivering = False

    # Waiting callbacks.

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def wait(
        self,
        end_offset: int,
        base_offset: int,
        done: Callable[[int], None] | None,
        failed: Callable[[], None] | None,
    ) -> None:
        self._waiting.append(
            _Waiting(
                end_offset,
                base_offset,
                None if done is None else later(done),
                None if failed is None else later(failed),
            )
        )

    def complete_one(self) -> bool:
        """Calls the first waiting callback that is due, and returns whether there was one.

        The caller repeats this, because a proposal made by a callback can already be delivered when it returns.
        """
        if not self._waiting or self._waiting[0].end_offset > self.offset:
            return False
        waiting = self._waiting.popleft()
        if waiting.done is not None:
            waiting.done(waiting.base_offset)
        return True

    def fail_waiting(self) -> None:
        """Calls `failed` of all waiting callbacks: this node no longer leads, and does not learn whether they are
        committed.

        All are called, even if one of them raises.
        """
        waiting, self._waiting = self._waiting, deque()
        with ExitStack() as all_of_them:
            for one in reversed(waiting):
                if one.failed is not None:
                    all_of_them.callback(one.failed)
