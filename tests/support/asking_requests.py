"""Requests: one of every API, with every list filled, and the authorization errors in a response."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas.protocol.message import Message, Struct
from barnabas.protocol.messages.index import request_class

#: The topic, group and transactional id that the requests name.
NAME = "orders"
AUTHORIZATION_CODES = frozenset({29, 30, 31, 53})
_NUMBERS = {
    # The values of numeric fields by name: those of ACL filters, the resource type of a configuration, and others.
    "resource_type": 2,
    "resource_type_filter": 2,
    "resource_pattern_type": 3,
    "pattern_type_filter": 3,
    "operation": 3,
    "permission_type": 3,
    "replica_id": -1,
    "acks": -1,
    "timeout_ms": 1_000,
    "num_partitions": 1,
    "replication_factor": 1,
}
_SIMPLE: dict[str, Any] = {"bool": False, "string": NAME, "float64": 0.0, "bytes": b"", "records": None}


def asking_request(api_key: int, version: int, topic_id: bytes) -> Message:
    """Returns a request with one element in each array and `NAME` in each text. `topic_id` is that of the topic."""
    kind = request_class(api_key)
    made = kind()
    _fill(kind, made, version, topic_id)
    return made


def _fill(message: type[Message], struct: Struct, version: int, topic_id: bytes) -> None:
    has_name = any(field.attribute in ("name", "topic") and field.is_in(version) for field in struct.FIELDS)
    for field in struct.FIELDS:
        if not field.is_in(version) or field.tag is not None:
            continue
        if field.is_struct:
            if field.attribute == "cursor":
                continue
            inner = getattr(message, field.element_type)()
            _fill(message, inner, version, topic_id)
            value: Any = inner
        elif field.element_type == "uuid":
            value = bytes(16) if has_name else topic_id
        elif field.element_type in _SIMPLE:
            value = _SIMPLE[field.element_type]
        else:
            value = _NUMBERS.get(field.attribute, 0)
        setattr(struct, field.attribute, [value] if field.is_array else value)


def codes_in(struct: Struct) -> Iterator[int]:
    """Yields all error codes of a response."""
    for field in struct.FIELDS:
        value = getattr(struct, field.attribute)
        if field.attribute.endswith("error_code"):
            yield value
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    yield from codes_in(each)
        elif isinstance(value, Struct):
            yield from codes_in(value)
