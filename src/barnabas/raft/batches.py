"""Batches of the metadata log, as bytes and as what listeners get.

What a newer release wrote is refused, not skipped: this one would lose it, and answer from half of the metadata.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from barnabas.common.errors import DecodeError, FatalFault
from barnabas.metadata.features import SUPPORTED_FEATURES
from barnabas.metadata.frame import decode_record, encode_record
from barnabas.metadata.image import METADATA_VERSION
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import FeatureLevelRecord
from barnabas.raft.commits import CommittedBatch
from barnabas.raft.control import decode_control
from barnabas.raft.voter_history import VoterHistory
from barnabas.records.batch import BatchHeader, Record, decode_batch

#: No batch gets longer than this (Kafka's default of internal.metadata.max.batch.size.in.bytes).
_MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
#: What a record's frame in its batch takes at most.
_RECORD_OVERHEAD_BYTES: Final = 24
_METADATA_VERSION_MAX: Final = next(f.max_version for f in SUPPORTED_FEATURES if f.name == METADATA_VERSION)


def read_batch(header: BatchHeader, view: memoryview, history: VoterHistory) -> CommittedBatch:
    """A batch of the log; what it says of voters goes into `history`. DecodeError, RecordsRejected, FatalFault."""
    records: list[Message] = []
    for record in decode_batch(view):
        if header.is_control:
            history.note(record.offset, decode_control(record.key, record.value))
        else:
            records.append(_decode(record))
    return CommittedBatch(
        header.base_offset,
        header.last_offset,
        header.partition_leader_epoch,
        header.max_timestamp,
        header.size_bytes,
        records,
    )


def _decode(record: Record) -> Message:
    try:
        if record.value is None:
            raise DecodeError("a metadata record without a value")
        message = decode_record(record.value)[0]
    except DecodeError as error:
        raise DecodeError(f"the record at offset {record.offset}: {error}") from error
    check_metadata_version(message)
    return message


def check_metadata_version(record: Message) -> None:
    """FatalFault for a metadata.version that this release cannot run."""
    if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
        level = record.feature_level
        if level > _METADATA_VERSION_MAX:
            raise FatalFault(
                f"the metadata log has metadata.version {level}, but this release supports up to "
                f"{_METADATA_VERSION_MAX}: run the release that set it, or a newer one"
            )


def chunks(records: Sequence[tuple[Message, int]]) -> Iterator[tuple[list[bytes], list[Message]]]:
    """Framed records, and the records themselves, in batches that are not too long."""
    values: list[bytes] = []
    messages: list[Message] = []
    size = 0
    for record, version in records:
        value = encode_record(record, version)
        if values and size + len(value) + _RECORD_OVERHEAD_BYTES > _MAX_BATCH_BYTES:
            yield values, messages
            values, messages, size = [], [], 0
        values.append(value)
        messages.append(record)
        size += len(value) + _RECORD_OVERHEAD_BYTES
    yield values, messages
