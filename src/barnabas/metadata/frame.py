"""The frame of a metadata record in the log (KIP-631).

    frame version (1) | record type | record version | body in that version, flexible encoding
    each of the first three an unsigned varint

A log record in `__cluster_metadata-0` and in its snapshots has one frame as its value; its key is null.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.common.errors import DecodeError
from barnabas.common.host import Buffer
from barnabas.protocol.codec import Decoder, decode, decoder, encode_into
from barnabas.protocol.message import Message
from barnabas.protocol.messages import records_metadata as r
from barnabas.protocol.wire import read_unsigned_varint, write_unsigned_varint

FRAME_VERSION: Final = 1

_CLASSES: Final[tuple[type[Message], ...]] = (
    r.RegisterBrokerRecord,
    r.UnregisterBrokerRecord,
    r.TopicRecord,
    r.PartitionRecord,
    r.ConfigRecord,
    r.PartitionChangeRecord,
    r.FenceBrokerRecord,
    r.UnfenceBrokerRecord,
    r.RemoveTopicRecord,
    r.DelegationTokenRecord,
    r.UserScramCredentialRecord,
    r.FeatureLevelRecord,
    r.ClientQuotaRecord,
    r.ProducerIdsRecord,
    r.BrokerRegistrationChangeRecord,
    r.AccessControlEntryRecord,
    r.RemoveAccessControlEntryRecord,
    r.NoOpRecord,
    r.ZkMigrationStateRecord,
    r.RemoveUserScramCredentialRecord,
    r.BeginTransactionRecord,
    r.EndTransactionRecord,
    r.AbortTransactionRecord,
    r.RemoveDelegationTokenRecord,
    r.RegisterControllerRecord,
    r.ClearElrRecord,
)

#: Record type -> class.
RECORD_CLASSES: Final[dict[int, type[Message]]] = {cls.API_KEY: cls for cls in _CLASSES if cls.API_KEY is not None}

#: The size of the three numbers before the body, if each is below 128, as in all records so far.
_HEAD_BYTES: Final = 3
_ID_BYTES: Final = 16


def _decode_rule(data: Buffer, position: int) -> tuple[Message, int]:
    """Decodes an ACL in half the time of the generated decoder, which decodes what is unusual, and refuses what is
    malformed.
    """
    try:
        # A string follows one byte with its length plus one; there are no tagged fields.
        name = position + _ID_BYTES + 2
        size = data[name - 1]
        pattern = name - 1 + size
        principal, principal_size = pattern + 2, data[pattern + 1]
        host, host_size = principal + principal_size, data[principal - 1 + principal_size]
        end = host - 1 + host_size
        made = object.__new__(r.AccessControlEntryRecord)
        made.id = bytes(data[position : name - 2])
        made.resource_type = data[name - 2]
        made.resource_name = str(data[name:pattern], "utf-8")
        made.pattern_type = data[pattern]
        made.principal = str(data[principal : host - 1], "utf-8")
        made.host = str(data[host:end], "utf-8")
        made.operation = data[end]
        made.permission_type = data[end + 1]
        made.unknown_tags = ()
        numbers = size | principal_size | host_size | data[name - 2] | data[pattern] | data[end] | data[end + 1]
        if numbers < 128 and size and principal_size and host_size and data[end + 2] == 0 and end + 3 == len(data):
            return made, end + 3
    except (IndexError, ValueError):
        pass
    return decoder(r.AccessControlEntryRecord, 0)(data, position)


#: The decoders used so far, by record type and version (the second and third byte): 100,000 records are decoded at a
#: start, and the look-ups took a third of the time.
_decoders: dict[int, Decoder] = {0x1200: _decode_rule}


def encode_record(record: Message, version: int) -> bytes:
    """Returns the record with its frame."""
    assert record.API_KEY is not None, f"{record.NAME} is not a metadata record"
    out = bytearray()
    write_unsigned_varint(out, FRAME_VERSION)
    write_unsigned_varint(out, record.API_KEY)
    write_unsigned_varint(out, version)
    encode_into(record, version, out)
    return bytes(out)


def decode_record(data: Buffer) -> tuple[Message, int]:
    """Returns the record in a frame and its version.

    Raises DecodeError for an unknown frame version, record type or record version, and for bytes left over.
    """
    if len(data) > _HEAD_BYTES and data[0] == FRAME_VERSION:
        version = data[2]
        function = _decoders.get(data[1] << 8 | version)
        if function is not None:
            record, end = function(data, _HEAD_BYTES)
            if end == len(data):
                return record, version
    return _decode_any(data)


def decode_into(records: list[Message], values: Iterable[bytes | None]) -> None:
    """Appends the records in frames. Raises DecodeError for the first one that cannot be decoded; `records` then has
    those before it.
    """
    known, add = _decoders.get, records.append
    for value in values:
        if value is None:
            raise DecodeError("a metadata record without a value")
        if len(value) > _HEAD_BYTES and value[0] == FRAME_VERSION:
            function = known(value[1] << 8 | value[2])
            if function is not None:
                record, end = function(value, _HEAD_BYTES)
                if end == len(value):
                    add(record)
                    continue
        add(_decode_any(value)[0])


def _decode_any(data: Buffer) -> tuple[Message, int]:
    frame_version, offset = read_unsigned_varint(data, 0)
    if frame_version != FRAME_VERSION:
        raise DecodeError(f"metadata record in frame version {frame_version}; expected {FRAME_VERSION}")
    record_type, offset = read_unsigned_varint(data, offset)
    version, offset = read_unsigned_varint(data, offset)
    cls = RECORD_CLASSES.get(record_type)
    if cls is None:
        raise DecodeError(f"metadata record of unknown type {record_type}")
    lowest, highest = cls.VERSIONS
    if not lowest <= version <= highest:
        raise DecodeError(f"{cls.NAME} version {version}; expected {lowest} to {highest}")
    record, end = decode(cls, version, data, offset)
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes left after {cls.NAME}", end)
    if offset == _HEAD_BYTES:
        _decoders[record_type << 8 | version] = decoder(cls, version)
    return record, version
