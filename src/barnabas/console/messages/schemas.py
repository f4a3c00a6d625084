"""Values that were written with a schema registry: Avro, Protobuf and JSON Schema, as JSON.

    0, u32 id of the schema, the value        Protobuf has the place of the message in its file before the value

Schemas and values are not trusted, so they are read only in the process of a search. A value that does not fit its
schema is shown as bytes.
"""

from __future__ import annotations

import base64
import io
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import orjson

MAGIC: Final = b"\0"
HEAD_BYTES: Final = 5
AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"
JSON_SCHEMA: Final = "json-schema"
#: Schemas that one search reads.
SCHEMAS_MAX: Final = 500
_INDEXES_MAX: Final = 32
_VARINT_BITS: Final = 35
#: The errors that the libraries raise for schemas and values that were made to break them, besides errors of their own.
_HOSTILE: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)
_NOT_INSTALLED: Final = "it needs a package that is not installed: pip install 'barnabas[console]'"


class SchemaError(Exception):
    """The error for a schema that cannot be used, or a value that does not fit one."""


class Decoded(NamedTuple):
    """A value as JSON. `name` is that of the schema's type."""

    kind: str
    name: str
    value: Any


Reader = Callable[[bytes], Decoded]


class Schemas:
    """The schemas that a search knows, by their id: how their values are read, or why they cannot be."""

    def __init__(self) -> None:
        self._known: dict[int, Reader | str] = {}

    def knows(self, schema_id: int) -> bool:
        return schema_id in self._known or len(self._known) >= SCHEMAS_MAX

    def add(self, schema_id: int, found: Mapping[str, Any]) -> None:
        """Adds a schema as the registry gave it, or the error in its place."""
        try:
            self._known[schema_id] = found["error"] if found.get("error") else _reader(found)
        except SchemaError as error:
            self._known[schema_id] = str(error)
        except ImportError:
            self._known[schema_id] = _NOT_INSTALLED
        except _HOSTILE as error:
            self._known[schema_id] = f"it cannot be read: {type(error).__name__}: {error}"[:300]

    def decoded(self, data: bytes) -> Decoded:
        """Decodes a value. Raises SchemaError for a value that cannot be read."""
        reader = self._known.get(id_of(data), "too many schemas")
        if isinstance(reader, str):
            raise SchemaError(f"schema {id_of(data)}: {reader}")
        try:
            return reader(data[HEAD_BYTES:])
        except SchemaError:
            raise
        except MemoryError:
            raise SchemaError("the value needs more memory than a search can use") from None
        except _HOSTILE as error:
            raise SchemaError(f"schema {id_of(data)}: {type(error).__name__}: {error}"[:300]) from error


def has_schema(data: bytes | None) -> bool:
    return data is not None and len(data) >= HEAD_BYTES and data[:1] == MAGIC


def id_of(data: bytes) -> int:
    return int.from_bytes(data[1:HEAD_BYTES], "big")


def plain(value: Any) -> Any:
    """Returns a value of a type that JSON lacks as text: the function `default` of orjson."""
    if isinstance(value, (bytes, bytearray)):
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            return f"0x{bytes(value).hex()}"
    return str(value)


def _reader(found: Mapping[str, Any]) -> Reader:
    kind = found.get("type") or "AVRO"
    text, references = found["schema"], found.get("references") or []
    if kind == "AVRO":
        return _avro(text, references)
    if kind == "PROTOBUF":
        return _protobuf(text, references)
    if kind == "JSON":
        return _json(text)
    raise SchemaError(f"its type is not supported: {str(kind)[:40]}")


def _avro(text: str, references: list[dict[str, str]]) -> Reader:
    import fastavro
    import fastavro.schema

    named: dict[str, Any] = {}
    try:
        for each in references:
            fastavro.parse_schema(orjson.loads(each["schema"]), named_schemas=named)
        parsed: Any = fastavro.parse_schema(orjson.loads(text), named_schemas=named)
    except fastavro.schema.SchemaParseException as error:
        raise SchemaError(f"it is not an Avro schema: {error}"[:300]) from error
    name = str(parsed.get("name", parsed.get("type")) if isinstance(parsed, dict) else "")

    def read(data: bytes) -> Decoded:
        stream = io.BytesIO(data)
        value = fastavro.schemaless_reader(stream, parsed, None)
        if stream.tell() != len(data):
            raise SchemaError("the value is longer than its schema says")
        return Decoded(AVRO, name, value)

    return read


def _protobuf(text: str, references: list[dict[str, str]]) -> Reader:
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.DescriptorPool()
    for name, content in _well_known().items():
        pool.AddSerializedFile(content)
        assert name, "a file has a name"
    for each in references:
        part = _file(descriptor_pb2.FileDescriptorProto, each["schema"])
        part.name = each["name"]
        pool.Add(part)
    main = _file(descriptor_pb2.FileDescriptorProto, text)
    main.name = "barnabas-console-main.proto"
    pool.Add(main)
    file = pool.FindFileByName(main.name)

    def read(data: bytes) -> Decoded:
        indexes, place = _indexes(data)
        found = list(file.message_types_by_name.values())[indexes[0]]
        for index in indexes[1:]:
            found = found.nested_types[index]
        message = message_factory.GetMessageClass(found)()
        try:
            message.ParseFromString(data[place:])
            value = json_format.MessageToDict(
                message,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=pool,
            )
        except (DecodeError, json_format.Error) as error:
            raise SchemaError(f"the value does not fit its schema: {error}"[:300]) from error
        return Decoded(PROTOBUF, found.full_name, value)

    return read


def _file(kind: Any, text: str) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError) as error:
        raise SchemaError("the registry gave no serialized schema (format=serialized)") from error


def _well_known() -> dict[str, bytes]:
    """Returns the files that any Protobuf schema can import without a reference."""
    from google.protobuf import (
        any_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    modules = (
        descriptor_pb2,
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )
    return {each.DESCRIPTOR.name: each.DESCRIPTOR.serialized_pb for each in modules}


def _indexes(data: bytes) -> tuple[list[int], int]:
    """Returns the place of the message in its file, and where its bytes begin."""
    count, place = _varint(data, 0)
    if not count:
        return [0], place
    if not 0 < count <= _INDEXES_MAX:
        raise SchemaError("the index of the message in its schema is damaged")
    found = []
    for _ in range(count):
        index, place = _varint(data, place)
        if index < 0:
            raise SchemaError("the index of the message in its schema is damaged")
        found.append(index)
    return found, place


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Returns a zigzag varint, and the place after it."""
    value = shift = 0
    while True:
        if place >= len(data) or shift >= _VARINT_BITS:
            raise SchemaError("the index of the message in its schema is damaged")
        value |= (data[place] & 0x7F) << shift
        place += 1
        if data[place - 1] < 0x80:
            return (value >> 1) ^ -(value & 1), place
        shift += 7


def _json(text: str) -> Reader:
    schema = orjson.loads(text)
    name = str(schema.get("title", "") if isinstance(schema, dict) else "")

    def read(data: bytes) -> Decoded:
        return Decoded(JSON_SCHEMA, name, orjson.loads(data))

    return read
