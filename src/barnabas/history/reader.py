"""The reader: the state at any moment of a file, and what changed when.

    history = History.open("cluster.db")
    history.span()                                     # (first, last) in milliseconds
    history.at("12:03"), .at(1764158580000)            # a PastTable
    history.events(since_ms, until_ms, limit=100)      # changes as the monitor shows them
    history.partition("orders", 3)                     # the changes of one partition
    history.gaps()

A file can be read while it is recorded: each call sees what was committed by then, up to a second ago. One history is
used by one thread at a time.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Final

from barnabas.history.errors import HistoryError
from barnabas.history.excerpts import ABOUT
from barnabas.history.files import open_for_reading, reason
from barnabas.history.gaps import Gap
from barnabas.history.pages import history_html
from barnabas.history.past_changes import Filters, PastChanges
from barnabas.history.past_states import Dictionaries, NodesTimeline
from barnabas.history.past_table import PastTable
from barnabas.history.rebuilding import Rebuilt, rebuilt
from barnabas.history.samples import sample_at
from barnabas.history.swim_lanes import LANES_MAX, lanes_picture, most_changed
from barnabas.history.times import time_of
from barnabas.monitor.changes import Change
from barnabas.monitor.columns import Volumes
from barnabas.monitor.partition_state import Key
from barnabas.monitor.texts import at

#: A notebook shows the partitions that changed most among the newest changes.
_CHANGES_SHOWN: Final = 2_000
_LANES_SHOWN: Final = 20
_MOMENTS_PER_PART: Final = 1_000
#: Errors that rows with other content than the recorder writes lead to.
_DAMAGE: Final = (TypeError, ValueError, LookupError, OverflowError)


class History:
    """An open file. `problem` says why it is not read to its end; None if it is."""

    def __init__(self, path: Path, connection: sqlite3.Connection, problem: str | None) -> None:
        self.path = path
        self.problem = problem
        self._connection = connection
        self._data_version = -1
        self._known: Rebuilt | None = None
        self._dictionaries = Dictionaries(connection)
        self._nodes = NodesTimeline(connection)
        self._changes = PastChanges(connection, self._dictionaries, self._nodes)

    @classmethod
    def open(cls, path: str | Path) -> History:
        """Opens a file to read it. Raises HistoryError for anything else than a history of this or an older version."""
        connection, problem = open_for_reading(Path(path))
        try:
            return cls(Path(path), connection, problem)
        except sqlite3.Error as error:
            connection.close()
            raise HistoryError(f"{path}: {reason(error)}") from None
        except _DAMAGE as error:
            connection.close()
            raise HistoryError(f"{path}: damaged: {error}") from None
        except HistoryError as error:
            connection.close()
            raise HistoryError(f"{path}: {error}") from None

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> History:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def cluster_id(self) -> str | None:
        with self._reading():
            return self._meta("cluster_id")

    @property
    def about(self) -> str | None:
        """Returns the text that an excerpt has about itself; None for a whole history."""
        with self._reading():
            return self._meta(ABOUT)

    def span(self) -> tuple[int, int]:
        """Returns the first and the last recorded time in milliseconds. Raises HistoryError if nothing is recorded."""
        with self._reading():
            return self._span()

    def time_of(self, when: int | str | datetime) -> int:
        """Returns a time in milliseconds, from a text as `at` takes it. Raises HistoryError."""
        return time_of(when, self.span()[1])

    def times(self, since_ms: int, until_ms: int) -> list[int]:
        """Returns the times of all moments in a period, for pictures of when something happened."""
        with self._reading():
            rows = self._connection.execute(
                "SELECT time_ms FROM moments WHERE time_ms BETWEEN ? AND ? ORDER BY seq", (since_ms, until_ms)
            )
            return [time_ms for (time_ms,) in rows]

    def at(self, when: int | str | datetime) -> PastTable:
        """Returns the state at a time: milliseconds, a datetime, or a text (`times.time_of`). Raises HistoryError for a
        time that the file does not cover.
        """
        with self._reading():
            first_ms, last_ms = self._span()
            time_ms = time_of(when, last_ms)
            if time_ms < first_ms:
                raise HistoryError(f"{at(time_ms)} is not recorded: the history begins at {at(first_ms)}")
            if time_ms > last_ms:
                raise HistoryError(f"{at(time_ms)} is not recorded: the history ends at {at(last_ms)}")
            (seq,) = self._connection.execute(
                "SELECT seq FROM moments WHERE time_ms <= ? ORDER BY time_ms DESC, seq DESC LIMIT 1", (time_ms,)
            ).fetchone()
            return self._state(seq, time_ms)

    def after(self, seq: int) -> PastTable:
        """Returns the state after one moment, by its number (`PastTable.version`). Raises HistoryError."""
        with self._reading():
            row = self._connection.execute("SELECT time_ms FROM moments WHERE seq = ?", (seq,)).fetchone()
            if row is None:
                raise HistoryError(f"there is no moment {seq}")
            return self._state(seq, row[0])

    def events(
        self,
        since_ms: int | None = None,
        until_ms: int | None = None,
        limit: int = 1_000,
        *,
        topic: str | None = None,
        broker: int | None = None,
        newest: bool = False,
    ) -> list[Change]:
        """Returns what changed in a period, in order: at most `limit` changes, the first ones or the `newest`. `topic`
        and `broker` keep those of one topic, or those that are about a broker or a replica on it.
        """
        with self._reading():
            first_ms, last_ms = self._span()
            since_ms = first_ms if since_ms is None else since_ms
            until_ms = last_ms if until_ms is None else until_ms
            return self._changes.within(since_ms, until_ms, Filters(topic, broker), limit, newest=newest)

    def events_of_nodes(self, since_ms: int | None = None, until_ms: int | None = None) -> list[Change]:
        """Returns the changes of brokers and of the controller in a period, in order."""
        with self._reading():
            first_ms, last_ms = self._span()
            found = self._changes
            first, last = found.moments(
                first_ms if since_ms is None else since_ms, last_ms if until_ms is None else until_ms
            )
            return [] if first is None else [change for _, change in found.of_nodes(first, last)]

    def all_events(self, since_ms: int | None = None, until_ms: int | None = None) -> Iterator[Change]:
        """Yields all that changed in a period, in order. It reads some moments at a time."""
        with self._reading():
            first_ms, last_ms = self._span()
            first, last = self._changes.moments(
                first_ms if since_ms is None else since_ms, last_ms if until_ms is None else until_ms
            )
        for begin in () if first is None else range(first, last + 1, _MOMENTS_PER_PART):
            end = min(last, begin + _MOMENTS_PER_PART - 1)
            with self._reading():
                part = self._changes.between(begin, end, Filters(), sys.maxsize, newest=False)
            yield from part

    def partition(self, topic: str, partition: int) -> list[Change]:
        """Returns the changes of one partition, in order, beginning with its first known state (`begin`). A topic that
        was deleted and created again under its name is in it with all its ids. Raises HistoryError if it never existed.
        """
        with self._reading():
            found = self._changes.of_partition(topic, partition)
            if not found:
                raise HistoryError(f"there was no partition {topic}-{partition} in this history")
            return found

    def topics(self) -> list[str]:
        """Returns the names of all topics that existed."""
        with self._reading():
            return sorted({topic.identity.name for topic in self._dictionaries.topics.values()})

    def partitions(self, topic: str) -> list[int]:
        """Returns the partitions that a topic had."""
        with self._reading():
            numbers = self._dictionaries.numbers_of(topic)
            return sorted({int(each) for each in self._dictionaries.partition_of[numbers]})

    def swim_lanes(self, keys: Sequence[Key], since_ms: int, until_ms: int) -> str:
        """Returns the lanes of at most 50 partitions over a period, as SVG."""
        lanes = {key: self.partition(key.topic, key.partition) for key in keys[:LANES_MAX]}
        return lanes_picture(lanes, self.gaps(), since_ms, until_ms)

    def gaps(self) -> list[Gap]:
        """Returns the times whose changes are not known."""
        with self._reading():
            return self._gaps()

    def __repr__(self) -> str:
        first_ms, last_ms = self.span()
        return f"<History {self.path.name}: {at(first_ms)} to {at(last_ms)}>"

    def _repr_html_(self) -> str:
        first_ms, last_ms = self.span()
        keys = most_changed(self.events(limit=_CHANGES_SHOWN, newest=True), _LANES_SHOWN)
        lanes = self.swim_lanes(keys, first_ms, last_ms) if keys else ""
        whole = history_html(self.path.name, (first_ms, last_ms), self.problem, self.gaps(), lanes)
        return whole + self.at(last_ms)._repr_html_()

    # -- inside one transaction

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Reads from one state of the file, even if the file is written meanwhile. Raises HistoryError."""
        connection = self._connection
        try:
            connection.execute("BEGIN")
            try:
                # The transaction begins with the first read.
                (version,) = connection.execute("PRAGMA data_version").fetchone()
                connection.execute("SELECT 1 FROM meta").fetchone()
                if version != self._data_version:
                    self._data_version, self._known = version, None
                    self._dictionaries.refresh()
                    self._nodes = NodesTimeline(connection)
                    self._changes = PastChanges(connection, self._dictionaries, self._nodes)
                yield
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise HistoryError(f"{self.path}: {reason(error)}") from None
        except _DAMAGE as error:
            raise HistoryError(f"{self.path}: damaged: {error}") from error

    def _span(self) -> tuple[int, int]:
        first, last = self._connection.execute("SELECT min(time_ms), max(time_ms) FROM moments").fetchone()
        if first is None:
            raise HistoryError(f"{self.path}: nothing is recorded")
        return first, max(last, int(self._meta("last_ms") or 0))

    def _meta(self, key: str) -> str | None:
        row = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def _gaps(self) -> list[Gap]:
        return [
            Gap(*row)
            for row in self._connection.execute("SELECT begin_ms, end_ms, reason FROM gaps ORDER BY begin_ms, id")
        ]

    def _state(self, seq: int, time_ms: int) -> PastTable:
        found = self._known = rebuilt(self._connection, seq, self._known)
        nodes, known = self._nodes.after(seq), self._dictionaries
        numbers = found.columns.present()
        states = known.states(found.columns, numbers)
        sample = sample_at(self._connection, seq, time_ms)
        table = PastTable()
        volumes = (
            Volumes.empty(len(numbers), states.width) if sample is None else known.volumes(sample, numbers, states)
        )
        table.fill(states, volumes, known.topics_at(seq, numbers, states))
        table.version, table.asked_ms = seq, time_ms
        (table.time_ms,) = self._connection.execute("SELECT time_ms FROM moments WHERE seq = ?", (seq,)).fetchone()
        table.brokers, table.controller = dict(nodes.brokers), nodes.controller
        table.cluster_id = self._meta("cluster_id")
        table.volumes_ms = None if sample is None else sample.time_ms
        table.gap = next((gap for gap in self._gaps() if gap.covers(time_ms)), None)
        return table
