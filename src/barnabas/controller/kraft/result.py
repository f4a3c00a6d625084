"""What a controller decision is: records to commit, the answer for then, and why.

A decision is pure: it looks at the image and returns a `Result`. Only the replay of its records changes anything, so a
decision that never commits leaves no trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from barnabas.metadata.versions import V_3_6_IV1
from barnabas.protocol.message import Message, UnknownTags
from barnabas.protocol.messages.records_metadata import BeginTransactionRecord, EndTransactionRecord

T = TypeVar("T")

#: A metadata record and the version it is written in.
Versioned = tuple[Message, int]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why the metadata changed: the event, who asked (a principal, a broker, the controller itself), what was seen."""

    event: str
    actor: str
    detail: str = ""
    #: (topic id, partition) -> what its leader sent along with its wish for an ISR, undecoded.
    seen: Mapping[tuple[bytes, int], UnknownTags] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    records: list[Versioned]
    response: T
    cause: Cause


#: More records than this may not fit into one batch of the log (Kafka's limit for a batch, too).
_BATCH_RECORDS_MAX: Final = 10_000


def all_or_nothing(records: Sequence[Versioned], metadata_version: int, name: str) -> Sequence[Versioned]:
    """The records of one decision, as a metadata transaction (KIP-868) where they are too many for one batch: a leader
    that dies between two batches leaves nothing of it, for the next one aborts what it finds open."""
    if len(records) <= _BATCH_RECORDS_MAX or metadata_version < V_3_6_IV1:
        return records
    return [(BeginTransactionRecord(name=name), 0), *records, (EndTransactionRecord(), 0)]
