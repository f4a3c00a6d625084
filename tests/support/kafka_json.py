"""Messages as Kafka's own JSON converters write them, to compare decoded values with recordings of Kafka."""

from __future__ import annotations

import base64
from typing import Any

from barnabas.common.types import uuid_to_text
from barnabas.protocol.message import Field, Message, Struct


def to_kafka_json(message: Message, version: int) -> dict[str, Any]:
    """Returns the converter's object; of records it has only the size (`recordsSizeInBytes`)."""
    return _struct(message, type(message), version)


def _struct(value: Struct, message: type[Message], version: int) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for field in value.FIELDS:
        if not field.is_in(version):
            continue
        held = getattr(value, field.attribute)
        if field.is_tagged_in(version) and _is_default(held, field, message):
            continue
        name = field.name[0].lower() + field.name[1:]
        if field.type == "records":
            shown[f"{name}SizeInBytes"] = None if held is None else len(held)
        elif held is None:
            shown[name] = None
        elif field.is_array:
            shown[name] = [_scalar(each, field, message, version) for each in held]
        else:
            shown[name] = _scalar(held, field, message, version)
    return shown


def _is_default(value: Any, field: Field, message: type[Message]) -> bool:
    if field.default == ():
        return bool(value == ([] if field.is_array else getattr(message, field.type)()))
    return bool(value == field.default)


def _scalar(value: Any, field: Field, message: type[Message], version: int) -> Any:
    if field.is_struct:
        return _struct(value, message, version)
    if field.element_type == "uuid":
        return uuid_to_text(value)
    if field.element_type == "bytes":
        return base64.b64encode(value).decode()
    return value
