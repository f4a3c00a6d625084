"""Batches of the metadata log: encodes and decodes them, and builds the form that listeners get.

Records of a newer release are refused, not skipped: without them this node would answer from incomplete metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.common.errors import DecodeError, FatalFault
from barnabas.common.portions import PARTITIONS_IN_PORTION, Portions
from barnabas.metadata.features import SUPPORTED_FEATURES
from barnabas.metadata.frame import decode_into, encode_record
from barnabas.metadata.image import METADATA_VERSION
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import BeginTransactionRecord, FeatureLevelRecord
from barnabas.raft.commits import CommittedBatch
from barnabas.raft.control import decode_control
from barnabas.raft.voter_history import VoterHistory
from barnabas.records.batch import BatchHeader, Record, decode_batch, decode_values, encode_body
from barnabas.records.header import HEADER_BYTES
from barnabas.records.record import write_record

#: The largest size of a batch (Kafka's default of internal.metadata.max.batch.size.in.bytes).
_MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
_MAX_BODY_BYTES: Final = _MAX_BATCH_BYTES - HEADER_BYTES
#: The largest overhead of one record in its batch.
_RECORD_OVERHEAD_BYTES: Final = 24
_METADATA_VERSION_MAX: Final = next(f.max_version for f in SUPPORTED_FEATURES if f.name == METADATA_VERSION)


def read_batch(header: BatchHeader, view: memoryview, history: VoterHistory) -> CommittedBatch:
    """Decodes a batch of the log, and adds its voters and kraft.version to `history`.

    Raises DecodeError, RecordsRejected or FatalFault.
    """
    records: list[Message] = []
    if header.is_control:
        for record in decode_batch(view):
            history.note(record.offset, decode_control(record.key, record.value))
    else:
        records = _decoded(header.base_offset, decode_values(view))
    return CommittedBatch(
        header.base_offset,
        header.last_offset,
        header.partition_leader_epoch,
        header.max_timestamp,
        header.size_bytes,
        records,
    )


def _decoded(base_offset: int, values: Sequence[bytes | None]) -> list[Message]:
    records: list[Message] = []
    try:
        decode_into(records, values)
    except DecodeError as error:
        _check_all(records)  # A newer metadata.version explains a record that this release does not know.
        raise DecodeError(f"the record at offset {base_offset + len(records)}: {error}") from error
    _check_all(records)
    return records


def _check_all(records: Sequence[Message]) -> None:
    for record in records:
        if type(record) is FeatureLevelRecord:
            check_metadata_version(record)


def check_metadata_version(record: Message) -> None:
    """Raises FatalFault for a metadata.version that this release cannot run."""
    if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
        level = record.feature_level
        if level > _METADATA_VERSION_MAX:
            raise FatalFault(
                f"the metadata log has metadata.version {level}, but this release supports up to "
                f"{_METADATA_VERSION_MAX}: run the release that set it, or a newer one"
            )


class BatchBody(NamedTuple):
    """The encoded records of a batch that has no offset yet, and the records themselves."""

    data: bytearray
    records: list[Message]


def encode_in_portions(records: Sequence[tuple[Message, int]]) -> Portions[list[BatchBody]]:
    """Encodes the batches of a proposal (`RaftNode.propose`), up to `PARTITIONS_IN_PORTION` records at a time. The size
    of a batch is limited, and so is the number of its records if a transaction holds the batches together."""
    is_transaction = bool(records) and isinstance(records[0][0], BeginTransactionRecord)
    body = BatchBody(bytearray(), [])
    bodies = [body]
    for place, (record, version) in enumerate(records):
        is_next_portion = place and not place % PARTITIONS_IN_PORTION
        if is_next_portion:
            yield
        value = encode_record(record, version)
        is_full = len(body.data) + len(value) + _RECORD_OVERHEAD_BYTES > _MAX_BODY_BYTES
        if body.records and (is_full or (is_transaction and is_next_portion)):
            body = BatchBody(bytearray(), [])
            bodies.append(body)
        write_record(body.data, Record(0, 0, None, value), len(body.records), 0)
        body.records.append(record)
    return bodies


def encode_at(body: BatchBody, base_offset: int, epoch: int, wall_ms: int) -> bytearray:
    """Returns the batch at its place in the log."""
    count = len(body.records)
    return encode_body(body.data, count, wall_ms, wall_ms, base_offset=base_offset, leader_epoch=epoch)
