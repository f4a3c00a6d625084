"""The same values encoded by kio, an independent implementation of Kafka's schemas, give the same bytes.

kio represents some types differently (error codes, durations, points in time): the values are chosen so that it can
represent them.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import uuid
from pkgutil import resolve_name
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_writer
from tests.support.message_values import Choices, MessageMaker

from barnabas.protocol import codec
from barnabas.protocol.message import Field, Message, Struct
from barnabas.protocol.messages.index import MESSAGES, load

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
ERROR_CODES = sorted(code.value for code in ErrorCode)
#: 9999-12-31 is the last day that datetime knows.
TIME_MS_MAX = 253_000_000_000_000
#: A message, its version, and where kio has it ("module:class").
Pair = tuple[type[Message], int, str]


def kio_places() -> dict[tuple[str, int], str]:
    """Returns the place of kio's class by Kafka's name of the message and the version. Nothing is imported: each
    collecting process would import 600 modules.
    """
    return {
        (place.partition(":")[2], version): place
        for by_version in schema_name_map.values()
        for version, by_kind in by_version.items()
        for place in by_kind.values()
    }


def pairs_by_module() -> dict[str, list[Pair]]:
    theirs = kio_places()
    found: dict[str, list[Pair]] = {}
    for module, name in MESSAGES:
        ours = load(module, name)
        for version in range(ours.VERSIONS[0], ours.VERSIONS[1] + 1):
            if (name, version) in theirs:
                found.setdefault(module, []).append((ours, version, theirs[name, version]))
    return found


PAIRS = pairs_by_module()


def kio_fields(theirs: type[Any], ours: type[Struct], version: int) -> list[tuple[Field, dataclasses.Field[Any]]]:
    """Fields of both, paired by their order."""
    present = [field for field in ours.FIELDS if field.is_in(version)]
    return list(zip(present, dataclasses.fields(theirs), strict=True))


def inner_class(hint: Any) -> Any:
    """Returns the dataclass inside `tuple[X, ...]`, `X | None` and so on."""
    if dataclasses.is_dataclass(hint):
        return hint
    return next((found for each in get_args(hint) if (found := inner_class(each)) is not None), None)


def kinds(theirs: type[Any], ours: type[Struct], message: type[Message], version: int) -> dict[tuple[str, str], str]:
    """Returns kio's own type name by (struct, attribute), with all structs inside."""
    found: dict[tuple[str, str], str] = {}
    for field, other in kio_fields(theirs, ours, version):
        if field.is_struct:
            found |= kinds(inner_class(other.type), getattr(message, field.element_type), message, version)
        else:
            nullable = "None" in str(other.type)
            found[ours.__name__, field.attribute] = other.metadata["kafka_type"] + ("?" if nullable else "")
    return found


def to_kio(value: Struct, theirs: type[Any], message: type[Message], version: int) -> Any:
    """Returns the same content as kio's object; a value of None that kio does not allow is left at its default."""
    given: dict[str, Any] = {}
    for field, other in kio_fields(theirs, type(value), version):
        held = getattr(value, field.attribute)
        if held is None and field.nullable is None:
            if other.default is not dataclasses.MISSING:
                continue
            held = getattr(message, field.element_type)()
        if field.is_array and held is not None:
            given[other.name] = tuple(kio_single(each, field, other, message, version) for each in held)
        else:
            given[other.name] = kio_single(held, field, other, message, version)
    return theirs(**given)


def kio_single(value: Any, field: Field, other: dataclasses.Field[Any], message: type[Message], version: int) -> Any:
    if value is None:
        return None
    if field.is_struct:
        return to_kio(value, inner_class(other.type), message, version)
    match other.metadata["kafka_type"]:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else EPOCH + datetime.timedelta(milliseconds=value)
        case "uuid":
            return uuid.UUID(bytes=value) if any(value) else None
    return value


def kio_holds(ours: type[Message], version: int, theirs: type[Any]) -> Any:
    """Chooses values that kio's types take; Ellipsis leaves the choice to the maker."""
    special = kinds(theirs, ours, ours, version)

    def override(cls: type[Struct], field: Field, choices: Choices) -> Any:
        kind = special.get((cls.__name__, field.attribute), "")
        if field.is_array:
            return ...
        if kind.startswith("error_code"):
            return ERROR_CODES[choices.below(len(ERROR_CODES))]
        if kind.startswith("timedelta_i64"):
            return choices.integer(-(2**45), 2**45)
        if kind.startswith("datetime_i64"):
            return -1 if kind.endswith("?") and choices.below(2) else choices.integer(0, TIME_MS_MAX)
        return ...

    return override


@pytest.mark.parametrize("module", [pytest.param(module, id=module) for module in PAIRS])
@settings(max_examples=6, deadline=None, derandomize=True)
@given(data=st.binary(max_size=300))
@example(data=b"")
@example(data=bytes(range(256)) * 4)
def test_kio_writes_the_same_bytes(module: str, data: bytes) -> None:
    for ours, version, place in PAIRS[module]:
        theirs = resolve_name(place)
        message = MessageMaker(Choices(data), kio_holds(ours, version, theirs), unknown_tags=False).make(ours, version)
        encoded = bytes(codec.encode(message, version))
        out = io.BytesIO()
        entity_writer(theirs)(out, to_kio(message, theirs, ours, version))
        assert encoded.hex() == out.getvalue().hex(), (ours.NAME, version, message)


def test_kio_has_nearly_all_messages() -> None:
    """Guards the comparison above against running on nothing."""
    assert sum(len(pairs) for pairs in PAIRS.values()) > 500
