"""The limits of age and size of a history file: when it exceeds one, the oldest intervals between two checkpoints are
removed.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of the past a file keeps."""

    days: float = 7.0
    bytes: int = 1_000_000_000


def prune(connection: sqlite3.Connection, bounds: Bounds, now_ms: int) -> int:
    """Removes events beyond the limits of age and size, up to a checkpoint. Returns the number of removed events."""
    removed = drop_before(connection, now_ms - int(bounds.days * DAY_MS))
    while used_bytes(connection) > bounds.bytes:
        second = connection.execute("SELECT seq FROM checkpoints ORDER BY seq LIMIT 1 OFFSET 1").fetchone()
        if second is None:
            break
        removed += _remove_before(connection, second[0])
    return removed


def drop_before(connection: sqlite3.Connection, time_ms: int) -> int:
    """Removes what is before the last checkpoint up to a time. Returns the number of events."""
    (seq,) = connection.execute(
        "SELECT max(seq) FROM checkpoints WHERE time_ms <= ? AND seq > (SELECT min(seq) FROM checkpoints)", (time_ms,)
    ).fetchone()
    return 0 if seq is None else _remove_before(connection, seq)


def used_bytes(connection: sqlite3.Connection) -> int:
    """Returns the bytes of the file without free pages."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _remove_before(connection: sqlite3.Connection, seq: int) -> int:
    """Removes rows that are only needed for moments before the checkpoint `seq`. Returns how many events it removed."""
    time_ms, last_event = connection.execute(
        "SELECT time_ms, last_event FROM checkpoints WHERE seq = ?", (seq,)
    ).fetchone()
    removed = connection.execute("DELETE FROM events WHERE id <= ?", (last_event,)).rowcount
    for statement in (
        "DELETE FROM moments WHERE seq < :seq",
        "DELETE FROM checkpoints WHERE seq < :seq",
        "DELETE FROM nodes WHERE seq <= :seq",
        # A sample that is not full is a difference to the last full one. The moment of the checkpoint can last longer
        # than until the next full one, so times decide.
        "DELETE FROM samples WHERE id < (SELECT max(id) FROM samples WHERE is_full AND time_ms <= :time_ms)",
        "DELETE FROM partitions WHERE topic IN (SELECT id FROM topics WHERE deleted_seq <= :seq)",
        "DELETE FROM topics WHERE deleted_seq <= :seq",
        "DELETE FROM gaps WHERE end_ms < :time_ms",
        "DELETE FROM causes WHERE last_seq < :seq",
    ):
        connection.execute(statement, {"seq": seq, "time_ms": time_ms})
    return removed
