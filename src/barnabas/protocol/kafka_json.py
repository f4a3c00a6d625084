"""Messages as JSON text in the form that Kafka's own tools print, for people and for scripts that parse it.

names      the schema's, with a small first letter      versions   fields that the version has, in schema order
bytes      base64                                       uuid       Kafka's 22 letters
tagged     omitted while they have their default        float64    as Java prints a double: 2.0E7
null       null                                         text       not escaped beyond what JSON needs
"""

from __future__ import annotations

import base64
import json
import math
import re
from typing import Any

from barnabas.common.types import uuid_to_text
from barnabas.protocol.message import Field, Message, Struct

JsonObject = dict[str, Any]

_ESCAPE = re.compile(r'[\x00-\x1f"\\]')
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def to_json_object(message: Message, version: int) -> JsonObject:
    """Returns the message as nested dictionaries, for `to_json_text`."""
    return _struct(message, type(message), version)


def to_json_text(value: Any) -> str:
    """Returns the value as one line without blanks."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quoted(key)}:{to_json_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(to_json_text(item) for item in value) + "]"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float):
        return java_double(value)
    return json.dumps(value)


def java_double(value: float) -> str:
    """Formats like `Double.toString`: plain from 1E-3 up to 1E7, else with an exponent; with at least one decimal."""
    if math.isnan(value) or math.isinf(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign = "-" if value < 0 else ""
    digits, _, exponent_text = repr(abs(value)).partition("e")
    whole, _, fraction = digits.partition(".")
    exponent = int(exponent_text or 0) + len(whole) - 1
    significant = (whole + fraction).rstrip("0") or "0"
    stripped = significant.lstrip("0")
    exponent -= len(significant) - len(stripped)
    if -3 <= exponent < 7:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{stripped}"
        head = stripped[: exponent + 1].ljust(exponent + 1, "0")
        return f"{sign}{head}.{stripped[exponent + 1 :] or '0'}"
    return f"{sign}{stripped[0]}.{stripped[1:] or '0'}E{exponent}"


def _quoted(text: str) -> str:
    return '"' + _ESCAPE.sub(_escaped, text) + '"'


def _escaped(match: re.Match[str]) -> str:
    letter = match.group()
    return _SHORT_ESCAPES.get(letter) or f"\\u{ord(letter):04X}"


def _struct(value: Struct, message: type[Message], version: int) -> JsonObject:
    shown: JsonObject = {}
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
            shown[name] = [_value(item, field, message, version) for item in held]
        else:
            shown[name] = _value(held, field, message, version)
    return shown


def _is_default(value: Any, field: Field, message: type[Message]) -> bool:
    if field.default == ():
        return bool(value == ([] if field.is_array else getattr(message, field.type)()))
    return bool(value == field.default)


def _value(value: Any, field: Field, message: type[Message], version: int) -> Any:
    if field.is_struct:
        return _struct(value, message, version)
    if field.element_type == "uuid":
        return uuid_to_text(value)
    if field.element_type == "bytes":
        return base64.b64encode(value).decode()
    return value
