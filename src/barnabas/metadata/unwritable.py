"""Log directories that currently take no writes, as brokers report them and as the metadata stores them.

Kafka has no state for a directory that works but is full (decision 0012). The directories travel in a tagged field,
which every flexible version allows and which a receiver that does not know the tag skips (KIP-482); its number is far
above those that Kafka assigns from 0 on.

    BrokerHeartbeat request         the directories of this broker that refuse writes
    BrokerHeartbeat response        empty: the controller understands the field
    BrokerRegistrationChange,       the directories that refuse writes from now on; empty for none
    RegisterBroker in a snapshot

The content of the field is the directories' ids, 16 bytes each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.protocol.message import UnknownTags

UNWRITABLE_TAG: Final = 8_193
_ID_BYTES: Final = 16
#: The size limit of the field; no broker has that many log directories.
_BYTES_MAX: Final = 4_096 * _ID_BYTES


def unwritable_tags(directories: Iterable[bytes]) -> UnknownTags:
    return ((UNWRITABLE_TAG, b"".join(directories)),)


def read_unwritable(tags: Iterable[tuple[int, bytes]]) -> tuple[bytes, ...] | None:
    """Returns the directories in the tagged field, or None if the field is absent or invalid."""
    for tag, data in tags:
        if tag == UNWRITABLE_TAG:
            if len(data) % _ID_BYTES or len(data) > _BYTES_MAX:
                return None
            return tuple(data[at : at + _ID_BYTES] for at in range(0, len(data), _ID_BYTES))
    return None
