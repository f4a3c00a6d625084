"""Produce requests in transactions: the verification to the coordinator before their batches can be appended.

    no transaction open here yet   the coordinator is asked; the connection is held back until it has responded, so that
                                   a producer's batches keep their order
    already open                   appended immediately

A batch that waited is appended only if no marker of its producer was written meanwhile (`storage.verification`). If
each transaction has its own epoch (version 2), that check is not needed: the marker that ends a transaction has a
higher epoch than its records, which are then refused; a marker that arrives meanwhile belongs to the previous one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from barnabas.broker.peers.verification import Codes, Verification
from barnabas.broker.requests.context import Services
from barnabas.broker.requests.in_flight import Chunks, InFlight
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import TopicPartition
from barnabas.coordinators.transactions.transitions import ProducerIdentity
from barnabas.protocol.produce_frame import ProduceData
from barnabas.records.header import HEADER, HEADER_BYTES, MAGIC_V2, TRANSACTIONAL_FLAG, BatchHeader
from barnabas.replication.manager import Appended, ReplicaManager
from barnabas.storage.verification import MarkerGuard, has_ongoing

#: The versions of Produce from which a client understands TRANSACTION_ABORTABLE, and from which the broker adds
#: partitions.
_ABORTABLE_SINCE: Final = 11
_ADDS_SINCE: Final = 12

#: By topic as the request names it and partition: the batches that are refused, with the error.
Refused = Mapping[tuple[str | bytes, int], Appended]
#: Appends the batches that are not refused, and returns the response.
Proceed = Callable[[ProduceData, Refused], Chunks | None]

_TOPIC = str | bytes


class _Batch(NamedTuple):
    """A batch that opens a transaction in its partition."""

    topic: _TOPIC
    partition: TopicPartition
    producer: ProducerIdentity
    guard: MarkerGuard


def produce(
    request: InFlight, services: Services, transactional_id: str, asked: ProduceData, proceed: Proceed
) -> Chunks | None:
    """Verifies the batches of a transaction with its coordinator if needed, then calls `proceed` with all batches.
    Returns the response, or None if it is sent later."""
    adds = request.api_version >= _ADDS_SINCE
    opening = []
    if adds or services.verifier.is_enabled:
        opening = [
            batch for topic, rows in asked for index, data in rows if (batch := _opens(services, topic, index, data))
        ]
    if not opening:
        return proceed(asked, {})
    producer = opening[0].producer
    if any(batch.producer != producer for batch in opening):
        mixed = Appended(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return proceed(asked, {(batch.topic, batch.partition.partition): mixed for batch in opening})
    # The views are valid only during this call.
    kept: ProduceData = [
        (topic, [(index, memoryview(bytearray(data))) for index, data in rows]) for topic, rows in asked
    ]

    def answered(codes: Codes) -> None:
        refused: dict[tuple[_TOPIC, int], Appended] = {}
        for batch in opening:
            code = codes[batch.partition]
            if code is ErrorCode.NONE and not adds and not batch.guard.holds:
                code = ErrorCode.INVALID_TXN_STATE
            if code is not ErrorCode.NONE:
                refused[batch.topic, batch.partition.partition] = _refusal(code, request.api_version)
        request.reply_with(lambda: proceed(kept, refused))
        request.connection.end_exclusive()

    request.connection.begin_exclusive()
    verification = Verification(transactional_id, producer, [batch.partition for batch in opening], adds)
    services.verifier.verify(verification, answered)
    return None


def _opens(services: Services, topic: _TOPIC, index: int, data: memoryview) -> _Batch | None:
    """Returns what to verify for a batch; None if it can be passed to the log, which does all other checks."""
    if len(data) < HEADER_BYTES:
        return None
    header = BatchHeader._make(HEADER.unpack_from(data))
    if header.magic != MAGIC_V2 or not header.attributes & TRANSACTIONAL_FLAG:
        return None
    name = name_of(services.replicas, topic)
    try:
        producers = services.replicas.leader(name, index).log.producers
    except RequestFailed:
        return None
    if has_ongoing(producers, header.producer_id, header.producer_epoch):
        return None
    producer = ProducerIdentity(header.producer_id, header.producer_epoch)
    return _Batch(topic, TopicPartition(name, index), producer, MarkerGuard(producers, header.producer_id))


def name_of(replicas: ReplicaManager, topic: _TOPIC) -> str:
    """Returns the name of a topic that a request names; empty for an unknown id."""
    if isinstance(topic, str):
        return topic
    image = replicas.topic_of(topic)
    return "" if image is None else image.name


def _refusal(code: ErrorCode, api_version: int) -> Appended:
    """Returns the error in a form that a client of this version handles: older ones can only retry."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < _ABORTABLE_SINCE:
        code = ErrorCode.INVALID_TXN_STATE
    retriable = code in _UNREACHABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and api_version < _ADDS_SINCE)
    if retriable:
        text = f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}"
        return Appended(ErrorCode.NOT_ENOUGH_REPLICAS, message=text)
    if code is ErrorCode.INVALID_TXN_STATE:
        return Appended(code, message="Partition was not added to the transaction")
    return Appended(code)


_UNREACHABLE: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
