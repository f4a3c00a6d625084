"""Decoders of `barnabas log dump` for the records of internal topics: the same JSON as Kafka's tool prints, without the
passwords and keys in the metadata.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Any

from barnabas.common.errors import DecodeError
from barnabas.metadata.frame import FRAME_VERSION, decode_record
from barnabas.protocol.codec import decode
from barnabas.protocol.kafka_json import to_json_object, to_json_text
from barnabas.protocol.message import HIDDEN, Message
from barnabas.protocol.messages import records_group, records_share, records_transaction
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from barnabas.records.batch import Record
from barnabas.storage.offline.dump import Decoder, DumpFailed

_SHORT = struct.Struct(">h")
_TOMBSTONE = "<DELETE>"
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CLASSIC_CONSUMERS = "consumer"

_Classes = dict[int, type[Message]]


def decode_metadata(record: Record) -> tuple[str | None, str | None]:
    """Decodes a record of `__cluster_metadata`."""
    value = record.value or b""
    if value and value[0] != FRAME_VERSION and value[0] < 0x80:
        text = f"unknown frame version {value[0]}(only frame version {FRAME_VERSION} is supported)"
        return None, f"Error at {record.offset}, skipping. Could not deserialize metadata record due to {text}"
    try:
        message, version = decode_record(value)
    except DecodeError as error:
        return None, f"Error at {record.offset}, skipping. {error}"
    data = to_json_object(message, version)
    for field in message.FIELDS:
        if message.is_secret(field.attribute):
            data[field.name[0].lower() + field.name[1:]] = HIDDEN
    shown = {"type": _WORD.sub("_", message.NAME).upper(), "version": version, "data": data}
    return None, to_json_text(shown)


def _classes(module: Any, ending: str) -> _Classes:
    """Returns record type -> class for the classes of the module with this suffix. A renamed type keeps its number."""
    found: _Classes = {}
    for name, cls in vars(module).items():
        if isinstance(cls, type) and issubclass(cls, Message) and name.endswith(ending) and cls.API_KEY is not None:
            found[cls.API_KEY] = cls
    return found


class _CoordinatorDecoder:
    """Decodes keys and values of a coordinator's topic. Both begin with a number: the key with the type of the record,
    the value with its version.
    """

    def __init__(self, keys: _Classes, values: _Classes) -> None:
        self._keys = keys
        self._values = values

    def __call__(self, record: Record) -> tuple[str | None, str | None]:
        if record.key is None:
            raise DumpFailed(
                "java.lang.RuntimeException",
                f"Failed to decode message at offset {record.offset} using the specified decoder "
                "(message had a missing key)",
            )
        try:
            kind = _leading_short(record.key)
            if kind not in self._keys:
                return f"Unknown record type {kind} at offset {record.offset}, skipping.", None
            key = decode(self._keys[kind], self._keys[kind].VERSIONS[0], record.key, _SHORT.size)[0]
            shown = {"type": str(kind), "data": to_json_object(key, key.VERSIONS[0])}
            return to_json_text(shown), self._value(kind, record.value)
        except DecodeError as error:
            return f"Error at offset {record.offset}, skipping. {error}", None

    def _value(self, kind: int, value: bytes | None) -> str:
        if value is None:
            return _TOMBSTONE
        version = _leading_short(value)
        message = decode(self._values[kind], version, value, _SHORT.size)[0]
        data = to_json_object(message, version)
        if isinstance(message, records_group.GroupMetadataValue) and message.protocol_type == _CLASSIC_CONSUMERS:
            for member, shown in zip(message.members, data["members"], strict=True):
                _open(shown, "subscription", ConsumerProtocolSubscription, member.subscription)
                _open(shown, "assignment", ConsumerProtocolAssignment, member.assignment)
        return to_json_text({"version": str(version), "data": data})


def _leading_short(data: bytes) -> int:
    if len(data) < _SHORT.size:
        raise DecodeError(f"{len(data)} bytes are too short for a version")
    number: int = _SHORT.unpack_from(data)[0]
    return number


def _open(shown: dict[str, Any], name: str, cls: type[Message], data: bytes) -> None:
    """Replaces bytes that clients encoded, such as a member's subscription, by their decoded form if they can be
    decoded.
    """
    try:
        version = _leading_short(data)
        shown[name] = to_json_object(decode(cls, version, data, _SHORT.size)[0], version)
    except DecodeError:
        return


def _coordinator(modules: Iterable[Any]) -> Decoder:
    keys: _Classes = {}
    values: _Classes = {}
    for module in modules:
        keys |= _classes(module, "Key")
        values |= _classes(module, "Value")
    return _CoordinatorDecoder(keys, values)


decode_group = _coordinator([records_group])
decode_transaction = _coordinator([records_transaction])
decode_share_group = _coordinator([records_share])
