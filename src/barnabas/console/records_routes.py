"""The routes that write records: produce, produce again, and copy to another topic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from barnabas.console.actions.inputs import Inputs
from barnabas.console.actions.outcome import plan
from barnabas.console.actions.records import placed_copies, produce, write_copies
from barnabas.console.changing import visited_action
from barnabas.console.messages.search import SECONDS_MAX, Search, SearchQuestion
from barnabas.console.messages_routes import require_records
from barnabas.console.problems import Problem
from barnabas.console.visit import Handler, Visit

#: Records that one copy can have.
COPIES_MAX: Final = 10_000
_STARTS: Final = ("start", "end", "offset", "time")
_INT64: Final = (1 << 63) - 1
_PARTITION_MAX: Final = 1_000_000


async def _produce(visit: Visit, inputs: Inputs) -> dict[str, Any]:
    return await produce(visit.live.watched, inputs)


async def _produce_again(visit: Visit, inputs: Inputs) -> dict[str, Any]:
    """Writes a record again, with a new time, into its topic or another one."""
    topic, to = inputs.text("topic"), inputs.text("to")
    place = inputs.number("partition", least=0, most=_PARTITION_MAX)
    offset = inputs.number("offset", least=0, most=_INT64)
    question = SearchQuestion(topic, (place,), "offset", offset, limit=1, is_raw=True)
    found = await _read(visit, to, question)
    records = [record for record in found["records"] if record["offset"] == offset]
    if not records:
        raise Problem("not-found", f"there is no record at offset {offset} of {topic}-{place}")
    if inputs.is_dry_run:
        placed = placed_copies(visit.live.watched, to, records, keeps_times=False)
        return plan([f"writes the record at offset {offset} of {topic}-{place} again, to {to}-{next(iter(placed))}"])
    return await write_copies(visit.live.watched, to, records, keeps_times=False)


async def _copy(visit: Visit, inputs: Inputs) -> dict[str, Any]:
    """Copies the records that a search finds, with their times."""
    topic, to = inputs.text("topic"), inputs.text("to")
    if topic == to:
        raise Problem("bad-request", "a topic is not copied into itself")
    start = inputs.choice("from", _STARTS) if "from" in inputs.body else "start"
    question = SearchQuestion(
        topic,
        _places(inputs),
        start,
        inputs.number("value", least=0, most=_INT64, default=0),
        limit=inputs.number("limit", least=1, most=COPIES_MAX, default=COPIES_MAX),
        seconds=SECONDS_MAX,
        filter=inputs.text("filter") if inputs.body.get("filter") else "",
        q=inputs.text("q") if inputs.body.get("q") else "",
        is_raw=True,
    )
    found = await _read(visit, to, question)
    records = sorted(found["records"], key=lambda each: (each["partition"], each["offset"]))
    warnings = [f"partition {each['partition']} was not read: {each['text']}" for each in found["problems"]]
    if found["stopped"] != "end":
        warnings.append(f"the search ended at its limit of {found['stopped']}: there can be more records")
    if not inputs.is_dry_run:
        if not records:
            raise Problem("not-found", "no record was found")
        return await write_copies(visit.live.watched, to, records, keeps_times=True) | {"warnings": warnings}
    placed = placed_copies(visit.live.watched, to, records, keeps_times=True)
    lines = [f"copies {len(records):,} records of {topic} to {to}"]
    lines += [f"{len(own):,} of them to {to}-{place}" for place, own in sorted(placed.items())[:50]]
    return plan(lines, warnings, records=len(records))


def _places(inputs: Inputs) -> tuple[int, ...]:
    found = inputs.body.get("partitions") or []
    is_right = isinstance(found, list) and all(isinstance(each, int) and not isinstance(each, bool) for each in found)
    if not is_right:
        raise Problem("bad-request", "partitions is not a list of numbers")
    return tuple(found)


async def _read(visit: Visit, to: str, question: SearchQuestion) -> dict[str, Any]:
    """Returns records as they were written. Raises Problem if a masked field would become readable by the copy."""
    console, cluster = visit.console, visit.live.watched
    require_records(visit, question.topic)
    hidden = console.hidden_fields(cluster.name, question.topic)
    if not set(hidden) <= set(console.hidden_fields(cluster.name, to)):
        raise Problem("refused", f"{question.topic} has masked fields, which are not masked in {to}")
    async with console.workers.worker(visit.browser) as worker:
        wanted = replace(question, hidden=hidden)
        return await Search(cluster, worker, wanted, console.registries.get(cluster.name)).run()


HANDLERS: Final[dict[str, Handler]] = {
    "produce": visited_action("produce", _produce),
    "produce_again": visited_action("produce-again", _produce_again),
    "copy_records": visited_action("copy-records", _copy),
}
