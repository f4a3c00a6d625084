"""Schemas of the tests, and values that were written with them."""

from __future__ import annotations

import base64
import io
from typing import Any, Final

import fastavro
import orjson
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

ADDRESS: Final = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
ORDER: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "card", "type": {"type": "record", "name": "Card", "fields": [{"name": "number", "type": "string"}]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "photo", "type": ["null", "bytes"], "default": None},
        {"name": "to", "type": "Address"},
    ],
}
_STRING: Final = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_INT64: Final = descriptor_pb2.FieldDescriptorProto.TYPE_INT64
_MESSAGE: Final = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE


def framed(schema_id: int, data: bytes) -> bytes:
    """Returns a value in the form of Confluent's serializers."""
    return b"\0" + schema_id.to_bytes(4, "big") + data


def avro(schema_id: int, value: dict[str, Any]) -> bytes:
    named: dict[str, Any] = {}
    fastavro.parse_schema(ADDRESS, named_schemas=named)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER, named_schemas=named), value)
    return framed(schema_id, out.getvalue())


def address_file() -> descriptor_pb2.FileDescriptorProto:
    found = descriptor_pb2.FileDescriptorProto(name="address.proto", package="shop", syntax="proto3")
    message = found.message_type.add(name="Address")
    message.field.add(name="city", number=1, type=_STRING, label=1)
    return found


def order_file() -> descriptor_pb2.FileDescriptorProto:
    """Returns a file with two messages, of which the second has one inside, and an import."""
    found = descriptor_pb2.FileDescriptorProto(name="default", package="shop", syntax="proto3")
    found.dependency.extend(["address.proto", "google/protobuf/timestamp.proto"])
    found.message_type.add(name="Unused")
    order = found.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=_INT64, label=1)
    order.field.add(name="card_number", number=2, type=_STRING, label=1)
    order.field.add(name="to", number=3, type=_MESSAGE, type_name=".shop.Address", label=1)
    order.field.add(name="at", number=4, type=_MESSAGE, type_name=".google.protobuf.Timestamp", label=1)
    line = order.nested_type.add(name="Line")
    line.field.add(name="count", number=1, type=_INT64, label=1)
    return found


def serialized(file: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def protobuf(schema_id: int, indexes: bytes, name: str, value: dict[str, Any]) -> bytes:
    """Returns a Protobuf value. `indexes` is the place of its message in the file, encoded."""
    from google.protobuf import timestamp_pb2

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(address_file())
    pool.Add(order_file())
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()
    json_format.ParseDict(value, message, descriptor_pool=pool)
    return framed(schema_id, indexes + message.SerializeToString())


def json_value(schema_id: int, value: Any) -> bytes:
    return framed(schema_id, orjson.dumps(value))
