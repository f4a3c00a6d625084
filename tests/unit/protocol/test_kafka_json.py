"""JSON text as Jackson prints Kafka's messages; the numbers are those of Java's Double.toString."""

from __future__ import annotations

import pytest

from barnabas.protocol.kafka_json import java_double, to_json_object, to_json_text
from barnabas.protocol.messages.records_metadata import ClientQuotaRecord, UserScramCredentialRecord
from barnabas.protocol.messages.records_transaction import TransactionLogValue


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (900.0, "900.0"),
        (0.1, "0.1"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (10000000.0, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (-2.5e-10, "-2.5E-10"),
        (1e300, "1.0E300"),
        (float("inf"), '"Infinity"'),
    ],
)
def test_doubles_are_printed_as_in_java(value: float, text: str) -> None:
    assert java_double(value) == text


def test_text_is_escaped_as_jackson_does() -> None:
    assert (
        to_json_text({"a": 'q"\\\n\x01é中', "b": [True, None, 1]}) == '{"a":"q\\"\\\\\\n\\u0001é中","b":[true,null,1]}'
    )


def test_fields_follow_the_schema_in_the_version() -> None:
    record = ClientQuotaRecord(
        entity=[ClientQuotaRecord.EntityData(entity_type="user", entity_name=None)], key="rate", value=2e7
    )
    assert to_json_text(to_json_object(record, 0)) == (
        '{"entity":[{"entityType":"user","entityName":null}],"key":"rate","value":2.0E7,"remove":false}'
    )


def test_tagged_fields_are_left_out_while_they_have_their_default() -> None:
    value = TransactionLogValue(producer_id=4, transaction_partitions=None)
    assert "previousProducerId" not in to_json_object(value, 1)
    value.previous_producer_id = 7
    assert to_json_object(value, 1)["previousProducerId"] == 7
    assert "previousProducerId" not in to_json_object(value, 0)


def test_bytes_are_base64() -> None:
    shown = to_json_object(UserScramCredentialRecord(name="alice", salt=b"\xff\xfe"), 0)
    assert shown["salt"] == "//4="
