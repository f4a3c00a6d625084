"""Records as lines of text: what `barnabas consume` prints and `barnabas produce` reads.

The JSON form keeps everything, so that `consume --json | produce --json` copies a topic:

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1483271606000, "timestamp_type": "create",
     "key": "900", "value": "...", "headers": [["source", "till"]]}

Bytes that are not UTF-8 are written as {"base64": "..."}; a null is null.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from barnabas.embedded.failures import Failure

FIELDS = ("topic", "partition", "offset", "timestamp", "key", "headers")
_TIMESTAMP_TYPES = {1: "create", 2: "append"}


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to produce."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class IncomingRecord:
    """A record that a consumer received."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    #: The type of the timestamp in librdkafka's numbers: 0 none, 1 CreateTime, 2 LogAppendTime.
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def to_json(record: IncomingRecord) -> str:
    document = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms if record.timestamp_type else None,
        "timestamp_type": _TIMESTAMP_TYPES.get(record.timestamp_type),
        "key": _to_value(record.key),
        "value": _to_value(record.value),
        "headers": [[name, _to_value(value)] for name, value in record.headers],
    }
    return json.dumps(document, ensure_ascii=False)


def from_json(line: str) -> OutgoingRecord:
    """Parses a record from a line that `to_json` wrote; only `value` is required. The ValueError says what is wrong."""
    document = json.loads(line)
    if not isinstance(document, dict) or "value" not in document:
        raise ValueError('expected a JSON object with a "value"')
    headers = document.get("headers") or []
    if isinstance(headers, dict):
        headers = list(headers.items())
    return OutgoingRecord(
        value=_from_value(document["value"]),
        key=_from_value(document.get("key")),
        headers=[(str(name), _from_value(value)) for name, value in headers],
        partition=_integer(document, "partition"),
        timestamp_ms=_integer(document, "timestamp"),
    )


def to_text(record: IncomingRecord, fields: frozenset[str], null: str) -> str:
    """Returns the requested fields and then the value, separated by tabs."""
    headers = ",".join(f"{name}={_text(value, null)}" for name, value in record.headers)
    columns = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": _time(record.timestamp_ms) if record.timestamp_type else "-",
        "key": _text(record.key, null),
        "headers": headers or "-",
    }
    return "\t".join([*(columns[name] for name in FIELDS if name in fields), _text(record.value, null)])


def from_text(line: str, *, separator: str | None, null: str | None) -> OutgoingRecord:
    """Parses one line as a value, or as a key and a value with a separator. `null` is the text that stands for null."""
    if separator is None:
        return OutgoingRecord(value=_bytes(line, null))
    key, found, value = line.partition(separator)
    if not found:
        raise ValueError(f"no separator {separator!r} between key and value")
    return OutgoingRecord(value=_bytes(value, null), key=_bytes(key, null))


def parse_time(text: str, now_ms: int) -> int:
    """Parses a time ("1483271606000", "2017-01-01T11:53", or "30s", "10m", "2h", "7d" ago) to milliseconds since the
    epoch.
    """
    units_ms = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    if text.isdigit():
        return int(text)
    if text[:-1].isdigit() and text[-1] in units_ms:
        return now_ms - int(text[:-1]) * units_ms[text[-1]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Failure(
            f"invalid time: {text}",
            "give milliseconds, 2017-01-31T12:00 (UTC unless it says otherwise), or 30s, 10m, 2h, 7d",
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _time(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(data: bytes | None, null: str) -> str:
    return null if data is None else data.decode("utf-8", errors="replace")


def _bytes(text: str, null: str | None) -> bytes | None:
    return None if text == null else text.encode("utf-8", errors="surrogateescape")


def _to_value(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _from_value(value: Any) -> bytes | None:
    """Converts a JSON value: text stays as it is, {"base64": ...} becomes bytes, any other JSON becomes compact
    text.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f"invalid base64: {error}") from error
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _integer(document: dict[str, Any], name: str) -> int | None:
    value = document.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f'"{name}" must be an integer')
    return value
