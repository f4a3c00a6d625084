"""The routes of records: browse, search, and one record by its link."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from barnabas.console.csv_text import file_name
from barnabas.console.messages.search import LIMIT_MAX, SECONDS_MAX, STARTS, Search, SearchQuestion
from barnabas.console.messages.values import DECODERS
from barnabas.console.parameters import Parameters
from barnabas.console.problems import Problem
from barnabas.console.reading import require_filled
from barnabas.console.screens import to_json
from barnabas.console.visit import Handler, Visit, file_response

_PARTITIONS_MAX: Final = 1_000
#: Text of one value: in a list, and of a single record.
_LIST_TEXT: Final = 64 * 1024
_RECORD_TEXT: Final = 1 << 20
_JSON_LINES: Final = "application/x-ndjson"


async def messages(visit: Visit) -> Response:
    parameters, screens = visit.parameters, visit.screens
    require_filled(screens)
    question = search_question(parameters)
    as_file = parameters.choice("format", ("json", "jsonl"), "json") == "jsonl"
    found = await _searched(visit, question)
    if as_file:
        lines = b"".join(to_json(record) + b"\n" for record in found["records"])
        return file_response(lines, file_name(screens.cluster.name, f"{question.topic}.jsonl"), _JSON_LINES)
    return visit.answer(found)


async def message(visit: Visit) -> Response:
    """Returns a record; null if the log has none at this offset any more."""
    parameters = visit.parameters
    require_filled(visit.screens)
    offset, partition = parameters.number("offset"), parameters.number("partition")
    question = SearchQuestion(
        parameters.text("topic"),
        (partition,),
        "offset",
        offset,
        limit=1,
        key=parameters.choice("key", DECODERS, "auto"),
        body=parameters.choice("body", DECODERS, "auto"),
        text_max=_RECORD_TEXT,
    )
    found = await _searched(visit, question)
    record = next((record for record in found["records"] if record["offset"] == offset), None)
    return visit.answer({"record": record, "problems": found["problems"]})


async def _searched(visit: Visit, question: SearchQuestion) -> dict[str, Any]:
    async with visit.console.workers.worker() as worker:
        return await Search(visit.screens.cluster, worker, question).run()


def search_question(parameters: Parameters) -> SearchQuestion:
    start = parameters.choice("from", STARTS, "end")
    return SearchQuestion(
        parameters.text("topic"),
        _numbers(parameters.text("partition", "")),
        start,
        parameters.number("value") if start in ("offset", "time") else 0,
        _offsets(parameters.text("value", "")) if start in ("next", "before") else {},
        limit=parameters.number("limit", 50, least=1, most=LIMIT_MAX),
        seconds=parameters.number("seconds", 5, least=1, most=SECONDS_MAX),
        filter=parameters.text("filter", ""),
        q=parameters.text("q", ""),
        key=parameters.choice("key", DECODERS, "auto"),
        body=parameters.choice("body", DECODERS, "auto"),
        text_max=_LIST_TEXT,
    )


def _numbers(text: str) -> tuple[int, ...]:
    parts = [part for part in text.split(",") if part]
    if len(parts) > _PARTITIONS_MAX or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise Problem("bad-request", f"partition is not a list of numbers: {text[:40]}")
    return tuple(map(int, parts))


def _offsets(text: str) -> dict[int, int]:
    """Returns the offsets in "0:123,1:50"."""
    found = {}
    for part in text.split(","):
        place, colon, offset = part.partition(":")
        if not (colon and place.isdigit() and offset.isdigit() and len(place) < 10 and len(offset) < 19):
            raise Problem("bad-request", f"value is not a list of partition:offset: {text[:40]}")
        found[int(place)] = int(offset)
    return found


HANDLERS: Final[dict[str, Handler]] = {"messages": messages, "message": message}
