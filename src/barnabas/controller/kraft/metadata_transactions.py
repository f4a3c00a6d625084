"""Metadata transactions (KIP-868): decisions that are larger than one batch of the metadata log.

Kafka writes up to 10,000 records in one batch. A node decodes a batch in one turn of its event loop, so decisions of
more than `_BATCH_RECORDS_MAX` records are several batches here (`raft.metadata_batches`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.controller.requests.result import Versioned
from barnabas.metadata.versions import V_3_6_IV1
from barnabas.protocol.messages.records_metadata import BeginTransactionRecord, EndTransactionRecord

_BATCH_RECORDS_MAX: Final = 2_000


def all_or_nothing(records: Sequence[Versioned], metadata_version: int, name: str) -> Sequence[Versioned]:
    """Returns the records of one decision, as a metadata transaction (KIP-868) if one batch cannot hold them: if the
    leader dies between two batches, the next one aborts the open transaction, and nothing takes effect."""
    if len(records) <= _BATCH_RECORDS_MAX or metadata_version < V_3_6_IV1:
        return records
    return [(BeginTransactionRecord(name=name), 0), *records, (EndTransactionRecord(), 0)]
