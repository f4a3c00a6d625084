"""The process that decodes and filters records: `python -m barnabas.console.messages.worker`.

Records and filters are not trusted, so their work is not done in the console: this process has a limit of memory, opens
no file and no connection, and is killed when its time is over. Frames on its standard input are u32 length, u32 length
of a JSON header, the header, and the bytes of record batches; each is answered by u32 length and JSON.

    {"type": "begin", "filter": ..., "q": ..., ...}     answered {"error": null}, or the error of the filter
    {"type": "schemas", "found": {"7": {...}}}          schemas of the registry, or their errors; answered {}
    {"type": "chunk", "partition": 0, "from": 5, ...}   answered by the matching records, or by the schemas it lacks
"""

from __future__ import annotations

import base64
import resource
import sys
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import orjson

from barnabas.common.errors import RecordsRejected
from barnabas.console.messages.filters import Filter, FilterError
from barnabas.console.messages.masks import Hidden
from barnabas.console.messages.schemas import Schemas
from barnabas.console.messages.sight import Seen, Sight
from barnabas.console.messages.values import shown
from barnabas.records import compression
from barnabas.records.batch import HEADER_BYTES, BatchHeader, decode_batch, iter_headers
from barnabas.records.header import MAGIC_V2
from barnabas.records.record import Record, read_records

#: The maximum address space of this process, in bytes.
MEMORY_MAX: Final = 1 << 30
_UINT32: Final = 4
_LOG_APPEND_TIME: Final = 1
#: Schemas that one chunk asks for at once.
_WANTED_MAX: Final = 32
#: Characters of all records in one answer; the search asks for the rest.
_ANSWER_TEXT_MAX: Final = 8 << 20
#: Headers of a record that are shown. Their text has the limit of a value.
_HEADERS_MAX: Final = 1_000
_HEADER_NAME_MAX: Final = 1_000
_HEADER_BYTES: Final = 256
_TIME_TYPES: Final = ("create", "append")


@dataclass(slots=True)
class Job:
    """The conditions of a search. `needle` are bytes that a record must have somewhere. `is_raw` asks for the bytes of
    the records, for a copy.
    """

    filter: Filter | None = None
    needle: bytes = b""
    key: str = "auto"
    body: str = "auto"
    text_max: int = 65_536
    sight: Sight = field(default_factory=lambda: Sight(Hidden(), None))
    schemas: Schemas | None = None
    is_raw: bool = False


@dataclass(slots=True)
class Found:
    """The answer to one chunk. `next` is the offset after the last record that was read."""

    next: int
    records: list[dict[str, Any]] = field(default_factory=list)
    searched: int = 0
    skipped: int = 0
    #: The characters of the records.
    text: int = 0
    problem: str | None = None
    #: Schemas that must be known before this chunk can be read.
    wanted: list[int] = field(default_factory=list)


def job_of(head: dict[str, Any]) -> Job:
    """Returns the job of the search that `head` describes. Raises FilterError for an invalid filter."""
    schemas = Schemas() if head.get("has_registry") else None
    return Job(
        Filter(head["filter"]) if head.get("filter") else None,
        str(head.get("q") or "").encode(),
        head.get("key", "auto"),
        head.get("body", "auto"),
        head.get("text_max", 65_536),
        Sight(Hidden.of(head.get("hidden", ())), schemas),
        schemas,
        bool(head.get("is_raw")),
    )


def search_chunk(job: Job, head: dict[str, Any], data: bytes) -> Found:
    """Returns the matching records between two offsets, up to the limit of the chunk."""
    begin, end, count_max = head["from"], head["to"], head["count_max"]
    found = Found(begin)
    try:
        for position, header in iter_headers(data):
            if header.next_offset <= begin:
                continue
            if header.base_offset >= end or len(found.records) >= count_max or found.text >= _ANSWER_TEXT_MAX:
                break
            if header.is_control:
                found.skipped += header.record_count
                found.next = header.next_offset
                continue
            if _search_batch(job, head, data, position, header, found):
                break
    except (RecordsRejected, MemoryError) as error:
        found.problem = str(error) or "it needs more memory than a search can use"
    return found


def _search_batch(
    job: Job, head: dict[str, Any], data: bytes, position: int, header: BatchHeader, found: Found
) -> bool:
    """Adds the matching records of a batch. Returns whether the search of the chunk ends in it."""
    records = _records(job, data, position, header)
    if records is None:
        found.searched += header.record_count
        found.next = header.next_offset
        return False
    partition, sight = head["partition"], job.sight
    records = [each for each in records if each.offset >= head["from"]]
    if job.schemas is not None and (wanted := _wanted(sight, records)):
        found.wanted = wanted
        return True
    for record in records:
        if record.offset >= head["to"]:
            return True
        found.searched += 1
        found.next = record.offset + 1
        seen = sight.of(record)
        if _has(job, seen.record) and (job.filter is None or job.filter.matches(seen.record, partition)):
            row = _raw(record, partition) if job.is_raw else _shown(job, seen, partition, header)
            found.records.append(row)
            found.text += _text_of(row)
            if len(found.records) >= head["count_max"] or found.text >= _ANSWER_TEXT_MAX:
                return True
    found.next = header.next_offset
    return False


