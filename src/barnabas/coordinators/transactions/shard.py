"""A partition of `__transaction_state` that this broker coordinates: its transactions, their records, their expiry.

    write     a record leads to the next image; while it is in flight, other requests get CONCURRENT_TRANSACTIONS
    decided   a Prepare record is committed: the markers are sent, then the Complete record is written
    loading   decided transactions are continued, so that the crash of a coordinator leaves none half ended (G23)

An image changes only when its record is committed. Waiting requests are answered then, or with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from barnabas.common.continuations import later
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Host
from barnabas.common.types import TopicPartition
from barnabas.coordinators.deadlines import Deadline, Deadlines
from barnabas.coordinators.loading import Loads, LoadSink, LogLoader
from barnabas.coordinators.runtime import (
    PartitionWriter,
    ShardLifecycle,
    ShardLog,
    ShardState,
    client_error,
)
from barnabas.coordinators.transactions.markers import MarkerDelivery, MarkerSender
from barnabas.coordinators.transactions.state import Transaction, TxnImage, TxnState
from barnabas.coordinators.transactions.transaction_config import TransactionConfig
from barnabas.coordinators.transactions.transaction_records import (
    parse_key,
    parse_value,
    transaction_record,
    transaction_tombstone,
)
from barnabas.coordinators.transactions.transitions import completed, fenced

#: The number of transactions processed in one turn of the loop, and tombstones in one batch.
_SLICE: Final = 256
#: The delay before a Complete record that could not be written is written again.
_RETRY_MS: Final = 100

Done = Callable[[ErrorCode], None]


class Waiter:
    """A callback with a deadline; it is called once, by `done` or at the deadline."""

    __slots__ = ("_callback", "deadline")

    def __init__(self, deadline: Deadline, callback: Callable[[], None]) -> None:
        self.deadline = deadline
        self._callback: Callable[[], None] | None = callback

    def done(self) -> None:
        self.deadline.cancel()
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class TransactionShard(LoadSink):
    """The transactions of one partition, and the sink that its log is replayed into; the module docstring describes the
    steps.
    """

    __slots__ = (
        "_abort",
        "_config",
        "_deadlines",
        "_deliveries",
        "_expiry",
        "_host",
        "_lifecycle",
        "_loader",
        "_log",
        "_ongoing",
        "_sender",
        "_server_version",
        "_transactions",
        "_waiting",
        "leader_epoch",
        "partition",
    )

    def __init__(
        self,
        host: Host,
        config: TransactionConfig,
        writer: PartitionWriter,
        loads: Loads,
        sender: MarkerSender,
        server_version: Callable[[], int],
        partition: TopicPartition,
        leader_epoch: int,
    ) -> None:
        """Creates a shard that is not loaded. `server_version` is the level of `transaction.version`; markers
        contain `leader_epoch` as the coordinator epoch."""
        self.partition = partition
        self.leader_epoch = leader_epoch
        self._host = host
        self._config = config
        self._sender = sender
        self._server_version = server_version
        self._lifecycle = ShardLifecycle()
        self._deadlines = Deadlines(host.clock, host.timers)
        self._log = ShardLog(
            host, writer, partition, self._deadlines, timeout_ms=config.write_timeout_ms, base_sequence=-1
        )
        self._loader = LogLoader(host, loads, partition, self)
        self._transactions: dict[str, Transaction] = {}
        #: The transactions of `_transactions` that are open, and can time out.
        self._ongoing: dict[str, Transaction] = {}
        self._deliveries: dict[str, MarkerDelivery] = {}
        #: Requests that are processed again when the transaction of an id is free.
        self._waiting: dict[str, list[Waiter]] = {}
        self._abort = self._deadlines.new()
        self._expiry = self._deadlines.new()

    @property
    def state(self) -> ShardState:
        return self._lifecycle.state

    def check_serving(self) -> None:
        """Raises RequestFailed unless requests can be served."""
        self._lifecycle.check_serving()

    # -- transactions

    def transactions(self) -> Iterable[Transaction]:
        return self._transactions.values()

    def find(self, transactional_id: str) -> Transaction | None:
        return self._transactions.get(transactional_id)

    def find_or_create(self, transactional_id: str, image: TxnImage) -> Transaction:
        """Returns the transaction of an id, created with `image` if it is unknown. The id stays known although
        nothing is written yet."""
        return self._transactions.setdefault(transactional_id, Transaction(transactional_id, image))

    # -- writing

    def write(self, transaction: Transaction, image: TxnImage, done: Done | None = None) -> None:
        """Writes the record of `image`, which becomes the committed image when the record is committed. `done` is
        called once: with an error, or with NONE after the commit, when the next step has begun.
        """
        assert transaction.pending is None, "one record of a transaction at a time"
        self._send(transaction, image, done, lambda code: self._settled(transaction, image, code))

    def _send(self, transaction: Transaction, image: TxnImage, done: Done | None, settled: Done) -> None:
        record = transaction_record(transaction.transactional_id, image, self._server_version())
        batch = self._log.batch_of([record])
        transaction.pending = image.state
        answered = None if done is None else lambda code: done(client_error(code))
        self._log.append_batch(batch, answered, settled)

    def _settled(self, transaction: Transaction, image: TxnImage, code: ErrorCode) -> None:
        transaction.pending = None
        if code is ErrorCode.NONE and self.state is ShardState.ACTIVE:
            self._take(transaction, image)
        if not transaction.image.is_prepared:
            self._wake(transaction.transactional_id)

    def when_free(self, transaction: Transaction, wait_ms: int, callback: Callable[[], None]) -> None:
        """Calls back when no record of the transaction is in flight and its previous transaction is complete, after
        `wait_ms`, or when this shard is closed; never during this call. A client that must retry would wait
        longer."""
        waiter = Waiter(self._deadlines.new(), later(callback))
        self._waiting.setdefault(transaction.transactional_id, []).append(waiter)
        waiter.deadline.schedule(wait_ms, waiter.done)

    def _wake(self, transactional_id: str) -> None:
        for waiter in self._waiting.pop(transactional_id, ()):
            self._host.timers.call_soon(waiter.done)

    def _take(self, transaction: Transaction, image: TxnImage) -> None:
        """Replaces the committed image by that of the last record, which was just committed or found by the load."""
        transaction.image = image
        if image.state is TxnState.ONGOING:
            self._ongoing[transaction.transactional_id] = transaction
        else:
            self._ongoing.pop(transaction.transactional_id, None)
        if image.is_prepared:
            self._deliver(transaction)

    # -- completing

    def _deliver(self, transaction: Transaction) -> None:
        key = transaction.transactional_id
        assert key not in self._deliveries, "a transaction is decided once"

        def on_delivered() -> None:
            del self._deliveries[key]
            self._complete(transaction)

        def on_fenced() -> None:
            del self._deliveries[key]
            self._host.faults.report(
                f"{self.partition} has a newer coordinator, which writes the transaction markers of {key}"
            )

        delivery = MarkerDelivery(transaction.image, self.leader_epoch, self._deadlines, on_delivered, on_fenced)
        self._deliveries[key] = delivery
        self._sender.deliver(delivery)

    def _complete(self, transaction: Transaction) -> None:
        if self.state is not ShardState.ACTIVE:
            return
        assert transaction.image.is_prepared, "only a decided transaction has markers"
        transaction.pending = None
        image = completed(transaction.image, self._host.clock.wall_ms())

        def settled(code: ErrorCode) -> None:
            self._settled(transaction, image, code)
            if code is not ErrorCode.NONE and self.state is ShardState.ACTIVE:
                # The producer waits for this write, which only this retry repeats.
                self._deadlines.new().schedule(_RETRY_MS, lambda: self._complete(transaction))

        self._send(transaction, image, None, settled)

    # -- loading

    def load(self) -> None:
        self._loader.start()

    def replay(self, key: bytes, value: bytes) -> None:
        transactional_id = parse_key(key)
        if transactional_id is None:
            return
        image = parse_value(value)
        if image.state is not TxnState.DEAD:
            self._transactions[transactional_id] = Transaction(transactional_id, image)

    def on_loaded(self) -> None:
        """Begins to serve, continues open and decided transactions, and schedules timeouts and expiry."""
        self._lifecycle.move(ShardState.ACTIVE)
        self._resume_slice(tuple(self._transactions.values()), 0)
        self._abort.schedule(self._config.abort_interval_ms, self._abort_timed_out)
        self._expiry.schedule(self._config.expiry_interval_ms, self._begin_expiry)

    def _resume_slice(self, transactions: tuple[Transaction, ...], start: int) -> None:
        """Registers open transactions for their timeout and delivers the markers of decided ones; a part in each
        turn of the loop."""
        if self.state is not ShardState.ACTIVE:
            return
        for transaction in transactions[start : start + _SLICE]:
            transactional_id = transaction.transactional_id
            has_moved_on = transaction.pending is not None or transactional_id in self._deliveries
            if not has_moved_on and self._transactions.get(transactional_id) is transaction:
                self._take(transaction, transaction.image)
        if start + _SLICE < len(transactions):
            self._host.timers.call_soon(lambda: self._resume_slice(transactions, start + _SLICE))

    def on_load_failed(self, error: Exception) -> None:
        self._lifecycle.move(ShardState.FAILED)
        self._host.faults.report(f"cannot load {self.partition}", error)

    def close(self) -> None:
        """Ends all work after a loss of leadership: waiting requests are redirected to the new coordinator, which
        continues the decided transactions."""
        self._lifecycle.move(ShardState.CLOSED)
        self._loader.stop()
        self._log.close()
        for delivery in self._deliveries.values():
            delivery.cancel()
        self._deliveries.clear()
        for transactional_id in tuple(self._waiting):
            self._wake(transactional_id)
        self._transactions.clear()
        self._ongoing.clear()
        self._deadlines.close()

    # -- timeouts and expiry

    def _abort_timed_out(self) -> None:
        self._abort.schedule(self._config.abort_interval_ms, self._abort_timed_out)
        now_ms = self._host.clock.wall_ms()
        for transaction in tuple(self._ongoing.values()):
            if transaction.pending is None and transaction.image.is_timed_out(now_ms):
                self.fence(transaction)

    def fence(self, transaction: Transaction, done: Done | None = None) -> None:
        """Aborts an open transaction and fences its producer."""
        image = fenced(transaction.image, self._server_version(), self._host.clock.wall_ms())
        self.write(transaction, image, done)

    def _begin_expiry(self) -> None:
        self._expiry.schedule(self._config.expiry_interval_ms, self._begin_expiry)
        self._expire_slice(tuple(self._transactions.values()), 0)

    def _expire_slice(self, transactions: tuple[Transaction, ...], start: int) -> None:
        if self.state is not ShardState.ACTIVE:
            return
        before_ms = self._host.clock.wall_ms() - self._config.id_expiration_ms
        expired = [
            transaction
            for transaction in transactions[start : start + _SLICE]
            if transaction.pending is None
            and transaction.image.is_finished
            and transaction.image.updated_ms <= before_ms
        ]
        if expired:
            self._forget(expired)
        if start + _SLICE < len(transactions):
            self._host.timers.call_soon(lambda: self._expire_slice(transactions, start + _SLICE))

    def _forget(self, expired: list[Transaction]) -> None:
        batch = self._log.batch_of([transaction_tombstone(one.transactional_id) for one in expired])
        for transaction in expired:
            transaction.pending = TxnState.DEAD

        def settled(code: ErrorCode) -> None:
            for transaction in expired:
                transaction.pending = None
                if code is ErrorCode.NONE:
                    self._transactions.pop(transaction.transactional_id, None)

        self._log.append_batch(batch, None, settled)
