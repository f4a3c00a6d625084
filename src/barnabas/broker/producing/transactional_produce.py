"""Produce requests of transactions: what is to be asked of the coordinator before their batches may be appended.

    nothing open here yet   the coordinator is asked; the connection is held back until it has answered, so that a
                            producer's batches keep their order
    open already            appended at once

A batch that waited is appended only if no marker of its producer has come meanwhile (`storage.verification`). Where
each transaction has an epoch of its own that goes without saying: the marker that ends it is beyond its records, and
they are refused; one that comes meanwhile is the last transaction's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from barnabas.broker.peers.verification import Codes, Question
from barnabas.broker.requests.connection import Chunks, InFlight
from barnabas.broker.requests.context import Services
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import TopicPartition
from barnabas.coordinators.transactions.transitions import ProducerIdentity
from barnabas.protocol.produce_frame import Asked
from barnabas.records.header import HEADER, HEADER_BYTES, MAGIC_V2, TRANSACTIONAL_FLAG, BatchHeader
from barnabas.replication.manager import Appended, ReplicaManager
from barnabas.storage.verification import Guard, has_ongoing

#: From these versions of Produce on a client understands TRANSACTION_ABORTABLE, and leaves it to the broker to add.
_ABORTABLE_SINCE: Final = 11
_ADDS_SINCE: Final = 12

#: By topic as the request names it and partition, what is not to be appended and why.
Refused = Mapping[tuple[str | bytes, int], Appended]
#: Appends and answers.
Proceed = Callable[[Asked, Refused], Chunks | None]

_TOPIC = str | bytes


class _Batch(NamedTuple):
    """One that opens a transaction in its partition."""

    topic: _TOPIC
    partition: TopicPartition
    producer: ProducerIdentity
    guard: Guard


def produce(
    request: InFlight, services: Services, transactional_id: str, asked: Asked, proceed: Proceed
) -> Chunks | None:
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
    # The views are valid in this call only.
    kept: Asked = [(topic, [(index, memoryview(bytearray(data))) for index, data in rows]) for topic, rows in asked]

    def answered(codes: Codes) -> None:
        refused: dict[tuple[_TOPIC, int], Appended] = {}
        for batch in opening:
            code = codes[batch.partition]
            if code is ErrorCode.NONE and not adds and not batch.guard.holds:
                code = ErrorCode.INVALID_TXN_STATE
            if code is not ErrorCode.NONE:
                refused[batch.topic, batch.partition.partition] = _refusal(code, request.api_version)
        request.reply_with(lambda: proceed(kept, refused))
        request.connection.end_slow()

    request.connection.begin_slow()
    question = Question(transactional_id, producer, [batch.partition for batch in opening], adds)
    services.verifier.ask(question, answered)
    return None


def _opens(services: Services, topic: _TOPIC, index: int, data: memoryview) -> _Batch | None:
    """What is to be asked of a batch; None if it may go on to the log, which knows what else is wrong with it."""
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
    return _Batch(topic, TopicPartition(name, index), producer, Guard(producers, header.producer_id))


def name_of(replicas: ReplicaManager, topic: _TOPIC) -> str:
    """Of a topic as a request names it; empty for an id that is not known."""
    if isinstance(topic, str):
        return topic
    image = replicas.topic_of(topic)
    return "" if image is None else image.name


def _refusal(code: ErrorCode, api_version: int) -> Appended:
    """As a client of this version can take it: older ones know no more of the matter than to try again."""
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
