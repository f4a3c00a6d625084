"""Metadata transactions (KIP-868): decisions that are larger than one batch of the metadata log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.controller.requests.result import Versioned
from barnabas.metadata.versions import V_3_6_IV1
from barnabas.protocol.messages.records_metadata import BeginTransactionRecord, EndTransactionRecord

#: The most records that are sure to fit in one batch of the log (Kafka's limit for a batch, too).
_BATCH_RECORDS_MAX: Final = 10_000


def all_or_nothing(records: Sequence[Versioned], metadata_version: int, name: str) -> Sequence[Versioned]:
    """Returns the records of one decision, as a metadata transaction (KIP-868) if one batch cannot hold them: if the
    leader dies between two batches, the next one aborts the open transaction, and nothing takes effect."""
    if len(records) <= _BATCH_RECORDS_MAX or metadata_version < V_3_6_IV1:
        return records
    return [(BeginTransactionRecord(name=name), 0), *records, (EndTransactionRecord(), 0)]
