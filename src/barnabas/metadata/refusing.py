"""Log directories that take no writes for now, as brokers tell it and as the metadata keep it (decision 0012).

Kafka has no word for a directory that is in order and full. It travels as a tagged field, which every flexible version
allows and whoever does not know the tag skips (KIP-482); the number is far beyond those that Kafka gives out from 0.

    BrokerHeartbeat request         the directories of this broker that refuse writes
    BrokerHeartbeat response        empty: the controller has understood
    BrokerRegistrationChange,       the directories that refuse writes from now on; empty for none
    RegisterBroker in a snapshot

    the directories' ids, 16 bytes each
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.protocol.message import UnknownTags

REFUSING_TAG: Final = 8_193
_ID_BYTES: Final = 16
#: No broker has more log directories.
_BYTES_MAX: Final = 4_096 * _ID_BYTES


def refusing_tags(directories: Iterable[bytes]) -> UnknownTags:
    return ((REFUSING_TAG, b"".join(directories)),)


def read_refusing(tags: Iterable[tuple[int, bytes]]) -> tuple[bytes, ...] | None:
    """None where the field is not there, or is none that can be read."""
    for tag, data in tags:
        if tag == REFUSING_TAG:
            if len(data) % _ID_BYTES or len(data) > _BYTES_MAX:
                return None
            return tuple(data[at : at + _ID_BYTES] for at in range(0, len(data), _ID_BYTES))
    return None
