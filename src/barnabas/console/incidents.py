"""Incidents: a part of the history with what the console knew about it, as one file that any console opens.

The file is a history (`barnabas history` reads it too), with a JSON text about the incident.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from barnabas.console.cluster_view import ClusterView
from barnabas.console.views.overview import overview
from barnabas.console.views.partition import partition_state
from barnabas.history.errors import HistoryError
from barnabas.history.excerpts import write_excerpt

SCHEMA: Final = 1
NOTE_MAX: Final = 10_000
#: Why a saved incident answers no question about the present.
NOT_WATCHED: Final = "this is an incident that was saved, not a cluster"


def description(cluster: ClusterView, quorum: Mapping[str, Any] | None, note: str, user: str) -> dict[str, Any]:
    """Returns what is known about a cluster at the moment of the view, as the file keeps it."""
    shown = overview(cluster)
    worst = [
        row | {"explanation": partition_state(cluster, row["topic"], row["partition"])["explanation"]}
        for row in shown["worst"]
    ]
    return {
        "schema": SCHEMA,
        "cluster": cluster.name,
        "cluster_id": cluster.table.cluster_id,
        "shown_ms": cluster.clock_ms(),
        "user": user,
        "note": note[:NOTE_MAX],
        "severity": shown["severity"],
        "counts": shown["counts"],
        "controller": shown["controller"],
        "topics": shown["topics"],
        "partitions": shown["partitions"],
        "silent": cluster.silent(),
        "brokers": shown["brokers"],
        "quorum": None if quorum is None else dict(quorum),
        "worst": worst,
    }


def write_incident(history: Path, since_ms: int, until_ms: int, about: Mapping[str, Any]) -> bytes:
    """Returns the file. Raises HistoryError."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="barnabas-incident-"))
    except OSError as error:
        raise HistoryError(f"there is no place for the file: {error.strerror or error}") from error
    try:
        path = folder / "incident.db"
        text = json.dumps({**about, "since_ms": since_ms, "until_ms": until_ms}, ensure_ascii=False)
        write_excerpt(history, path, since_ms, until_ms, text)
        return path.read_bytes()
    except OSError as error:
        raise HistoryError(f"the file cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_about(text: str | None) -> dict[str, Any] | None:
    """Returns what a file says about its incident; None for a history that is none, or of a later version."""
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    is_known = isinstance(found, dict) and found.get("schema") == SCHEMA
    return found if is_known else None
