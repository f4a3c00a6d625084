"""The coordinator's check that partitions belong to a transaction, before its first records are appended (KIP-890).

    version 1 of the protocol   the producer has added them before: the coordinator verifies that
    version 2                   this request adds them

The codes that callers receive are those that a producer understands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.broker.peers.broker_channels import BrokerChannels
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Host
from barnabas.common.types import TRANSACTION_STATE_TOPIC, TopicPartition
from barnabas.coordinators.transactions.transitions import ProducerIdentity
from barnabas.protocol.message import Message
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

Codes = Mapping[TopicPartition, ErrorCode]

#: The coordinator's error codes, translated for producers.
_TRANSLATED: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
}


class Verification(NamedTuple):
    """A check of a transaction's partitions. With `adds` the coordinator adds them, as version 2 of the protocol
    requires.
    """

    transactional_id: str
    producer: ProducerIdentity
    partitions: Sequence[TopicPartition]
    adds: bool


class TransactionVerifier:
    """The verifier of one broker. `coordinator_partition` returns the partition of `__transaction_state` that stores a
    transactional id."""

    __slots__ = ("_brokers", "_config", "_coordinator_partition", "_host")

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        brokers: BrokerChannels,
        coordinator_partition: Callable[[str], int],
    ) -> None:
        self._host = host
        self._config = config
        self._brokers = brokers
        self._coordinator_partition = coordinator_partition

    @property
    def is_enabled(self) -> bool:
        """Returns whether version 1 of the transaction protocol is verified
        (`transaction.partition.verification.enable`); version 2 always is.
        """
        return self._config.bool_of("transaction.partition.verification.enable")

    def verify(self, verification: Verification, done: Callable[[Codes], None]) -> None:
        """Calls `done` once, never within this call. While the producer's previous transaction is being completed, an
        addition is retried for a short time, because a client would back off for longer."""
        until_ms = self._host.clock.now_ms() + self._config.int_of("add.partitions.to.txn.retry.backoff.max.ms")
        self._verify(verification, done, until_ms)

    def _verify(self, verification: Verification, done: Callable[[Codes], None], until_ms: int) -> None:
        def answered(response: Message | None) -> None:
            codes = _codes(verification, response)
            pause_ms = self._config.int_of("add.partitions.to.txn.retry.backoff.ms")
            concurrent = verification.adds and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            if concurrent and self._host.clock.now_ms() + pause_ms <= until_ms:
                self._host.timers.call_later(pause_ms, lambda: self._verify(verification, done, until_ms))
            else:
                done(codes)

        partition = TopicPartition(TRANSACTION_STATE_TOPIC, self._coordinator_partition(verification.transactional_id))
        coordinator = self._brokers.leader_of(partition)
        if coordinator is None or coordinator < 0:
            codes = dict.fromkeys(verification.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._host.timers.call_soon(lambda: done(codes))
        else:
            self._brokers.send(coordinator, _request(verification), answered)


def _request(verification: Verification) -> AddPartitionsToTxnRequest:
    by_topic: dict[str, list[int]] = {}
    for topic, index in verification.partitions:
        by_topic.setdefault(topic, []).append(index)
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=verification.transactional_id,
        producer_id=verification.producer.producer_id,
        producer_epoch=verification.producer.epoch,
        verify_only=not verification.adds,
        topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=indexes)
            for topic, indexes in by_topic.items()
        ],
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def _codes(verification: Verification, response: Message | None) -> Codes:
    if not isinstance(response, AddPartitionsToTxnResponse):
        return dict.fromkeys(verification.partitions, ErrorCode.NETWORK_EXCEPTION)
    if response.error_code != ErrorCode.NONE:
        code = ErrorCode(response.error_code)
        return dict.fromkeys(verification.partitions, _TRANSLATED.get(code, code))
    found = {
        TopicPartition(topic.name, row.partition_index): ErrorCode(row.partition_error_code)
        for transaction in response.results_by_transaction
        if transaction.transactional_id == verification.transactional_id
        for topic in transaction.topic_results
        for row in topic.results_by_partition
    }
    codes = {partition: found.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR) for partition in verification.partitions}
    return {partition: _TRANSLATED.get(code, code) for partition, code in codes.items()}
