"""The recorder: each version of a table becomes a moment of the file, until it is closed or the file fails.

    recorder = Recorder("cluster.db", table)     # an existing file is continued, with a gap
    recorder.tick(now_ms)                        # once a second: commits, and takes samples of sizes and offsets
    recorder.explain(changes)                    # causes, as they become known
    recorder.close()                             # leaves one file that can be copied

Call it in the thread of the table. A file error ends the recording: `problem` then says why, `on_problem` is called
once, and the table and its other readers continue. If more than `EVENTS_PER_S` states of partitions change within a
second, the rest of this second becomes one moment with the last state of each; `merged` counts what is left out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from barnabas.history.causes import Causes
from barnabas.history.errors import HistoryError
from barnabas.history.files import WriteLock, close_log, open_for_writing, reason
from barnabas.history.held_changes import HeldChanges
from barnabas.history.resuming import write_first_moment
from barnabas.history.retention import Bounds, prune
from barnabas.history.samples import Sampler
from barnabas.history.schema import CHANGED
from barnabas.history.writer import Writer
from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.changes import Change, Event
from barnabas.monitor.packed_changes import PackedChanges
from barnabas.monitor.table import ClusterTable

EVENTS_PER_S: Final = 10_000
_WINDOW_MS: Final = 1_000
_COMMIT_INTERVAL_MS: Final = 1_000
_SAMPLE_INTERVAL_MS: Final = 300_000
#: Events between two checkpoints: so many, or a part of the partitions.
_CHECKPOINT_EVENTS: Final = 2_000
_PARTITIONS_PER_EVENT: Final = 8
#: The longest time between two checkpoints, if anything changed.
_CHECKPOINT_INTERVAL_MS: Final = 21_600_000
_DEFAULT_BOUNDS: Final = Bounds()


class Recorder:
    """Writes a history file. Raises HistoryError if the file cannot be continued: it is damaged, of another cluster, or
    in use.
    """

    def __init__(
        self,
        path: str | Path,
        table: ClusterTable,
        *,
        bounds: Bounds = _DEFAULT_BOUNDS,
        sample_interval_ms: int = _SAMPLE_INTERVAL_MS,
        on_problem: Callable[[str], None] | None = None,
    ) -> None:
        self.path = Path(path)
        self.table = table
        #: Why the recording ended; None while it continues.
        self.problem: str | None = None
        #: The number of states that were left out because too many changed at once.
        self.merged = 0
        #: The number of old events that were removed.
        self.pruned = 0
        self._bounds = bounds
        self._sample_interval_ms = sample_interval_ms
        self._on_problem = on_problem
        self._lock = WriteLock(self.path)
        try:
            self._connection = open_for_writing(self.path)
            self._writer = Writer(self._connection)
        except HistoryError:
            self._lock.release()
            raise
        except sqlite3.Error as error:
            self._lock.release()
            raise HistoryError(f"{path}: {reason(error)}") from None
        self._causes = Causes(self._writer, table)
        self._sampler = Sampler()
        self._held = HeldChanges()
        self._has_begun = False
        self._cluster_id = self._recorded_cluster()
        self._window = (0, 0)
        self._checkpoint_event = self._checkpoint_ms = self._sampled_ms = self._committed_ms = 0
        self._unsubscribe = table.subscribe(self._on_change)
        if table.version:
            self._guarded(lambda: self._begin(table.time_ms))
            if self.problem is not None:
                raise HistoryError(self.problem)

    @property
    def seq(self) -> int:
        """Returns the number of the last moment."""
        return self._writer.seq

    # -- what the owner calls

    def tick(self, now_ms: int) -> None:
        """Commits what was recorded, notes that the recorder was alive then, and takes a sample if one is due."""
        if self._has_begun:
            self._guarded(lambda: self._tick(now_ms))

    def explain(self, changes: Iterable[Change], packed: Iterable[PackedChanges] = ()) -> None:
        """Adds the causes of changes, and the times at which no broker answered."""
        if self._has_begun:
            self._guarded(lambda: self._causes.add(changes))
        for each in packed:
            self.explain_packed(each)

    def explain_packed(self, packed: PackedChanges) -> None:
        """Adds the causes of the changes of very many partitions."""
        if self._has_begun:
            self._guarded(lambda: self._causes.add_packed(packed))

    def explain_events(self, events: Iterable[Event]) -> None:
        """Adds the causes that events of the journal name, for changes recorded at any time."""
        if self._has_begun:
            self._guarded(lambda: self._causes.add_events(events))

    def note_gap(self, begin_ms: int, end_ms: int | None, why: str) -> None:
        """Notes a time whose changes are not known."""
        if self._has_begun:
            self._guarded(lambda: self._writer.add_gap(begin_ms, end_ms, why))

    def close(self, now_ms: int | None = None) -> None:
        """Ends the recording, and leaves a single file."""
        if self.problem is None:
            if self._has_begun:
                self._guarded(lambda: self._finish(now_ms))
            if self.problem is None:
                self._end()

    # -- the table's side

    def _on_change(self, change_set: ChangeSet) -> None:
        if change_set.is_of_states or not self._has_begun:
            self._guarded(lambda: self._take(change_set))

    def _take(self, change_set: ChangeSet) -> None:
        if not self._has_begun:
            self._begin(change_set.time_ms)
            return
        if self._cluster_id is None:
            self._note_cluster()
        begin_ms, events = self._window
        if not begin_ms <= change_set.time_ms < begin_ms + _WINDOW_MS:
            self._flush()
            begin_ms, events = change_set.time_ms, 0
        self._window = begin_ms, events + len(change_set.rows)
        is_of_partitions = len(change_set.rows) and not (
            change_set.topic_changes
            or len(change_set.created_rows)
            or len(change_set.removed_rows)
            or change_set.brokers
            or change_set.controller
        )
        if is_of_partitions and (self._held or events >= EVENTS_PER_S):
            writer = self._writer
            self._held.add(change_set, writer.numbers_of(change_set.rows), writer.values_of(change_set.after))
            return
        self._flush()
        self._writer.write(change_set)
        self._after_moment()

    def _begin(self, time_ms: int) -> None:
        self._connection.execute("BEGIN")
        self._note_cluster()
        writer = self._writer
        if writer.seq:
            last_ms = self._writer.alive_ms()
            if time_ms > last_ms:
                writer.add_gap(last_ms, time_ms, "nothing was recorded")
        write_first_moment(writer, self.table, time_ms)
        self._checkpoint()
        self._has_begun = True
        self._sampled_ms = time_ms - self._sample_interval_ms
        self._tick(time_ms)

    def _flush(self) -> None:
        """Writes the states that were held back as one moment."""
        if not self._held:
            return
        held = self._held.taken()
        self._writer.begin_moment(held.time_ms)
        self._writer.write_events(held.partitions, held.values, CHANGED, held.missed.tolist())
        self._writer.end_moment(held.source, held.merged)
        if held.merged:
            why = f"{held.merged} states of partitions were left out: more than {EVENTS_PER_S} changed within a second"
            self._writer.add_gap(self._window[0], held.time_ms, why)
        self.merged += held.merged
        self._after_moment()

    def _after_moment(self) -> None:
        writer = self._writer
        since = writer.last_event - self._checkpoint_event
        limit = max(_CHECKPOINT_EVENTS, len(self.table.rows) // _PARTITIONS_PER_EVENT)
        is_late = since and writer.time_ms - self._checkpoint_ms >= _CHECKPOINT_INTERVAL_MS
        if since >= limit or is_late:
            self._checkpoint()
            self.pruned += prune(self._connection, self._bounds, writer.time_ms)
        if writer.time_ms - self._committed_ms >= _COMMIT_INTERVAL_MS:
            self._commit(writer.time_ms)
            self._connection.execute("BEGIN")

    def _checkpoint(self) -> None:
        writer = self._writer
        writer.write_checkpoint(self.table)
        self._checkpoint_event, self._checkpoint_ms = writer.last_event, writer.time_ms

    def _tick(self, now_ms: int) -> None:
        begin_ms, _ = self._window
        if not begin_ms <= now_ms < begin_ms + _WINDOW_MS:
            self._flush()
        now_ms = max(now_ms, self._writer.time_ms)
        if now_ms - self._sampled_ms >= self._sample_interval_ms:
            self._flush()
            self._sampled_ms = now_ms
            self._sampler.write(self._writer, self.table, now_ms)
        self._commit(now_ms)
        self._connection.execute("BEGIN")

    def _commit(self, now_ms: int) -> None:
        self._writer.note_alive(now_ms)
        self._committed_ms = now_ms
        self._connection.execute("COMMIT")

    def _note_cluster(self) -> None:
        """Compares the cluster of the table with that of the file. Raises HistoryError."""
        found = self.table.cluster_id
        if found is None:
            return
        if self._cluster_id not in (None, found):
            raise HistoryError(
                f"{self.path}: this is the history of cluster {self._cluster_id}, but this cluster is {found}"
            )
        if self._cluster_id is None:
            self._cluster_id = found
            self._writer.put_meta("cluster_id", found)

    def _recorded_cluster(self) -> str | None:
        row = self._connection.execute("SELECT value FROM meta WHERE key = 'cluster_id'").fetchone()
        return None if row is None else str(row[0])

    def _finish(self, now_ms: int | None) -> None:
        self._flush()
        if self._writer.last_event > self._checkpoint_event:
            self._checkpoint()
        self._commit(max(now_ms or 0, self._writer.time_ms))
        close_log(self._connection)

    # -- failures

    def _guarded(self, step: Callable[[], None]) -> None:
        """Runs a step of the recording; a file error ends the recording instead of the caller."""
        if self.problem is not None:
            return
        try:
            step()
        except HistoryError as error:
            self._fail(str(error))
        except (sqlite3.Error, OSError) as error:
            self._fail(f"{self.path}: the recording ended: {reason(error)}")

    def _fail(self, problem: str) -> None:
        self.problem = problem
        self._end()
        if self._on_problem is not None:
            self._on_problem(problem)

    def _end(self) -> None:
        self._unsubscribe()
        try:
            self._connection.close()
        except sqlite3.Error as error:
            self.problem = self.problem or f"{self.path}: the recording ended: {reason(error)}"
        self._lock.release()
