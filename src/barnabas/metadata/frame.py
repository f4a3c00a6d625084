"""The frame of a metadata record in the log (KIP-631).

    frame version (1) | record type | record version | body in that version, flexible encoding
    each of the first three an unsigned varint

A log record in `__cluster_metadata-0` and in its snapshots has one frame as its value; its key is null.
"""

from __future__ import annotations

from typing import Final

from barnabas.common.errors import DecodeError
from barnabas.common.host import Buffer
from barnabas.protocol.codec import decode, encode_into
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
    return record, version
