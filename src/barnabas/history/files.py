"""The file as a database: created, opened to be written or read, and refused with one line if it is something else."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from pathlib import Path
from typing import Final

from barnabas.history import schema
from barnabas.history.errors import HistoryError
from barnabas.history.salvage import salvaged

#: Readers and the recorder wait so long for each other.
_TIMEOUT_S: Final = 5.0
_CACHE_KB: Final = 16_384


class WriteLock:
    """A lock file, so that two processes never record into one file."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + "-lock")
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise HistoryError(f"{path}: {reason(error)}") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise HistoryError(f"{path}: another process records into this file") from None

    def release(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(self._descriptor)


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Creates the file, or opens it to append to it. Raises HistoryError."""
    try:
        is_new = not path.exists() or path.stat().st_size == 0
        connection = sqlite3.connect(path, isolation_level=None, timeout=_TIMEOUT_S)
    except (OSError, sqlite3.Error) as error:
        raise HistoryError(f"{path}: {reason(error)}") from None
    try:
        if not is_new:
            _check(connection, path)
            if not _is_whole(connection, path):
                raise HistoryError(f"{path}: the file is cut off")
        else:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if is_new:
            connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {schema.VERSION}")
            connection.executescript(schema.TABLES)
            connection.execute("INSERT INTO lists VALUES (0, '')")
    except sqlite3.Error as error:
        connection.close()
        raise HistoryError(f"{path}: {reason(error)}") from None
    except HistoryError:
        connection.close()
        raise
    return connection


def close_log(connection: sqlite3.Connection) -> None:
    """Moves everything into the one file. The log stays next to it, empty, if a reader has the file open."""
    connection.execute("PRAGMA incremental_vacuum")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("PRAGMA busy_timeout = 0")
    with contextlib.suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA journal_mode = DELETE")


def open_for_reading(path: Path) -> tuple[sqlite3.Connection, str | None]:
    """Opens a file. Returns the database, and why it is only a part of the file; None if it is whole. Raises
    HistoryError.
    """
    if not path.is_file():
        raise HistoryError(f"{path}: there is no such file")
    connection = _connected(path)
    try:
        _check(connection, path)
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        is_whole = _is_whole(connection, path)
    except sqlite3.DatabaseError as error:
        connection.close()
        if not is_damage(error):
            raise HistoryError(f"{path}: {reason(error)}") from None
        return salvaged(path)
    except HistoryError:
        connection.close()
        raise
    if not is_whole:
        connection.close()
        return salvaged(path)
    return connection, None


def _is_whole(connection: sqlite3.Connection, path: Path) -> bool:
    """Returns whether the file has all its pages. SQLite reads the missing part of the last one as zeros."""
    (pages,), (size,) = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    connection.execute("SELECT count(*) FROM moments WHERE seq < 0").fetchone()
    has_log = path.with_name(f"{path.name}-wal").exists()
    return has_log or path.stat().st_size >= int(pages) * int(size)


def _connected(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro",
            uri=True,
            isolation_level=None,
            timeout=_TIMEOUT_S,
            check_same_thread=False,
        )
    except sqlite3.Error as error:
        raise HistoryError(f"{path}: {reason(error)}") from None
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    if application_id != schema.APPLICATION_ID:
        raise HistoryError(f"{path}: not a history file")
    # Another one can have sent the file: a view or a trigger in it would run what that one wrote.
    connection.execute("PRAGMA trusted_schema = OFF")
    if connection.execute("SELECT 1 FROM sqlite_master WHERE type IN ('view', 'trigger') LIMIT 1").fetchone():
        raise HistoryError(f"{path}: not a history file: it has views or triggers")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > schema.VERSION:
        raise HistoryError(
            f"{path}: written by a later version (schema {version}; this one reads up to {schema.VERSION})"
        )


def is_damage(error: sqlite3.Error) -> bool:
    """Returns whether pages of the file are missing or damaged."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT


def reason(error: Exception) -> str:
    """Returns an error of the file as a part of one line."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_NOTADB:
        return "not a history file"
    return str(error)
