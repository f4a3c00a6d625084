"""Domain terms as types. Plain ints and strings at run time; `Uuid` is 16 raw bytes as on the wire."""

from __future__ import annotations

import base64
import re
from typing import Final, NamedTuple, NewType

BrokerId = NewType("BrokerId", int)
Uuid = NewType("Uuid", bytes)

ZERO_UUID = Uuid(bytes(16))
#: The id of `__cluster_metadata` (KIP-595), fixed by Kafka.
METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
METADATA_TOPIC = "__cluster_metadata"
GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
#: The journal: every change of the cluster with its cause.
EVENTS_TOPIC = "__cluster_events"
#: The client id whose requests can write to internal topics, as in Kafka; the journal of another broker uses it.
ADMIN_CLIENT_ID = "__admin_client"
#: Topics that only the cluster itself can write (Kafka's `Topic.INTERNAL_TOPICS`, and the journal).
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, "__share_group_state", EVENTS_TOPIC})
_UUID_TEXT: Final = re.compile(r"[A-Za-z0-9_-]{22}(?:==)?")


class TopicPartition(NamedTuple):
    """A partition by name, printed as its directory is named: `orders-3`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_to_text(value: bytes) -> str:
    """Returns URL-safe base64 without padding, as Kafka prints its `Uuid`."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """Returns the 16 bytes of Kafka's 22-character form, with or without padding. Raises ValueError for anything else,
    as Java's `Uuid.fromString` does.
    """
    if not _UUID_TEXT.fullmatch(text):
        raise ValueError(f"not a Kafka uuid: {text!r}, 22 letters of URL-safe base64 are needed")
    return Uuid(base64.urlsafe_b64decode(text[:22] + "=="))
