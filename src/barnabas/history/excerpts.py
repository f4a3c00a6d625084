"""A part of a history as a file of its own, with a text about it: it is read like every history.

Only the rows of the period are read and written, so that an hour of a large file takes no longer than its own rows.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.history import schema
from barnabas.history.errors import HistoryError
from barnabas.history.files import open_for_reading, reason

#: The key of the text in the table `meta`.
ABOUT: Final = "about"
#: The rows of each table that the period needs, from those of the attached file `whole`.
_COPIES: Final = (
    "INSERT INTO meta SELECT key, value FROM whole.meta WHERE key NOT IN ('last_ms', :about_key)",
    "INSERT INTO meta SELECT key, min(CAST(value AS INTEGER), :until_ms) FROM whole.meta WHERE key = 'last_ms'",
    "INSERT INTO meta VALUES (:about_key, :about)",
    "INSERT INTO lists SELECT * FROM whole.lists",
    "INSERT INTO moments SELECT * FROM whole.moments WHERE seq BETWEEN :first AND :last",
    "INSERT INTO events SELECT * FROM whole.events WHERE id > :first_event AND id <= :last_event",
    "INSERT INTO checkpoints SELECT * FROM whole.checkpoints WHERE seq BETWEEN :first AND :last",
    "INSERT INTO nodes SELECT * FROM whole.nodes WHERE seq > :first AND seq <= :last",
    # A sample that is not full is a difference to the last full one.
    "INSERT INTO samples SELECT * FROM whole.samples WHERE seq <= :last AND time_ms <= :until_ms AND id >= "
    "coalesce((SELECT max(id) FROM whole.samples WHERE is_full AND time_ms <= :first_ms), 0)",
    "INSERT INTO topics SELECT id, name, topic_id, created_seq, deleted_seq, deleted_cause FROM whole.topics "
    "WHERE created_seq <= :last AND (deleted_seq IS NULL OR deleted_seq > :first)",
    "UPDATE topics SET deleted_seq = NULL, deleted_cause = NULL WHERE deleted_seq > :last",
    "INSERT INTO partitions SELECT * FROM whole.partitions WHERE topic IN (SELECT id FROM topics)",
    "INSERT INTO causes SELECT * FROM whole.causes WHERE id IN (SELECT cause FROM events UNION "
    "SELECT cause FROM nodes UNION SELECT deleted_cause FROM topics)",
    "INSERT INTO gaps SELECT * FROM whole.gaps WHERE begin_ms <= :until_ms AND (end_ms IS NULL OR end_ms >= :first_ms)",
)


class _Period(NamedTuple):
    """The first checkpoint and the last moment of an excerpt, and their last events."""

    first: int
    first_event: int
    first_ms: int
    last: int
    last_event: int


def write_excerpt(source: Path, target: Path, since_ms: int, until_ms: int, about: str) -> None:
    """Copies the moments of a period into a new file. It begins at the last checkpoint before the period, so that the
    first moment is whole. Raises HistoryError.
    """
    if target.exists():
        raise HistoryError(f"{target}: the file already exists")
    found, problem = open_for_reading(source)
    rest = target.with_name(f"{target.name}-rest")
    try:
        with closing(found):
            if problem is not None:
                with closing(sqlite3.connect(rest)) as readable:
                    found.backup(readable)
        with closing(sqlite3.connect(target.absolute().as_uri(), uri=True, isolation_level=None)) as connection:
            _create(connection)
            readable_file = source if problem is None else rest
            connection.execute("ATTACH ? AS whole", (f"{readable_file.absolute().as_uri()}?mode=ro",))
            _copy(connection, since_ms, until_ms, about)
    except (sqlite3.Error, OSError) as error:
        target.unlink(missing_ok=True)
        raise HistoryError(f"{target}: {reason(error)}") from None
    except HistoryError:
        target.unlink(missing_ok=True)
        raise
    finally:
        rest.unlink(missing_ok=True)


def _create(connection: sqlite3.Connection) -> None:
    """Creates an empty history. A file that is not complete is removed, so nothing protects it from a crash."""
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {schema.VERSION}")
    connection.executescript(schema.TABLES)


def _copy(connection: sqlite3.Connection, since_ms: int, until_ms: int, about: str) -> None:
    connection.execute("BEGIN")
    period = _period(connection, since_ms, until_ms)
    values = {**period._asdict(), "until_ms": until_ms, "about": about, "about_key": ABOUT}
    for statement in _COPIES:
        connection.execute(statement, values)
    connection.execute("COMMIT")


def _period(connection: sqlite3.Connection, since_ms: int, until_ms: int) -> _Period:
    """Raises HistoryError if nothing of the period is recorded."""
    last = connection.execute(
        "SELECT seq, last_event FROM whole.moments WHERE time_ms <= ? ORDER BY time_ms DESC, seq DESC LIMIT 1",
        (until_ms,),
    ).fetchone()
    if last is None:
        raise HistoryError("nothing is recorded for this period")
    # Several moments can have the time at which the period begins.
    first = connection.execute(
        "SELECT seq, last_event, time_ms FROM whole.checkpoints WHERE seq <= :last AND seq >= coalesce("
        "(SELECT max(seq) FROM whole.checkpoints WHERE seq <= :last AND time_ms < :since), 0) ORDER BY seq LIMIT 1",
        {"last": last[0], "since": since_ms},
    ).fetchone()
    if first is None:
        raise HistoryError("the file has no checkpoint for this time")
    return _Period(*first, *last)
