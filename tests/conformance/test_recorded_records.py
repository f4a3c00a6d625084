"""Records that Kafka 4.1.0 keeps on disk decode to the content that its dump tool shows, and encode to the same bytes.

`tests/data/wire/records-4.1.0.json.gz`: keys and values of records from `__cluster_metadata`, `__consumer_offsets`,
`__transaction_state` and `__share_group_state`, with the content as DumpLogSegments shows it.

    coordinator record   key: int16 type id, key struct (version 0); value: int16 version, value struct
    metadata record      frame version 1, type id, version (unsigned varints), struct
    control record       key: int16 version, int16 type; value: struct, its version in its first field
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from barnabas.protocol import codec
from barnabas.protocol.kafka_json import to_json_object
from barnabas.protocol.message import Message
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from barnabas.protocol.messages.index import (
    GROUP_RECORDS,
    SHARE_RECORDS,
    TRANSACTION_RECORDS,
    load,
    metadata_record_class,
)
from barnabas.protocol.messages.records_group import ConsumerGroupMemberMetadataValue
from barnabas.protocol.wire import read_unsigned_varint

DATA = Path(__file__).resolve().parents[1] / "data" / "wire" / "records-4.1.0.json.gz"
COORDINATORS = {
    "group": ("records_group", GROUP_RECORDS),
    "transaction": ("records_transaction", TRANSACTION_RECORDS),
    "share": ("records_share", SHARE_RECORDS),
}
CONTROL_RECORDS = {
    "SnapshotHeader": "SnapshotHeaderRecord",
    "SnapshotFooter": "SnapshotFooterRecord",
    "KRaftVersion": "KRaftVersionRecord",
    "KRaftVoters": "VotersRecord",
    "LeaderChange": "LeaderChangeMessage",
}


def load_records(log: str) -> list[dict[str, Any]]:
    with gzip.open(DATA, "rt") as file:
        return [each for each in json.load(file) if each["log"] == log]


def check_whole(cls: type[Message], version: int, data: bytes, offset: int, shown: Any) -> None:
    message, end = codec.decode(cls, version, data, offset)
    assert end == len(data)
    assert codec.encode(message, version).hex() == data[offset:].hex()
    ours = to_json_object(message, version)
    for member in ours.get("members", []):
        open_member(member)
    assert without_nulls(ours) == without_nulls(shown)


def open_member(member: dict[str, Any]) -> None:
    """Decodes the metadata of a group's members, which the dump tool shows as an int16 version and a struct of that
    version.
    """
    for name, cls in (("subscription", ConsumerProtocolSubscription), ("assignment", ConsumerProtocolAssignment)):
        data = base64.b64decode(member[name])
        (version,) = struct.unpack_from(">h", data)
        content, end = codec.decode(cls, version, data, 2)
        assert data == data[:2] + codec.encode(content, version)
        assert end == len(data)
        member[name] = to_json_object(content, version)


def without_nulls(shown: Any) -> Any:
    """Removes some nulls, which the dump tool omits."""
    if isinstance(shown, dict):
        return {name: without_nulls(value) for name, value in shown.items() if value is not None}
    return [without_nulls(each) for each in shown] if isinstance(shown, list) else shown


@pytest.mark.parametrize("log", COORDINATORS)
def test_coordinator_records(log: str) -> None:
    module, classes = COORDINATORS[log]
    records = load_records(log)
    assert len(records) > 5
    for record in records:
        key = bytes.fromhex(record["key_hex"])
        (type_id,) = struct.unpack_from(">h", key)
        assert str(type_id) == record["key"]["type"]
        key_class, value_class = (load(module, name) for name in classes[type_id])
        check_whole(key_class, 0, key, 2, record["key"]["data"])
        assert key_class.API_KEY == value_class.API_KEY == type_id
        if record["value_hex"] is not None:
            value = bytes.fromhex(record["value_hex"])
            (version,) = struct.unpack_from(">h", value)
            assert str(version) == record["value"]["version"]
            check_whole(value_class, version, value, 2, record["value"]["data"])


def test_metadata_records() -> None:
    records = load_records("metadata")
    assert len({record["value"]["type"] for record in records}) > 15
    for record in records:
        data = bytes.fromhex(record["value_hex"])
        frame_version, offset = read_unsigned_varint(data, 0)
        type_id, offset = read_unsigned_varint(data, offset)
        version, offset = read_unsigned_varint(data, offset)
        assert (frame_version, version) == (1, record["value"]["version"])
        check_whole(metadata_record_class(type_id), version, data, offset, record["value"]["data"])


def test_control_records_of_the_quorum() -> None:
    records = load_records("control")
    assert {record["name"] for record in records} == set(CONTROL_RECORDS)
    for record in records:
        data = bytes.fromhex(record["value_hex"])
        (version,) = struct.unpack_from(">h", data)
        shown = dict(record["value"])
        message, _ = codec.decode(load("records_raft", CONTROL_RECORDS[record["name"]]), version, data)
        assert shown["version"] == getattr(message, "version", version)
        check_whole(type(message), version, data, 0, shown)


def test_a_tagged_nullable_struct_distinguishes_null_from_absent() -> None:
    cls = ConsumerGroupMemberMetadataValue
    absent, null = cls(), cls(classic_member_metadata=None)
    present = cls(classic_member_metadata=cls.ClassicMemberMetadata(session_timeout_ms=7))
    tails = [codec.encode(each, 0)[-11:].hex() for each in (null, present)]
    assert tails[0].endswith("01000100")
    assert tails[1].endswith("01000701000000070100")
    for message in (absent, null, present):
        assert codec.decode(cls, 0, codec.encode(message, 0))[0] == message
