"""The events that a broker has not written to the journal yet, as readers ask for them.

While the leader of the journal does not answer, or an in-sync follower does not, no event can be committed, and the
reports about just this fault wait in the memory of the brokers. So a Fetch request of `__cluster_events` can have a
tagged field, and the response of a broker of Barnabas then has the events that wait there (decision 0028). Receivers
skip tags that they do not know (KIP-482): a broker of Apache Kafka answers as usual. The number is far above those that
Kafka allocates from 0.

    request     an empty field
    response    a record batch, with the records that will be written
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

WAITING_TAG: Final = 8_192


def waiting_batch(tags: Iterable[tuple[int, bytes]]) -> bytes:
    """Returns the batch in the tagged fields of a response; empty if there is none."""
    return next((bytes(data) for tag, data in tags if tag == WAITING_TAG), b"")


def asks_for_waiting(tags: Iterable[tuple[int, bytes]]) -> bool:
    """Returns whether the tagged fields are those of a request for the events that wait."""
    return any(tag == WAITING_TAG for tag, _ in tags)
