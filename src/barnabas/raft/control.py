"""Control records of the metadata log and its snapshots (KIP-595, KIP-630, KIP-853).

    key    version int16 | type int16
    value  the message of that type, which begins with its version

The records describe the quorum itself, and are written in batches of their own, marked as control batches.
"""

from __future__ import annotations

import struct
from typing import Final

from barnabas.common.errors import DecodeError
from barnabas.common.host import Buffer
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_raft import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

_KEY: Final = struct.Struct(">hh")
_VERSION: Final = struct.Struct(">h")
_TYPES: Final[dict[int, type[Message]]] = {
    2: LeaderChangeMessage,
    3: SnapshotHeaderRecord,
    4: SnapshotFooterRecord,
    5: KRaftVersionRecord,
    6: VotersRecord,
}
_NUMBERS: Final = {cls: number for number, cls in _TYPES.items()}


def encode_control(message: Message) -> tuple[bytes, bytes]:
    """Returns (key, value) of the control record."""
    return _KEY.pack(0, _NUMBERS[type(message)]), bytes(encode(message, 0))


def decode_control(key: Buffer | None, value: Buffer | None) -> Message | None:
    """Returns the message, or None for a type that this release does not know and skips."""
    if key is None or value is None or len(key) < _KEY.size:
        raise DecodeError("a control record needs a key of version and type, and a value")
    _, number = _KEY.unpack_from(key)
    cls = _TYPES.get(number)
    if cls is None:
        return None
    # Each message begins with its version.
    if len(value) < _VERSION.size:
        raise DecodeError(f"a control record of {len(value)} bytes")
    version = min(_VERSION.unpack_from(value)[0], cls.VERSIONS[1])
    message, _ = decode(cls, max(version, 0), value)
    return message
