"""Produce requests and their answers, decoded from the frames that pass the network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from barnabas.simulation.log_files import Batch, read_batches
from barnabas.simulation.plain_decoding import Schema
from barnabas.simulation.request_frames import Request, answer_body, body_of

_FLEXIBLE_PRODUCE: Final = 9
_BY_ID: Final = 13
#: The position of the checksum in a batch, and its end.
CHECKSUM: Final = slice(17, 21)


class Written(NamedTuple):
    """The first batch of a partition in a Produce request."""

    place: tuple[str | bytes, int]
    batch: Batch
    checksum: bytes
    is_only: bool


class Answered(NamedTuple):
    """A partition's row of a Produce answer."""

    place: tuple[str | bytes, int]
    error: int
    base_offset: int


def batches_of(request: Request) -> Iterator[Written]:
    """Yields the first batch of each partition of a Produce request."""
    for topic in _produce_topics(request):
        for row in topic["partitions"]:
            batches = read_batches(row["records"] or b"")
            if batches:
                first = batches[0]
                is_only = len(batches) == 1
                yield Written((topic["topic"], row["index"]), first, row["records"][CHECKSUM], is_only)


def _produce_topics(request: Request) -> list[Any]:
    body = body_of(request, flexible_from=_FLEXIBLE_PRODUCE)
    schema: Schema = [("acks", "int16"), ("timeout_ms", "int32")]
    if request.version >= 3:
        schema.insert(0, ("transactional id", "string"))
    rows: Schema = [("index", "int32"), ("records", "bytes")]
    topic: Schema = [("topic", "uuid" if request.version >= _BY_ID else "string"), ("partitions", [rows])]
    found: list[Any] = body.begin([*schema, ("topics", [topic])])["topics"]
    return found


def rows_of(request: Request, frame: bytes) -> Iterator[Answered]:
    """Yields the rows of a Produce answer."""
    version = request.version
    body = answer_body(request, frame, flexible_from=_FLEXIBLE_PRODUCE)
    rows: Schema = [("index", "int32"), ("error", "int16"), ("base_offset", "int64")]
    if version >= 2:
        rows.append(("appended_ms", "int64"))
    if version >= 5:
        rows.append(("log_start", "int64"))
    if version >= 8:
        wrong: Schema = [("index", "int32"), ("message", "string")]
        rows += [("wrong", [wrong]), ("message", "string")]
    topic: Schema = [("topic", "uuid" if version >= _BY_ID else "string"), ("partitions", [rows])]
    for found in body.begin([("topics", [topic])])["topics"]:
        for row in found["partitions"]:
            yield Answered((found["topic"], row["index"]), row["error"], row["base_offset"])
