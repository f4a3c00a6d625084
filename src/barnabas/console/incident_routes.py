"""The routes that save an incident as a file, describe a saved one, and compare two moments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import BinaryIO, Final

from starlette.responses import Response, StreamingResponse

from barnabas.console.csv_text import file_name
from barnabas.console.incidents import description
from barnabas.console.problems import Problem
from barnabas.console.reading import require_filled
from barnabas.console.recording import Recording, Saved
from barnabas.console.views.brokers import quorum_view
from barnabas.console.views.compare import compare as compare_view
from barnabas.console.visit import Handler, Visit

_SQLITE: Final = "application/vnd.sqlite3"
_PIECE: Final = 1 << 18
_DEFAULT_MS: Final = 3_600_000
_NOTE_MAX: Final = 4_000


async def incident_file(visit: Visit) -> Response:
    """Returns the history of a period and what is known at its end, as one file."""
    parameters, recording = visit.parameters, _recording(visit)
    require_filled(visit.screens)
    span = await recording.past.span()
    if span is None:
        raise Problem("not-found", "nothing is recorded yet")
    cluster = visit.screens.cluster
    until_ms = min(parameters.number("to", cluster.clock_ms()), span[1])
    since_ms = max(parameters.number("from", max(0, until_ms - _DEFAULT_MS)), span[0])
    if since_ms > until_ms:
        raise Problem("bad-request", "the period ends before it begins, or nothing of it is recorded")
    shown = await recording.past.at(until_ms) if cluster.at_ms is None and parameters.has("to") else visit.screens
    quorum = None if shown.cluster.at_ms is not None else await quorum_view(shown.cluster)
    about = description(shown.cluster, quorum, parameters.text("note", "")[:_NOTE_MAX], visit.user)
    file = await recording.past.excerpt(since_ms, until_ms, about)
    time = datetime.fromtimestamp(until_ms / 1_000, UTC).strftime("%Y-%m-%dT%H%M%SZ")
    headers = {
        "content-disposition": f'attachment; filename="{file_name("incident", cluster.name, f"{time}.db")}"',
        "content-length": str(os.fstat(file.fileno()).st_size),
    }
    return StreamingResponse(_pieces(file), media_type=_SQLITE, headers=headers)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE):
            yield piece


async def incident(visit: Visit) -> Response:
    """Returns the description of a saved incident; null for a cluster that is watched."""
    recording = visit.console.recordings.get(visit.live.cluster.name)
    return visit.answer(recording.about if isinstance(recording, Saved) else None)


async def compare(visit: Visit) -> Response:
    """Compares the moment `from` with that of the request."""
    from_ms = visit.parameters.number("from")
    require_filled(visit.screens)
    first = visit.console.scoped_past(await _recording(visit).past.at(from_ms, with_events=False), visit.scope)
    return visit.answer(compare_view(first.cluster, visit.screens.cluster))


def _recording(visit: Visit) -> Recording | Saved:
    found = visit.console.recordings.get(visit.live.cluster.name)
    if found is None:
        raise Problem("not-found", "nothing is recorded", "start the console with --history FILE")
    return found


HANDLERS: Final[dict[str, Handler]] = {"incident_file": incident_file, "incident": incident, "compare": compare}
