"""Produce requests in transactions: the verification by the coordinator before their batches can be appended.

    no transaction open here yet   the coordinator is asked; the connection is held back until it has responded, so that
                                   a producer's batches keep their order
    already open                   appended immediately

A batch that waited is appended only if no marker of its producer was written meanwhile (`storage.marker_guard`). If
each transaction has its own epoch (version 2), that check is not needed: the marker that ends a transaction has a
higher epoch than its records, which are then refused; a marker that arrives meanwhile belongs to the previous one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.broker.peers.partition_verification import Codes, Verification
from barnabas.broker.producing.partition_append import PartitionAppend, TopicAppends, name_of
from barnabas.broker.requests.context import Services
from barnabas.broker.requests.in_flight import Chunks, InFlight
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import TopicPartition
from barnabas.coordinators.transactions.transitions import ProducerIdentity
from barnabas.records.header import HEADER, HEADER_BYTES, MAGIC_V2, TRANSACTIONAL_FLAG, BatchHeader
from barnabas.replication.replica_manager import Appended
from barnabas.storage.marker_guard import MarkerGuard, has_ongoing

#: The versions of Produce from which a client understands TRANSACTION_ABORTABLE, and from which the broker adds
#: partitions.
_ABORTABLE_SINCE: Final = 11
_ADDS_SINCE: Final = 12

#: A function that appends the batches without a result, and returns the response.
Proceed = Callable[[], Chunks | None]


class _Opening(NamedTuple):
    """A batch that opens a transaction in its partition."""

    append: PartitionAppend
    partition: TopicPartition
    producer: ProducerIdentity
    guard: MarkerGuard


def verify(
    request: InFlight, services: Services, transactional_id: str, topics: TopicAppends, proceed: Proceed
) -> Chunks | None:
    """Verifies the batches of a transaction with its coordinator if needed, refuses those that are not part of it, then
    calls `proceed`. Returns the response, or None if it is sent later."""
    adds = request.api_version >= _ADDS_SINCE
    openings = []
    if adds or services.verifier.is_enabled:
        openings = [opening for _, appends in topics for append in appends if (opening := _opening(services, append))]
    if not openings:
        return proceed()
    producer = openings[0].producer
    if any(opening.producer != producer for opening in openings):
        for opening in openings:
            opening.append.finish(Appended(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        return proceed()
    # The views are valid only during this call.
    for _, appends in topics:
        for append in appends:
            append.data = memoryview(bytearray(append.data))

    def answered(codes: Codes) -> None:
        for opening in openings:
            code = codes[opening.partition]
            if code is ErrorCode.NONE and not adds and not opening.guard.holds:
                code = ErrorCode.INVALID_TXN_STATE
            if code is not ErrorCode.NONE:
                opening.append.finish(_refusal(code, request.api_version))
        request.reply_with(proceed)
        request.connection.end_exclusive()

    request.connection.begin_exclusive()
    verification = Verification(transactional_id, producer, [opening.partition for opening in openings], adds)
    services.verifier.verify(verification, answered)
    return None


def _opening(services: Services, append: PartitionAppend) -> _Opening | None:
    """Returns the partition to verify for a batch, or None if the batch can be passed to the log, which does all other
    checks.
    """
    if len(append.data) < HEADER_BYTES:
        return None
    header = BatchHeader._make(HEADER.unpack_from(append.data))
    if header.magic != MAGIC_V2 or not header.attributes & TRANSACTIONAL_FLAG:
        return None
    name = name_of(services.replicas, append.topic)
    try:
        producers = services.replicas.leader(name, append.index).log.producers
    except RequestFailed:
        return None
    if has_ongoing(producers, header.producer_id, header.producer_epoch):
        return None
    producer = ProducerIdentity(header.producer_id, header.producer_epoch)
    return _Opening(append, TopicPartition(name, append.index), producer, MarkerGuard(producers, header.producer_id))


def _refusal(code: ErrorCode, api_version: int) -> Appended:
    """Returns the error in a form that a client of this version can handle: older clients can only retry."""
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
