"""Masks and schemas in the process of a search: what leaves it, and what no question can find out."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from tests.support.schema_values import (
    ADDRESS,
    ORDER,
    address_file,
    avro,
    framed,
    json_value,
    order_file,
    protobuf,
    serialized,
)

from barnabas.console.messages.masks import HIDDEN, Hidden, Mask, MaskError, fields_of, masked
from barnabas.console.messages.schemas import SchemaError, Schemas
from barnabas.console.messages.worker import Job, job_of, search_chunk
from barnabas.records.batch import encode_batch
from barnabas.records.record import Record

END = 1 << 62
VALUE = {"card": {"number": "4111", "name": "Ann"}, "lines": [{"iban": "DE1", "n": 1}, {"iban": None}], "amount": 12}
FIELDS = ("key", "value.card.number", "value.lines[*].iban", "headers.auth*")


def record(offset: int = 0, key: bytes | None = b"ann", value: bytes | None = None) -> Record:
    content = json.dumps(VALUE).encode() if value is None else value
    return Record(offset, 1_000, key, content, [("authorization", b"Bearer 77"), ("trace", b"7")])


def searched(head: dict[str, Any], *records: Record, schemas: dict[str, Any] | None = None) -> Any:
    """Returns the answer of a worker about one batch."""
    job = job_of(head)
    if schemas is not None:
        assert job.schemas is not None
        for number, found in schemas.items():
            job.schemas.add(int(number), found)
    return search_chunk(job, chunk(), bytes(encode_batch(records)))


def chunk() -> dict[str, Any]:
    return {"partition": 0, "from": 0, "to": END, "count_max": 100}


@pytest.mark.parametrize("form", ["auto", "text", "json", "hex"])
def test_no_form_shows_what_is_masked(form: str) -> None:
    found = searched({"hidden": FIELDS, "key": form, "body": form}, record())
    text = json.dumps(found.records)
    for secret in ("4111", "ann", "DE1", "Bearer", b"4111".hex(), b"ann".hex()):
        assert secret not in text, text
    (row,) = found.records
    assert row["value"]["is_masked"] is True
    if form == "auto":
        assert json.loads(row["value"]["text"]) == {
            "card": {"number": HIDDEN, "name": "Ann"},
            "lines": [{"iban": HIDDEN, "n": 1}, {"iban": HIDDEN}],
            "amount": 12,
        }
        assert [each["value"]["text"] for each in row["headers"]] == [HIDDEN, "7"]


@pytest.mark.parametrize(
    "question",
    [
        {"filter": 'value.card.number == "4111"'},
        {"filter": 'value.card.number.startsWith("4")'},
        {"filter": 'key == "ann"'},
        {"filter": "size(key) == 3 && size(value.card.number) == 4"},
        {"filter": 'value.lines.exists(each, each.iban == "DE1")'},
        {"filter": 'headers["authorization"].contains("77")'},
        {"q": "4111"},
        {"q": "ann"},
        {"q": "Bearer"},
        {"q": "DE1"},
    ],
    ids=str,
)
def test_no_question_finds_out_what_is_masked(question: dict[str, str]) -> None:
    assert searched({**question}, record()).records, "without masks the question finds the record"
    found = searched({**question, "hidden": FIELDS}, record())
    assert found.records == []
    assert found.searched == 1


def test_sizes_do_not_tell_how_long_what_is_masked_is() -> None:
    rows = [
        searched({"hidden": ("key", "value.card.number")}, record(key=key, value=json.dumps(value).encode())).records[0]
        for key, value in ((b"a", {"card": {"number": "1"}}), (b"a" * 50, {"card": {"number": "1" * 99}}))
    ]
    assert rows[0] == rows[1]
    filters = [f"size == {size}" for size in range(200)]
    found = {
        each for each in filters if searched({"hidden": ("key", "value.card.number"), "filter": each}, record()).records
    }
    assert found == {f"size == {len(HIDDEN) + len(json.dumps(masked_value(), separators=(',', ':')))}"}


def masked_value() -> Any:
    return masked(json.loads(json.dumps(VALUE)), Hidden.of(["value.card.number"]).value)


@pytest.mark.parametrize(
    "value", [b"4111 as text", b"\xff\xfe4111", b'"4111"', b"4111", b'{"card": {"number": 4111', b""]
)
def test_what_has_no_fields_is_hidden_as_a_whole(value: bytes) -> None:
    (row,) = searched({"hidden": ("value.card.number",)}, record(value=value)).records
    assert row["value"]["text"] == HIDDEN
    (row,) = searched({"hidden": ("value.card.number",), "body": "hex"}, record(value=value)).records
    assert row["value"]["text"] == HIDDEN.encode().hex()


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("value.a.b", {"a": {"b": 1, "c": 2}}, {"a": {"b": HIDDEN, "c": 2}}),
        ("value.a.b", {"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": HIDDEN}, {"b": HIDDEN}]}),
        ("value.a[1]", {"a": [1, 2, 3]}, {"a": [1, HIDDEN, 3]}),
        ("value.*.b", {"x": {"b": 1}, "y": [{"b": 2}], "z": 3}, {"x": {"b": HIDDEN}, "y": [{"b": HIDDEN}], "z": 3}),
        ("value.**.b", {"b": 1, "x": {"y": [{"b": {"b": 2}}]}}, {"b": HIDDEN, "x": {"y": [{"b": HIDDEN}]}}),
        ("value.**", {"b": 1}, HIDDEN),
        ('value["a.b"]', {"a.b": 1, "a": {"b": 2}}, {"a.b": HIDDEN, "a": {"b": 2}}),
        ("value[*].b", [{"b": 1}], [{"b": HIDDEN}]),
        ("value.b", [{"b": 1}], [{"b": HIDDEN}]),
        ("value.none.b", {"a": 1}, {"a": 1}),
    ],
    ids=str,
)
def test_a_path_names_fields(field: str, value: Any, expected: Any) -> None:
    assert masked(value, Hidden.of([field]).value) == expected


def test_a_value_that_is_too_deep_is_hidden_as_a_whole() -> None:
    value: Any = {"b": 1}
    for _ in range(500):
        value = {"a": value}
    assert masked(value, Hidden.of(["value.**.b"]).value) == HIDDEN


@pytest.mark.parametrize("field", ["", "valuex", "value[", "value.a]", "headers.", "offset", "value..", 'value["a]'])
def test_what_is_no_field_is_an_error(field: str) -> None:
    with pytest.raises(MaskError):
        Mask(("*",), (field,))


def test_masks_are_by_cluster_and_topic() -> None:
    masks = (Mask(("pay*",), ("key",), ("shop",)), Mask(("*",), ("value.a", "key")))
    assert fields_of(masks, "shop", "payments") == ("key", "value.a")
    assert fields_of(masks, "lab", "payments") == ("value.a", "key")
    assert fields_of(masks[:1], "lab", "payments") == ()


def test_records_for_a_copy_are_as_they_were_written_and_found_as_they_are_seen() -> None:
    head = {"hidden": FIELDS, "is_raw": True}
    (row,) = searched(head, record()).records
    assert row["key"] == "YW5u"
    assert searched({**head, "q": "4111"}, record()).records == []


# -- schemas

ORDER_VALUE = {
    "id": 7,
    "card": {"number": "4111"},
    "day": datetime.date(2026, 11, 22),
    "photo": b"\xff\0",
    "to": {"city": "Ulm"},
}
AVRO_FOUND = {
    "type": "AVRO",
    "schema": json.dumps(ORDER),
    "references": [{"name": "Address", "schema": json.dumps(ADDRESS)}],
}


def proto_found() -> dict[str, Any]:
    reference = {"name": "address.proto", "schema": serialized(address_file())}
    return {"type": "PROTOBUF", "schema": serialized(order_file()), "references": [reference]}


def one(value: bytes, found: dict[str, Any], **head: Any) -> Any:
    return searched({"has_registry": True, **head}, record(value=value), schemas={"5": found})


def test_avro_is_shown_filtered_and_masked_as_json() -> None:
    value = avro(5, ORDER_VALUE)
    (row,) = one(value, AVRO_FOUND).records
    assert (row["value"]["kind"], row["value"]["schema"]) == ("avro", {"id": 5, "name": "Order"})
    shown = {"id": 7, "card": {"number": "4111"}, "day": "2026-11-22", "photo": "0xff00", "to": {"city": "Ulm"}}
    assert json.loads(row["value"]["text"]) == shown
    assert one(value, AVRO_FOUND, filter='value.to.city == "Ulm"').records
    assert one(value, AVRO_FOUND, q='"city":"Ulm"').records
    hidden = one(value, AVRO_FOUND, hidden=("value.card.number",))
    assert json.loads(hidden.records[0]["value"]["text"])["card"] == {"number": HIDDEN}
    assert not one(value, AVRO_FOUND, hidden=("value.card.number",), q="4111").records
    assert "4111" not in str(one(value, AVRO_FOUND, hidden=("value.card.number",), body="hex").records)


def test_protobuf_is_found_by_the_place_of_its_message() -> None:
    value = {"id": "7", "card_number": "4111", "to": {"city": "Ulm"}, "at": "2026-11-22T00:00:00Z"}
    (row,) = one(protobuf(5, b"\x02\x02", "shop.Order", value), proto_found()).records
    assert (row["value"]["kind"], row["value"]["schema"]["name"]) == ("protobuf", "shop.Order")
    assert json.loads(row["value"]["text"]) == value
    (row,) = one(protobuf(5, b"\x04\x02\x00", "shop.Order.Line", {"count": "3"}), proto_found()).records
    assert json.loads(row["value"]["text"]) == {"count": "3"}
    (row,) = one(protobuf(5, b"\x00", "shop.Unused", {}), proto_found()).records
    assert row["value"]["schema"]["name"] == "shop.Unused"


def test_json_with_a_schema_is_json() -> None:
    found = {"type": "JSON", "schema": '{"title": "Order"}'}
    (row,) = one(json_value(5, {"id": 7}), found, filter="value.id == 7").records
    assert (row["value"]["kind"], row["value"]["text"]) == ("json-schema", '{"id":7}')


@pytest.mark.parametrize(
    ("found", "value"),
    [
        ({"error": "the schema registry does not have it"}, b"abc"),
        (AVRO_FOUND, b""),
        (AVRO_FOUND, b"\xff" * 40),
        (AVRO_FOUND, avro(5, ORDER_VALUE)[5:] + b"more"),
        ({"type": "AVRO", "schema": "{"}, b"abc"),
        ({"type": "AVRO", "schema": '{"type": "record", "name": "X", "fields": 5}'}, b"abc"),
        ({"type": "AVRO", "schema": json.dumps({"type": "array", "items": "Nothing"})}, b"abc"),
        ({"type": "PROTOBUF", "schema": "syntax"}, b"\0"),
        ({"type": "PROTOBUF", "schema": "AAAA"}, b"\0"),
        (proto_found(), b""),
        (proto_found(), b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        (proto_found(), b"\x02\x7e"),
        (proto_found(), b"\x02\x01"),
        (proto_found(), b"\x02\x02\xff\xff"),
        ({"type": "JSON", "schema": "{}"}, b"{"),
        ({"type": "THRIFT", "schema": "{}"}, b"abc"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_damaged_schema_or_value_is_shown_as_bytes_with_the_reason(found: dict[str, Any], value: bytes) -> None:
    (row,) = one(framed(5, value), found).records
    assert row["value"]["problem"]
    assert row["value"]["kind"] == "hex"
    (row,) = one(framed(5, value), found, hidden=("value.card",)).records
    assert row["value"]["text"] == HIDDEN, "what may have the field is hidden"
    assert row["value"]["problem"] == "schema 5: it cannot be read", "the reason can have a part of the value"


def test_a_chunk_asks_for_the_schemas_that_it_lacks() -> None:
    job = job_of({"has_registry": True})
    records = [record(offset, value=framed(5 + offset, b"x")) for offset in range(100)]
    data = bytes(encode_batch(records))
    found = search_chunk(job, chunk(), data)
    assert (len(found.wanted), found.records, found.searched) == (32, [], 0)
    rounds = 0
    while found.wanted:
        rounds += 1
        assert job.schemas is not None
        for each in found.wanted:
            job.schemas.add(each, {"error": "none"})
        found = search_chunk(job, chunk(), data)
    assert (rounds, len(found.records)) == (4, 100)


def test_a_search_reads_at_most_so_many_schemas() -> None:
    schemas = Schemas()
    for each in range(600):
        if not schemas.knows(each):
            schemas.add(each, {"error": "none"})
    with pytest.raises(SchemaError, match="too many schemas"):
        schemas.decoded(framed(599, b"x"))


def test_without_a_registry_no_value_is_taken_for_one() -> None:
    found = search_chunk(Job(), chunk(), bytes(encode_batch([record(value=avro(5, ORDER_VALUE))])))
    assert (found.records[0]["value"]["kind"], found.wanted) == ("hex", [])