def _wanted(sight: Sight, records: list[Record]) -> list[int]:
    """Returns the schemas that records lack, at most so many that one question about them is short."""
    found: set[int] = set()
    for record in records:
        found |= sight.unknown(record)
        if len(found) >= _WANTED_MAX:
            break
    return sorted(found)[:_WANTED_MAX]


def _records(job: Job, data: bytes, position: int, header: BatchHeader) -> list[Record] | None:
    """Returns the records of a batch; None if its bytes do not have the needle."""
    # The bytes of a record that is seen otherwise do not say whether it has the needle.
    if not job.needle or header.magic != MAGIC_V2 or not job.sight.is_plain:
        return decode_batch(data, position)
    body = memoryview(data)[position + HEADER_BYTES : position + header.size_bytes]
    plain = compression.decompress(compression.codec_of(header.attributes), body)
    if bytes(plain).find(job.needle) < 0:
        return None
    fixed = header.max_timestamp if header.timestamp_type == _LOG_APPEND_TIME else None
    return read_records(plain, header.record_count, header.base_offset, header.base_timestamp, fixed)


def _has(job: Job, record: Record) -> bool:
    """Whether the needle is in the key, the value or a header."""
    needle = job.needle
    if not needle or needle in (record.value or b"") or needle in (record.key or b""):
        return True
    return any(
        needle in name.encode("utf-8", "surrogateescape") + b"\0" + (value or b"") for name, value in record.headers
    )


def _raw(record: Record, partition: int) -> dict[str, Any]:
    """Returns a record as it was written, in base 64."""
    return {
        "partition": partition,
        "offset": record.offset,
        "time_ms": record.timestamp,
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [
            [_base64(name.encode("utf-8", "surrogateescape")), _base64(value)] for name, value in record.headers
        ],
    }


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _shown(job: Job, seen: Seen, partition: int, header: BatchHeader) -> dict[str, Any]:
    record = seen.record
    return {
        "partition": partition,
        "offset": record.offset,
        "time_ms": record.timestamp,
        "time_type": _TIME_TYPES[header.timestamp_type],
        "key": shown(record.key, job.key, job.text_max, seen.key),
        "value": shown(record.value, job.body, job.text_max, seen.value),
        "headers": _headers(record, job.text_max),
        "headers_left": max(0, len(record.headers) - _HEADERS_MAX),
        "size": len(record.key or b"") + len(record.value or b""),
    }


def _headers(record: Record, text_max: int) -> list[dict[str, Any]]:
    """Returns the first headers. A producer can write a million of them, so all together have the text of one value."""
    found: list[dict[str, Any]] = []
    for name, value in record.headers[:_HEADERS_MAX]:
        text = name.encode("utf-8", "replace").decode()[:_HEADER_NAME_MAX]
        content = shown(value, "auto", text_max)
        text_max = max(0, text_max - len(text) - (0 if content is None else len(content["text"])))
        found.append({"name": text, "value": content})
    return found


def _text_of(row: dict[str, Any]) -> int:
    """Returns the characters of a record, as text or in base 64; a header that is empty needs memory, too."""
    headers = (part for each in row["headers"] for part in (each.values() if isinstance(each, dict) else each))
    fields = (row["key"], row["value"], *headers)
    text = sum(len(each["text"] if isinstance(each, dict) else each) for each in fields if each is not None)
    return text + _HEADER_BYTES * len(row["headers"])


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    job = Job()
    while (frame := _read(incoming)) is not None:
        head, data = frame
        answer: dict[str, Any]
        if head["type"] == "begin":
            answer = {"error": None}
            try:
                job = job_of(head)
            except FilterError as error:
                answer = {"error": {"text": error.text, "where": error.where}}
        elif head["type"] == "schemas":
            answer = {}
            for schema_id, found_schema in head["found"].items():
                if job.schemas is not None:
                    job.schemas.add(int(schema_id), found_schema)
        else:
            found = search_chunk(job, head, data)
            answer = {
                "wanted": found.wanted,
                "next": found.next,
                "records": found.records,
                "searched": found.searched,
                "skipped": found.skipped,
                "text": found.text,
                "problem": found.problem,
                "filter_failures": 0 if job.filter is None else job.filter.failures,
                "filter_failure": None if job.filter is None else job.filter.first_failure,
            }
        body = orjson.dumps(answer)
        outgoing.write(len(body).to_bytes(_UINT32, "little") + body)
        outgoing.flush()


def _read(incoming: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    prefix = incoming.read(2 * _UINT32)
    if len(prefix) < 2 * _UINT32:
        return None
    size, head_size = int.from_bytes(prefix[:_UINT32], "little"), int.from_bytes(prefix[_UINT32:], "little")
    frame = incoming.read(size)
    return orjson.loads(frame[:head_size]), frame[head_size:]


if __name__ == "__main__":
    main()
