"""The readable part of a file that was cut off, copied to memory.

Rows are appended in the order of their numbers, so a file that lost its end has a readable beginning of each table.
The copy ends with the last moment of which everything is there.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

from barnabas.history import schema
from barnabas.history.errors import HistoryError
from barnabas.monitor.texts import at

_TABLES: Final = (
    "meta",
    "lists",
    "causes",
    "topics",
    "partitions",
    "moments",
    "events",
    "nodes",
    "checkpoints",
    "samples",
    "gaps",
)
_ROWS_PER_STEP: Final = 500


def salvaged(path: Path) -> tuple[sqlite3.Connection, str]:
    """Returns the readable part, and a description of the missing part. Raises HistoryError if nothing can be read."""
    source = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None)
    target = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    target.executescript(schema.TABLES)
    try:
        # Without this SQLite refuses a file that has fewer pages than its header says.
        source.execute("PRAGMA writable_schema = ON")
        version = source.execute("PRAGMA user_version").fetchone()[0]
        if version > schema.VERSION or source.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
            raise HistoryError(f"{path}: cut off, and not a history file of this version")
        target.execute("BEGIN")
        for table in _TABLES:
            _copy(source, target, table)
        last_ms = _cut(target)
        target.execute("COMMIT")
    except sqlite3.Error as error:
        raise HistoryError(f"{path}: damaged: {error}") from None
    finally:
        source.close()
    if last_ms is None:
        raise HistoryError(f"{path}: cut off, and no state of the cluster is left in it")
    return target, f"the file is cut off: it can be read until {at(last_ms)}"


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> None:
    """Copies the rows of a table up to the first one that cannot be read."""
    with contextlib.suppress(sqlite3.DatabaseError):
        cursor = source.execute(f"SELECT * FROM {table} NOT INDEXED")
        marks = ",".join("?" * len(cursor.description))
        last: list[object] = []
        while rows := _some(cursor, last):
            target.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", rows)


def _some(cursor: sqlite3.Cursor, last: list[object]) -> list[tuple[object, ...]]:
    """Returns the next rows. Keys that do not ascend belong to a page of which only a part is left."""
    found: list[tuple[object, ...]] = []
    try:
        for row in cursor:
            if last and not _ascends(last[0], row[0]):
                cursor.close()
                break
            last[:] = [row[0]]
            found.append(row)
            if len(found) == _ROWS_PER_STEP:
                break
    except sqlite3.DatabaseError:
        if not found:
            raise
    return found


def _ascends(before: object, after: object) -> bool:
    if isinstance(before, int) and isinstance(after, int):
        return after > before
    return isinstance(before, str) and isinstance(after, str) and after > before


def _cut(target: sqlite3.Connection) -> int | None:
    """Removes what lies behind the last complete moment. Returns its time; None if there is none."""
    (last_event,) = target.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()
    (checkpoint_event,) = target.execute("SELECT coalesce(max(last_event), 0) FROM checkpoints").fetchone()
    partitions = target.execute("SELECT coalesce(max(id), -1) FROM partitions").fetchone()[0]
    lists = target.execute("SELECT max(id) FROM lists").fetchone()[0]
    # Dictionaries are tables of their own, which can end earlier than the events that use them.
    names = ", ".join(schema.LIST_COLUMNS)
    (unknown,) = target.execute(
        f"SELECT coalesce(min(id), 0) FROM events WHERE partition > ? OR max({names}) > ?", (partitions, lists)
    ).fetchone()
    if unknown:
        last_event = unknown - 1
    if last_event < checkpoint_event:
        target.execute("DELETE FROM checkpoints WHERE last_event > ?", (last_event,))
    row = target.execute(
        "SELECT seq, time_ms, last_event FROM moments WHERE last_event <= ? ORDER BY seq DESC LIMIT 1", (last_event,)
    ).fetchone()
    if row is None or not target.execute("SELECT 1 FROM checkpoints WHERE seq <= ?", (row[0],)).fetchone():
        return None
    seq, time_ms, last = row
    target.execute("DELETE FROM moments WHERE seq > ?", (seq,))
    target.execute("DELETE FROM events WHERE id > ?", (last,))
    target.execute("DELETE FROM nodes WHERE seq > ?", (seq,))
    target.execute("DELETE FROM checkpoints WHERE seq > ?", (seq,))
    target.execute("UPDATE topics SET deleted_seq = NULL WHERE deleted_seq > ?", (seq,))
    target.execute("INSERT OR REPLACE INTO meta VALUES ('last_ms', ?)", (time_ms,))
    return int(time_ms)
