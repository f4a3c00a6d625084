"""The frame of a metadata record in the log (KIP-631).

    frame version (1) | record type | record version | body in that version, flexible encoding
    each of the first three an unsigned varint

A log record in `__cluster_metadata-0` and in its snapshots has one frame as its value; its key is null.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

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
#: The end of the id in the frame of an ACL.
_RULE_ID_END: Final = _HEAD_BYTES + 16


def _decode_rule(data: bytes, position: int) -> tuple[Message, int]:
    """Decodes an ACL in half the time of the generated decoder, which decodes what is unusual, and refuses what is
    malformed. The text contains all fields after the id, because a slice of a str costs less than a str of a slice.
    """
    try:
        rest = data[_RULE_ID_END:]
        text = str(rest, "ascii")
        # A string follows one byte with its length plus one; there are no tagged fields.
        name_end = 1 + rest[1]
        principal = name_end + 2
        host = principal + rest[name_end + 1]
        host_end = host - 1 + rest[host - 1]
        operation, permission, tags = rest[host_end:]
        # An ASCII byte is neither negative nor the beginning of a longer length. A length of zero is a null.
        if tags == 0 and name_end > 1 and principal < host <= host_end:
            made = object.__new__(r.AccessControlEntryRecord)
            made.id = data[_HEAD_BYTES:_RULE_ID_END]
            made.resource_type = rest[0]
            made.resource_name = text[2:name_end]
            made.pattern_type = rest[name_end]
            made.principal = text[principal : host - 1]
            made.host = text[host:host_end]
            made.operation = operation
            made.permission_type = permission
            made.unknown_tags = ()
            return made, len(data)
    except (IndexError, ValueError):
        pass
    return decoder(r.AccessControlEntryRecord, 0)(data, position)


#: The decoders used so far, by the head of a frame that is `bytes`: 100,000 records are decoded at a start, and the
#: look-ups took a third of the time.
_decoders: dict[bytes, Decoder] = {bytes((FRAME_VERSION, 18, 0)): cast("Decoder", _decode_rule)}


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
    data = bytes(data)
    function = _decoders.get(data[:_HEAD_BYTES])
    if function is not None:
        record, end = function(data, _HEAD_BYTES)
        if end == len(data):
            return record, data[_HEAD_BYTES - 1]
    return _decode_any(data)


def decode_into(records: list[Message], values: Iterable[bytes | None]) -> None:
    """Appends the records in frames. Raises DecodeError for the first one that cannot be decoded; `records` then has
    those before it.
    """
    known, add = _decoders.get, records.append
    for value in values:
        if value is None:
            raise DecodeError("a metadata record without a value")
        function = known(value[:_HEAD_BYTES])
        if function is not None:
            record, end = function(value, _HEAD_BYTES)
            if end == len(value):
                add(record)
                continue
        add(_decode_any(value)[0])


def _decode_any(data: bytes) -> tuple[Message, int]:
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
        _decoders[data[:_HEAD_BYTES]] = decoder(cls, version)
    return record, version
