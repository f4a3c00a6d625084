"""Records as lines: printed lines can be read back, and the errors of wrong lines name the mistake."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli import lines
from barnabas.embedded.failures import Failure

NOW_MS = 1_700_000_000_000
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=8)), max_size=4)


def record(**changes: object) -> lines.IncomingRecord:
    fields: dict[str, object] = {
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "timestamp_ms": 1_483_271_606_000,
        "timestamp_type": 1,
        "key": b"900",
        "value": b"basket",
        "headers": [("source", b"till")],
    }
    return lines.IncomingRecord(**{**fields, **changes})  # type: ignore[arg-type]


@given(key=st.none() | st.binary(max_size=20), value=st.none() | st.binary(max_size=20), headers=HEADERS)
def test_json_line_brings_back_every_byte(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = lines.to_json(record(key=key, value=value, headers=headers))
    assert "\n" not in line
    assert lines.from_json(line) == lines.OutgoingRecord(value, key, headers, 3, 1_483_271_606_000)


def test_json_line_without_timestamp_leaves_it_to_the_broker() -> None:
    assert lines.from_json(lines.to_json(record(timestamp_type=0, timestamp_ms=-1))).timestamp_ms is None


def test_json_value_that_is_not_text_becomes_its_own_json() -> None:
    assert lines.from_json('{"value": {"a": [1, 2]}, "headers": {"h": 5}}') == lines.OutgoingRecord(
        value=b'{"a":[1,2]}', headers=[("h", b"5")]
    )


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        '{"key": "k"}',
        '{"value": {"base64": "???"}}',
        '{"value": "v", "partition": "1"}',
        '{"value": "v", "timestamp": true}',
    ],
)
def test_wrong_json_lines_are_refused(line: str) -> None:
    with pytest.raises(ValueError):
        lines.from_json(line)


def test_text_shows_the_asked_fields_in_order() -> None:
    shown = lines.to_text(record(value=None), frozenset({"key", "offset", "timestamp", "headers"}), "null")
    assert shown == "7\t2017-01-01T11:53:26.000Z\t900\tsource=till\tnull"


def test_text_with_separator_splits_once_and_knows_nulls() -> None:
    assert lines.from_text("a:b:c", separator=":", null=None) == lines.OutgoingRecord(b"b:c", b"a")
    assert lines.from_text("-:-", separator=":", null="-") == lines.OutgoingRecord(None, None)
    assert lines.from_text("-", separator=None, null=None) == lines.OutgoingRecord(b"-")
    with pytest.raises(ValueError, match="no separator"):
        lines.from_text("abc", separator=":", null=None)


def test_bytes_that_are_not_text_pass_through_unchanged() -> None:
    line = b"\xff\x00\xe9".decode("utf-8", errors="surrogateescape")
    assert lines.from_text(line, separator=None, null=None).value == b"\xff\x00\xe9"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1483271606000", 1_483_271_606_000),
        ("2017-01-01T11:53:26", 1_483_271_606_000),
        ("2017-01-01T12:53:26+01:00", 1_483_271_606_000),
        ("30s", NOW_MS - 30_000),
        ("10m", NOW_MS - 600_000),
        ("2h", NOW_MS - 7_200_000),
        ("7d", NOW_MS - 604_800_000),
    ],
)
def test_times_are_read(text: str, expected: int) -> None:
    assert lines.parse_time(text, NOW_MS) == expected


@pytest.mark.parametrize("text", ["", "m", "yesterday", "2017-13-01", "-5m"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(Failure):
        lines.parse_time(text, NOW_MS)


def test_json_line_names_the_timestamp_type() -> None:
    assert json.loads(lines.to_json(record(timestamp_type=2)))["timestamp_type"] == "append"
