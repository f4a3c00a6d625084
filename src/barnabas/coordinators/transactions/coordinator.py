"""The transaction coordinator of one broker: finds the shard of a transactional id and serves its requests.

A transactional id is stored on partition `abs(hash(id)) % partitions of __transaction_state`; the leader of that
partition coordinates it. `shard.py` aborts transactions that have timed out, and removes transactional ids that have
expired. Every method with a callback calls it exactly once, during the call or later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from typing import NamedTuple, Protocol

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Host
from barnabas.common.types import TRANSACTION_STATE_TOPIC, TopicPartition
from barnabas.coordinators.loading import Loads
from barnabas.coordinators.partitioning import partition_for
from barnabas.coordinators.runtime import PartitionReader, PartitionWriter, ShardState
from barnabas.coordinators.transactions import transitions
from barnabas.coordinators.transactions.markers import MarkerSender, PartitionLeaders
from barnabas.coordinators.transactions.shard import TransactionShard
from barnabas.coordinators.transactions.state import Transaction, TxnState
from barnabas.coordinators.transactions.transaction_config import TransactionConfig
from barnabas.coordinators.transactions.transitions import ProducerIdentity

#: `answer(error, the producer's identity from now on)`.
Answer = Callable[[ErrorCode, ProducerIdentity], None]

NO_PRODUCER = ProducerIdentity(-1, -1)
#: How long a producer's own request waits for the markers of its previous transaction.
COMPLETION_WAIT_MS = 100


class ProducerIds(Protocol):
    """The port for new producer ids."""

    def take(self, done: Callable[[ErrorCode, int], None]) -> None:
        """Requests a producer id that no other producer gets; `done` can be called during this call."""


class Initialization(NamedTuple):
    """An InitProducerId request. `expected` is the identity that the producer had, if it sends one (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity | None
    answer: Answer


class Ending(NamedTuple):
    """An EndTxn request."""

    transactional_id: str
    producer: ProducerIdentity
    commit: bool
    client_version: int
    answer: Answer


class Filters(NamedTuple):
    """The filters of ListTransactions. An empty set matches everything, as does -1 for `open_for_ms`."""

    states: frozenset[TxnState] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    open_for_ms: int = -1
    #: A pattern that matches the whole transactional id.
    matches: Callable[[str], object] | None = None

    def match(self, transaction: Transaction, wall_ms: int) -> bool:
        image = transaction.image
        return (
            transaction.pending is not TxnState.DEAD
            and (not self.states or image.state in self.states)
            and (not self.producer_ids or image.producer_id in self.producer_ids)
            and (self.open_for_ms < 0 or wall_ms - image.start_ms > self.open_for_ms)
            and (self.matches is None or bool(self.matches(transaction.transactional_id)))
        )


class TransactionCoordinator:
    """The coordinator of all transactional ids whose partitions this broker leads."""

    def __init__(
        self,
        host: Host,
        config: TransactionConfig,
        writer: PartitionWriter,
        reader: PartitionReader,
        producer_ids: ProducerIds,
        leaders: PartitionLeaders,
        *,
        partition_count: Callable[[], int],
        server_version: Callable[[], int],
    ) -> None:
        """Creates a coordinator without partitions. `server_version` is the level of `transaction.version`."""
        self._host = host
        self._config = config
        self._writer = writer
        self._loads = Loads(host.timers, reader)
        self._producer_ids = producer_ids
        self._partition_count = partition_count
        self._server_version = server_version
        self._sender = MarkerSender(host, leaders)
        self._shards: dict[int, TransactionShard] = {}
        self._active = True

    @property
    def unreadable_records(self) -> int:
        """Returns the number of unreadable records that loads have skipped since startup."""
        return self._loads.skipped

    # -- life

    def on_partition_leader(self, partition: int, leader_epoch: int) -> None:
        """Loads a partition of `__transaction_state` that this broker leads. A new leader epoch discards the state
        and loads again, as another broker would: markers with the previous epoch can be refused."""
        self.on_partition_resigned(partition)
        shard = self._shards[partition] = TransactionShard(
            self._host,
            self._config,
            self._writer,
            self._loads,
            self._sender,
            self._server_version,
            TopicPartition(TRANSACTION_STATE_TOPIC, partition),
            leader_epoch,
        )
        shard.load()

    def on_partition_resigned(self, partition: int) -> None:
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.close()

    def shutdown(self) -> None:
        self._active = False
        for partition in tuple(self._shards):
            self.on_partition_resigned(partition)

    def partition_for(self, transactional_id: str) -> int:
        return partition_for(transactional_id, self._partition_count())

    def shards(self) -> Iterator[TransactionShard]:
        yield from self._shards.values()

    def _shard(self, transactional_id: str) -> TransactionShard:
        if not self._active:
            raise RequestFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        shard = self._shards.get(self.partition_for(transactional_id))
        if shard is None:
            raise RequestFailed(ErrorCode.NOT_COORDINATOR)
        shard.check_serving()
        return shard

    def _known(self, transactional_id: str) -> tuple[TransactionShard, Transaction]:
        """Returns the shard and the transaction of an id. Raises RequestFailed if another broker coordinates it, its
        shard is not ready, or it is unknown."""
        if not transactional_id:
            raise RequestFailed(ErrorCode.INVALID_REQUEST)
        shard = self._shard(transactional_id)
        transaction = shard.find(transactional_id)
        if transaction is None:
            raise RequestFailed(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return shard, transaction

    # -- producers

    def init_producer_id(self, request: Initialization) -> None:
        """Serves InitProducerId with a transactional id; answers when the new identity is committed."""
        if not 0 < request.timeout_ms <= self._config.timeout_max_ms:
            request.answer(ErrorCode.INVALID_TRANSACTION_TIMEOUT, NO_PRODUCER)
            return
        self._attempt(request.answer, lambda new_id: self._initialize(request, new_id))

    def _attempt(self, answer: Answer, attempt: Callable[[int | None], bool]) -> None:
        """Calls `attempt` without a new producer id; if it returns False, requests an id and calls it again. The
        request takes time, and the transaction may have changed by then."""
        try:
            if attempt(None):
                return
        except RequestFailed as failure:
            answer(failure.code, NO_PRODUCER)
            return

        def taken(error: ErrorCode, producer_id: int) -> None:
            try:
                if error is not ErrorCode.NONE:
                    raise RequestFailed(error)
                enough = attempt(producer_id)
            except RequestFailed as failure:
                answer(failure.code, NO_PRODUCER)
            else:
                assert enough, "a request needs at most one new producer id"

        self._producer_ids.take(taken)

    def _initialize(self, request: Initialization, new_id: int | None) -> bool:
        """Serves InitProducerId; returns False if a new producer id is needed."""
        shard = self._shard(request.transactional_id)
        transaction = shard.find(request.transactional_id)
        wall_ms = self._host.clock.wall_ms()
        if transaction is None:
            if new_id is None:
                return False
            fresh = transitions.fresh(new_id, request.timeout_ms, wall_ms)
            transaction = shard.find_or_create(request.transactional_id, fresh)
            new_id = None
        transitions.check_settled(transaction)
        image = transaction.image
        transitions.check_expected(image, request.expected)
        if image.state is TxnState.ONGOING:
            # The abort uses an epoch that no producer gets; the retry of this request gets the next one.
            shard.fence(
                transaction, lambda code: request.answer(code or ErrorCode.CONCURRENT_TRANSACTIONS, NO_PRODUCER)
            )
            return True
        rotates = transitions.needs_new_id(image, request.expected)
        if rotates and new_id is None:
            return False
        begun = transitions.initialized(
            image, request.expected, request.timeout_ms, wall_ms, new_id if rotates else None
        )
        shard.write(
            transaction, begun, _answering(request.answer, ProducerIdentity(begun.producer_id, begun.producer_epoch))
        )
        return True

    # -- partitions

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Set[TopicPartition],
        client_version: int,
        done: Callable[[ErrorCode], None],
        *,
        wait_ms: int = 0,
        is_allowed: Callable[[], bool] = lambda: True,
    ) -> None:
        """Adds partitions to the producer's transaction; they are committed to the log before the first record of a
        partition is written (G23). With `wait_ms`, a request that would be refused with CONCURRENT_TRANSACTIONS
        waits that long for the end of the previous transaction. After that `is_allowed` is called: if it returns False,
        nothing is added, and `done` is not called."""
        transaction = None
        try:
            shard, transaction = self._known(transactional_id)
            transitions.check_settled(transaction)
            wall_ms = self._host.clock.wall_ms()
            image = transitions.with_partitions(transaction.image, producer, partitions, client_version, wall_ms)
        except RequestFailed as failure:
            if failure.code is not ErrorCode.CONCURRENT_TRANSACTIONS or transaction is None or not wait_ms:
                done(failure.code)
                return

            def again() -> None:
                if is_allowed():
                    self.add_partitions(transactional_id, producer, partitions, client_version, done)

            shard.when_free(transaction, wait_ms, again)
            return
        if image is None:
            done(ErrorCode.NONE)
        else:
            shard.write(transaction, image, done)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Set[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns for each partition whether it is part of the producer's open transaction (KIP-890)."""
        try:
            _, transaction = self._known(transactional_id)
            transitions.verify(transaction.image, producer)
        except RequestFailed as failure:
            return dict.fromkeys(sorted(partitions), failure.code)
        known = transaction.image.partitions
        return {
            partition: ErrorCode.NONE if partition in known else ErrorCode.TRANSACTION_ABORTABLE
            for partition in sorted(partitions)
        }

    # -- ending

    def end_transaction(self, request: Ending) -> None:
        """Serves EndTxn. Answers when the outcome is committed, before the markers are written."""
        self._attempt(request.answer, lambda new_id: self._end(request, new_id))

    def _end(self, request: Ending, new_id: int | None) -> bool:
        shard, transaction = self._known(request.transactional_id)
        image, version = transaction.image, request.client_version
        if version < transitions.EPOCH_BUMP_SINCE:
            transitions.check_producer(image, request.producer)
        transitions.check_settled(transaction)
        rotates = transitions.end_needs_new_id(image, version)
        wall_ms = self._host.clock.wall_ms()
        decided = transitions.ended(
            image, request.producer, request.commit, version, wall_ms, new_id if rotates else None
        )
        if decided is None:
            request.answer(
                ErrorCode.NONE,
                _identity_in_response(ProducerIdentity(image.producer_id, image.producer_epoch), version),
            )
            return True
        if rotates and new_id is None:
            return False
        after = transitions.completed(decided, wall_ms)
        identity = _identity_in_response(ProducerIdentity(after.producer_id, after.producer_epoch), version)
        shard.write(transaction, decided, _answering(request.answer, identity))
        return True

    # -- administration

    def describe(self, transactional_id: str) -> Transaction:
        """Returns the transaction of an id. Raises RequestFailed if the id is unknown, or if another broker coordinates
        it.
        """
        if not transactional_id:
            raise RequestFailed(ErrorCode.INVALID_REQUEST)
        transaction = self._shard(transactional_id).find(transactional_id)
        if transaction is None or transaction.pending is TxnState.DEAD:
            raise RequestFailed(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return transaction

    def list(self, filters: Filters) -> Sequence[Transaction]:
        """Returns the transactions that pass `filters`. Raises RequestFailed while a shard is loading."""
        if not self._active:
            raise RequestFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        now_ms = self._host.clock.wall_ms()
        found: list[Transaction] = []
        for shard in self._shards.values():
            if shard.state is ShardState.LOADING:
                raise RequestFailed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            found += [transaction for transaction in shard.transactions() if filters.match(transaction, now_ms)]
        return found


def _identity_in_response(producer: ProducerIdentity, client_version: int) -> ProducerIdentity:
    """Returns the producer's identity after a transaction, for the response. Only version 2 of the protocol has it
    there.
    """
    return producer if client_version >= transitions.EPOCH_BUMP_SINCE else NO_PRODUCER


def _answering(answer: Answer, producer: ProducerIdentity) -> Callable[[ErrorCode], None]:
    return lambda code: answer(code, producer if code is ErrorCode.NONE else NO_PRODUCER)
