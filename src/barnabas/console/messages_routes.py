"""The routes of records: browse, search, and one record by its link."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from starlette.responses import Response

from barnabas.console.changing import audited
from barnabas.console.csv_text import CSV, csv_text, file_name
from barnabas.console.messages.search import LIMIT_MAX, SECONDS_MAX, STARTS, Search, SearchQuestion
from barnabas.console.messages.values import DECODERS
from barnabas.console.parameters import Parameters
from barnabas.console.problems import Problem
from barnabas.console.reading import require_filled
from barnabas.console.screens import to_json
from barnabas.console.visit import Handler, Visit, file_response

_PARTITIONS_MAX: Final = 1_000
#: A partition and an offset.
_PLACE: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,18})")
#: Text of one value: in a list, and of a single record.
_LIST_TEXT: Final = 64 * 1024
_RECORD_TEXT: Final = 1 << 20
_JSON_LINES: Final = "application/x-ndjson"
FORMATS: Final = ("json", "jsonl", "csv")
#: Records in a file.
FILE_MAX: Final = 10_000
_COLUMNS: Final = ("partition", "offset", "time_ms", "time_type", "key", "value", "headers", "size")


async def messages(visit: Visit) -> Response:
    parameters, screens = visit.parameters, visit.screens
    require_filled(screens)
    question = search_question(parameters)
    form = parameters.choice("format", FORMATS, "json")
    if form == "json":
        return visit.answer(await searched(visit, question))
    found = await _exported(visit, question, form)
    name = file_name(screens.cluster.name, f"{question.topic}.{form}")
    if form == "csv":
        return file_response(csv_text(_COLUMNS, map(_csv_row, found["records"])), name, CSV)
    return file_response(b"".join(to_json(record) + b"\n" for record in found["records"]), name, _JSON_LINES)


async def _exported(visit: Visit, question: SearchQuestion, form: str) -> dict[str, Any]:
    """Runs the search of a file, and writes that to the audit log; a filter or a text can be content of records."""
    found: dict[str, Any] = {}

    async def search() -> dict[str, Any]:
        found.update(await searched(visit, question))
        return {"text": f"{len(found['records'])} records"}

    arguments = {"topic": question.topic, "format": form, "limit": question.limit}
    await audited(visit, "export-records", arguments, search)
    return found


def _csv_row(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record as a row of text; headers are one column, because their names are the records' own."""
    texts = {name: None if record[name] is None else record[name]["text"] for name in ("key", "value")}
    headers = to_json({each["name"]: each["value"] and each["value"]["text"] for each in record["headers"]}).decode()
    return {**record, **texts, "headers": headers if record["headers"] else None}


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
    found = await searched(visit, question)
    record = next((record for record in found["records"] if record["offset"] == offset), None)
    return visit.answer({"record": record, "problems": found["problems"]})


async def searched(visit: Visit, question: SearchQuestion) -> dict[str, Any]:
    """Runs a search by the visitor's scope, with the masks and the schema registry of its topic."""
    console, cluster = visit.console, visit.screens.cluster
    require_records(visit, question.topic)
    question = replace(question, hidden=console.hidden_fields(cluster.name, question.topic))
    async with console.workers.worker(visit.browser) as worker:
        return await Search(cluster, worker, question, console.registries.get(cluster.name)).run()


def require_records(visit: Visit, topic: str) -> None:
    """Raises Problem for a topic that the visitor sees, but not its records."""
    if visit.scope.sees_topic(topic) and not visit.scope.sees_records(topic):
        raise Problem("role", f"records of {topic} name topics and groups that no pattern of this user allows")


def search_question(parameters: Parameters) -> SearchQuestion:
    limit_max = LIMIT_MAX if parameters.text("format", "json") == "json" else FILE_MAX
    start = parameters.choice("from", STARTS, "end")
    return SearchQuestion(
        parameters.text("topic"),
        _numbers(parameters.text("partition", "")),
        start,
        parameters.number("value") if start in ("offset", "time") else 0,
        _offsets(parameters.text("value", "")) if start in ("next", "before") else {},
        limit=parameters.number("limit", 50, least=1, most=limit_max),
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
        numbers = _PLACE.fullmatch(part)
        if numbers is None:
            raise Problem("bad-request", f"value is not a list of partition:offset: {text[:40]}")
        found[int(numbers[1])] = int(numbers[2])
    return found


HANDLERS: Final[dict[str, Handler]] = {"messages": messages, "message": message}
