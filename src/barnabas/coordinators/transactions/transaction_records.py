"""The records of `__transaction_state` as Kafka 4.1 writes them.

    key    int16 type 0 | TransactionLogKey (version 0)
    value  int16 version | TransactionLogValue       0 with `transaction.version` 0, else 1, which has tagged fields

A null value removes the transactional id.
"""

from __future__ import annotations

import struct
from typing import Final

from barnabas.common.errors import DecodeError
from barnabas.common.types import TopicPartition
from barnabas.coordinators.runtime import KeyValue
from barnabas.coordinators.transactions.state import TxnImage, TxnState
from barnabas.protocol.codec import decode, encode_into
from barnabas.protocol.messages.records_transaction import TransactionLogKey, TransactionLogValue

_INT16 = struct.Struct(">h")
_KEY: Final = 0
_VALUES: Final = range(2)
_FLEXIBLE_VALUE: Final = 1


def transaction_record(transactional_id: str, image: TxnImage, server_version: int) -> KeyValue:
    """Returns the record that stores a transaction's image in `__transaction_state`. `server_version` is the level of
    `transaction.version`.
    """
    partitions = None if image.state is TxnState.EMPTY else _grouped(image.partitions)
    version = min(server_version, _FLEXIBLE_VALUE)
    body = TransactionLogValue(
        producer_id=image.producer_id,
        producer_epoch=image.producer_epoch,
        transaction_timeout_ms=image.timeout_ms,
        transaction_status=image.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=image.updated_ms,
        transaction_start_timestamp_ms=image.start_ms,
    )
    if version >= _FLEXIBLE_VALUE:
        body.client_transaction_version = image.client_version
        body.previous_producer_id = image.previous_producer_id
        body.next_producer_id = image.next_producer_id
    value = bytearray(_INT16.pack(version))
    encode_into(body, version, value)
    return KeyValue(_key(transactional_id), bytes(value))


def transaction_tombstone(transactional_id: str) -> KeyValue:
    return KeyValue(_key(transactional_id), None)


def _key(transactional_id: str) -> bytes:
    key = bytearray(_INT16.pack(_KEY))
    encode_into(TransactionLogKey(transactional_id=transactional_id), 0, key)
    return bytes(key)


def _grouped(partitions: frozenset[TopicPartition]) -> list[TransactionLogValue.PartitionsSchema]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    return [
        TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in by_topic.items()
    ]


def parse_key(key: bytes) -> str | None:
    """Parses a key of `__transaction_state`. Returns the transactional id; None for other types of keys."""
    if len(key) < 2:
        raise DecodeError(f"a coordinator key has only {len(key)} bytes")
    if _INT16.unpack_from(key)[0] != _KEY:
        return None
    return decode(TransactionLogKey, 0, key, 2)[0].transactional_id


def parse_value(value: bytes) -> TxnImage:
    if len(value) < 2:
        raise DecodeError(f"a coordinator value has only {len(value)} bytes")
    version: int = _INT16.unpack_from(value)[0]
    if version not in _VALUES:
        raise DecodeError(f"a coordinator value has the unknown version {version}")
    body, _ = decode(TransactionLogValue, version, value, 2)
    try:
        state = TxnState(body.transaction_status)
    except ValueError:
        raise DecodeError(f"a transaction has the unknown state {body.transaction_status}") from None
    return TxnImage(
        producer_id=body.producer_id,
        producer_epoch=body.producer_epoch,
        timeout_ms=body.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, index)
            for topic in body.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        start_ms=body.transaction_start_timestamp_ms,
        updated_ms=body.transaction_last_update_timestamp_ms,
        client_version=body.client_transaction_version,
        previous_producer_id=body.previous_producer_id,
        next_producer_id=body.next_producer_id,
    )
