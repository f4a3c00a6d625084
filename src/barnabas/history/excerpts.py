"""A part of a history as a file of its own, with a text about it: it is read like every history."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from barnabas.history.errors import HistoryError
from barnabas.history.files import open_for_reading, reason
from barnabas.history.retention import drop_before

#: The key of the text in the table `meta`.
ABOUT: Final = "about"


def write_excerpt(source: Path, target: Path, since_ms: int, until_ms: int, about: str) -> None:
    """Copies the moments of a period into a new file. It begins at the last checkpoint before the period, so that the
    first moment is whole. Raises HistoryError.
    """
    if target.exists():
        raise HistoryError(f"{target}: the file already exists")
    found, _ = open_for_reading(source)
    try:
        with closing(found), closing(sqlite3.connect(target, isolation_level=None)) as connection:
            found.backup(connection)
            connection.execute("PRAGMA journal_mode = DELETE")
            _cut(connection, since_ms, until_ms, about)
    except (sqlite3.Error, OSError) as error:
        target.unlink(missing_ok=True)
        raise HistoryError(f"{target}: {reason(error)}") from None
    except HistoryError:
        target.unlink(missing_ok=True)
        raise


def _cut(connection: sqlite3.Connection, since_ms: int, until_ms: int, about: str) -> None:
    connection.execute("BEGIN")
    (last,) = connection.execute("SELECT max(seq) FROM moments WHERE time_ms <= ?", (until_ms,)).fetchone()
    if last is None:
        raise HistoryError("nothing is recorded for this period")
    values = {"last": last, "until": until_ms, "about": about, "key": ABOUT}
    for statement in (
        "DELETE FROM events WHERE seq > :last",
        "DELETE FROM nodes WHERE seq > :last",
        "DELETE FROM checkpoints WHERE seq > :last",
        "DELETE FROM samples WHERE seq > :last OR time_ms > :until",
        "DELETE FROM moments WHERE seq > :last",
        "DELETE FROM topics WHERE created_seq > :last",
        "UPDATE topics SET deleted_seq = NULL, deleted_cause = NULL WHERE deleted_seq > :last",
        "DELETE FROM partitions WHERE topic NOT IN (SELECT id FROM topics)",
        "DELETE FROM gaps WHERE begin_ms > :until",
        "UPDATE meta SET value = :until WHERE key = 'last_ms' AND CAST(value AS INTEGER) > :until",
        "INSERT OR REPLACE INTO meta VALUES (:key, :about)",
    ):
        connection.execute(statement, values)
    # Several moments can have the time at which the period begins.
    drop_before(connection, since_ms - 1)
    connection.execute("COMMIT")
    connection.execute("VACUUM")
