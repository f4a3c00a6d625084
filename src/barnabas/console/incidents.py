"""Incidents: a part of the history with what the console knew about it, as one file that any console opens.

The file is a history (`barnabas history` reads it too), with a JSON text about the incident.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from barnabas.console.cluster_view import ClusterView
from barnabas.console.views.overview import overview
from barnabas.console.views.partition import partition_state
from barnabas.history.errors import HistoryError
from barnabas.history.excerpts import write_excerpt
from barnabas.monitor.severity import Severity

SCHEMA: Final = 1
NOTE_MAX: Final = 10_000
_SEVERITIES: Final = frozenset(severity.name.lower() for severity in Severity)
_WORST: Final = 100
#: Why a saved incident answers no question about the present.
NOT_WATCHED: Final = "this is a saved incident, not a cluster"


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


def write_incident(history: Path, since_ms: int, until_ms: int, about: Mapping[str, Any]) -> BinaryIO:
    """Writes an incident to a temporary file, and returns it open; closing removes it. Raises HistoryError."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="barnabas-incident-"))
    except OSError as error:
        raise HistoryError(f"the file cannot be created: {error.strerror or error}") from error
    try:
        path = folder / "incident.db"
        text = json.dumps({**about, "since_ms": since_ms, "until_ms": until_ms}, ensure_ascii=False)
        write_excerpt(history, path, since_ms, until_ms, text)
        return path.open("rb")
    except OSError as error:
        raise HistoryError(f"the file cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_about(text: str | None) -> dict[str, Any] | None:
    """Returns the description of an incident in its file; None if the file is another history, or of a later version.
    The file is not trusted, so only fields of the right form are read.
    """
    try:
        found = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return None
    severity = found.get("severity")
    worst = [row for row in _list(found.get("worst")) if isinstance(row, dict)]
    return {
        **{name: str(found.get(name) or "")[:NOTE_MAX] for name in ("cluster", "cluster_id", "user", "note")},
        **{name: _time(found.get(name)) for name in ("shown_ms", "since_ms", "until_ms")},
        "severity": severity if severity in _SEVERITIES else Severity.OK.name.lower(),
        "worst": [{"explanation": [str(line) for line in _list(row.get("explanation"))]} for row in worst[:_WORST]],
    }


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _time(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
