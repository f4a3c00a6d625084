"""A line of a history as an operation, and the parsers of its fields. docs/check.md is the description for writers.

{"process": "p1", "type": "invoke", "f": "send", "topic": "orders", "partition": 0, "value": "p1:7", "time": 17}
{"process": "p1", "type": "ok", "f": "send", "topic": "orders", "partition": 0, "offset": 5, "value": "p1:7"}
{"process": "c1", "type": "ok", "f": "poll", "records": {"orders-0": [[5, "p1:7"]]}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

TYPES: Final = frozenset({"invoke", "ok", "fail", "info"})
ISOLATIONS: Final = ("read_committed", "read_uncommitted")

Process = str | int
#: The identity of a record within its topic: a string or a number; anything else is represented by its JSON text.
Value = str | int


class Malformed(ValueError):
    """The error for a line that is not an operation, or that contradicts earlier lines."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")
        self.line = line
        self.what = what


class Operation(NamedTuple):
    line: int
    process: Process
    type: str
    f: str
    body: Mapping[str, Any]

    def text(self, name: str) -> str:
        found = self.body.get(name)
        if not isinstance(found, str) or not found:
            raise self.malformed(f'"{name}" must be a string')
        return found

    def number(self, name: str) -> int | None:
        """Returns a numeric field, None if it is missing; negative numbers stand for "unknown", as in Kafka's own
        responses.
        """
        found = self.body.get(name)
        if found is None:
            return None
        if type(found) is not int:
            raise self.malformed(f'"{name}" must be an integer')
        return found if found >= 0 else None

    def flag(self, name: str, default: bool) -> bool:
        found = self.body.get(name, default)
        if not isinstance(found, bool):
            raise self.malformed(f'"{name}" must be true or false')
        return found

    def value(self) -> Value:
        found = self.body.get("value")
        if found is None:
            raise self.malformed('"value" is missing: it identifies the record')
        return plain(found)

    def place(self) -> tuple[str, int]:
        """Returns the partition that the fields "topic" and "partition" name."""
        partition = self.number("partition")
        if partition is None:
            raise self.malformed('"partition" is missing')
        return self.text("topic"), partition

    def places(self, name: str) -> list[tuple[str, int]]:
        """Returns the partitions in a field that lists them as "topic-partition"; empty if the field is missing."""
        found = self.body.get(name) or []
        if not isinstance(found, list):
            raise self.malformed(f'"{name}" must be a list of "topic-partition"')
        return [self.parse_place(each) for each in found]

    def records(self) -> Mapping[str, list[Any]]:
        """Returns "topic-partition" -> its records as [offset, value], in the order in which they were received."""
        found = self.body.get("records")
        if not isinstance(found, dict):
            raise self.malformed('"records" must be an object: {"topic-partition": [[offset, value], ...]}')
        return found

    def isolation(self) -> str | None:
        found = self.body.get("isolation")
        if found is not None and found not in ISOLATIONS:
            raise self.malformed(f'"isolation" must be one of {", ".join(ISOLATIONS)}')
        return found

    def parse_place(self, text: object) -> tuple[str, int]:
        """Parses "orders-0" to ("orders", 0)."""
        if isinstance(text, str):
            topic, _, partition = text.rpartition("-")
            if topic and partition.isdecimal():
                return topic, int(partition)
        raise self.malformed(f'{text!r} is not a "topic-partition"')

    def malformed(self, what: str) -> Malformed:
        return Malformed(self.line, f"{self.f}: {what}")


def parse(line: int, text: str | bytes) -> Operation:
    """Parses one line of a history as an operation. Raises `Malformed`."""
    try:
        body = json.loads(text)
    except ValueError as error:
        raise Malformed(line, f"invalid JSON: {error}") from None
    if not isinstance(body, dict):
        raise Malformed(line, "not a JSON object")
    return from_fields(line, body)


def from_fields(line: int, body: Mapping[str, Any]) -> Operation:
    """Creates an operation from its fields. Raises `Malformed`."""
    process, type_, f = body.get("process"), body.get("type"), body.get("f")
    if type(process) is not str and type(process) is not int:
        raise Malformed(line, '"process" must be a string or an integer')
    if type(f) is not str:
        raise Malformed(line, '"f" must be a string')
    if type_ not in TYPES:
        raise Malformed(line, f'"type" must be one of invoke, ok, fail, info, not {type_!r}')
    return Operation(line, process, type_, f, body)


def plain(value: object) -> Value:
    if type(value) is str or type(value) is int:
        return value
    return json.dumps(value, sort_keys=True)
