"""The result of a controller decision: the records to commit, the response to send then, and the cause.

A decision is pure: it reads the image and returns a `Result`. Only replaying its records changes state, so a decision
that is never committed leaves no trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from barnabas.metadata.versions import V_3_6_IV1
from barnabas.protocol.message import Message, UnknownTags
from barnabas.protocol.messages.records_metadata import BeginTransactionRecord, EndTransactionRecord

T = TypeVar("T")

#: A metadata record and its version.
Versioned = tuple[Message, int]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why the metadata changed: the event, the actor (a principal, a broker, the controller), and details."""

    event: str
    actor: str
    detail: str = ""
    #: (topic id, partition) -> the tagged fields that its leader sent with its ISR request, undecoded.
    isr_reasons: Mapping[tuple[bytes, int], UnknownTags] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    records: list[Versioned]
    response: T
    cause: Cause


#: The most records that are sure to fit in one batch of the log (Kafka's limit for a batch, too).
_BATCH_RECORDS_MAX: Final = 10_000


def all_or_nothing(records: Sequence[Versioned], metadata_version: int, name: str) -> Sequence[Versioned]:
    """Returns the records of one decision, as a metadata transaction (KIP-868) if one batch cannot hold them: if the
    leader dies between two batches, the next one aborts the open transaction, and nothing takes effect."""
    if len(records) <= _BATCH_RECORDS_MAX or metadata_version < V_3_6_IV1:
        return records
    return [(BeginTransactionRecord(name=name), 0), *records, (EndTransactionRecord(), 0)]
