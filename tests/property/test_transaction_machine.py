"""Transactions in any order of requests, time, failovers and late answers, against a model of the partitions.

The model knows the transaction of each record, and lets markers end what a log would let them end. At the end nothing
is held back, every transactional id gets a new producer, and then each transaction is committed in all its partitions
or in none: in all if the commit was answered, in none if it was never requested.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from tests.support.txn_world import A, Answered, B, Marker, TransactionWorld

from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.coordinators.transactions.coordinator import Filters
from barnabas.coordinators.transactions.transitions import ProducerIdentity

IDS = ("t", "u")
CLIENTS_MAX = 6
_FATAL = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


@dataclass(eq=False)
class Txn:
    client: Client
    requested: bool | None = None
    told: bool = False
    #: How it ended in each partition that has records of it; None while it is open.
    ends: dict[TopicPartition, bool | None] = field(default_factory=dict)


@dataclass(eq=False)
class Client:
    transactional_id: str
    version: int
    producer: ProducerIdentity | None = None
    txn: Txn | None = None
    added: set[TopicPartition] = field(default_factory=set)
    #: The open request, and its partition or outcome.
    waiting: tuple[str, Answered, TopicPartition | bool | None] | None = None


@dataclass
class Writer:
    """A producer in one partition's log."""

    epoch: int = -1
    open: list[Txn] = field(default_factory=list)


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = TransactionWorld()
        self.world.leaders.log_says = self.on_marker
        self.clients: list[Client] = []
        self.transactions: list[Txn] = []
        self.logs: dict[TopicPartition, dict[int, Writer]] = {A: {}, B: {}}
        self.coordinator_epoch = 0
        self.late: list[tuple[str, ProducerIdentity, bool]] = []

    # -- the partitions

    def on_marker(self, marker: Marker, version: int) -> ErrorCode:
        writer = self.logs[marker.partition].setdefault(marker.producer_id, Writer())
        if marker.epoch < writer.epoch or (version == 2 and writer.open and marker.epoch <= writer.epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        for txn in writer.open:
            txn.ends[marker.partition] = marker.commit
        writer.epoch, writer.open = marker.epoch, []
        return ErrorCode.NONE

    def append(self, client: Client, partition: TopicPartition) -> bool:
        assert client.producer is not None
        writer = self.logs[partition].setdefault(client.producer.producer_id, Writer())
        if client.producer.epoch < writer.epoch:
            return False
        if client.txn is None:
            client.txn = Txn(client)
            self.transactions.append(client.txn)
        writer.epoch = client.producer.epoch
        if client.txn not in writer.open:
            writer.open.append(client.txn)
        client.txn.ends[partition] = None
        return True

    # -- clients

    @precondition(lambda self: len(self.clients) < CLIENTS_MAX)
    @rule(transactional_id=st.sampled_from(IDS), version=st.sampled_from([0, 2]))
    def new_client(self, transactional_id: str, version: int) -> None:
        """Creates a client, sometimes in addition to one with the same id."""
        client = Client(transactional_id, version)
        self.clients.append(client)
        client.waiting = ("init", self.world.init(transactional_id, 20_000), None)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), partition=st.sampled_from([A, B]), choice=st.integers(0, 3))
    def act(self, data: st.DataObject, partition: TopicPartition, choice: int) -> None:
        client = data.draw(st.sampled_from(self.clients))
        if client.waiting is not None:
            self._hear(client)
        elif client.producer is None:
            client.waiting = ("init", self.world.init(client.transactional_id, 20_000), None)
        elif choice < 2 and (client.txn is None or client.txn.requested is None):
            self._write(client, partition)
        elif client.txn is not None:
            self._end(client, choice == 2)

    def _write(self, client: Client, partition: TopicPartition) -> None:
        assert client.producer is not None
        if client.version == 0 and partition in client.added:
            codes = self.world.coordinator.verify_partitions(client.transactional_id, client.producer, {partition})
            if codes[partition] is ErrorCode.NONE:
                if not self.append(client, partition):
                    self._forget(client)
            elif codes[partition] in _FATAL:
                self._forget(client)
            return
        added = self.world.add(
            client.producer, partition, version=client.version, transactional_id=client.transactional_id
        )
        client.waiting = ("add", added, partition)

    def _end(self, client: Client, commit: bool) -> None:
        assert client.producer is not None
        assert client.txn is not None
        if client.txn.requested is not None:
            commit = client.txn.requested  # the client repeats its request
        client.txn.requested = commit
        ended = self.world.end(
            client.producer, commit, version=client.version, transactional_id=client.transactional_id
        )
        if client.version == 2:
            self.late.append((client.transactional_id, client.producer, commit))
        client.waiting = ("end", ended, commit)

    def _hear(self, client: Client) -> None:
        assert client.waiting is not None
        kind, answered, about = client.waiting
        if answered.is_parked:
            return
        client.waiting = None
        code = answered.code
        if code in _FATAL:
            self._forget(client)
        elif code is ErrorCode.NONE and kind == "init":
            client.producer = answered.producer
        elif code is ErrorCode.NONE and kind == "add":
            assert isinstance(about, TopicPartition)
            client.added.add(about)
            if client.version == 2 and not self.append(client, about):
                self._forget(client)
        elif code is ErrorCode.NONE and kind == "end":
            assert client.txn is not None
            client.txn.told = True
            client.txn, client.added = None, set()
            if client.version == 2:
                client.producer = answered.producer

    def _forget(self, client: Client) -> None:
        """Removes a client that was fenced."""
        self.clients.remove(client)

    # -- what else happens

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def an_end_comes_late(self, data: st.DataObject) -> None:
        """Delivers a late end of version 2 of the protocol: version 1 cannot distinguish it from the next one."""
        transactional_id, producer, commit = data.draw(st.sampled_from(self.late))
        self.world.end(producer, commit, transactional_id=transactional_id)

    @rule(duration_ms=st.sampled_from([1, 30, 200, 5_000, 25_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.world.run(duration_ms)

    @rule(holding=st.booleans())
    def the_log_is_slow(self, holding: bool) -> None:
        self.world.log.holding = holding
        if not holding:
            self.world.log.commit()

    @rule(silent=st.booleans())
    def the_partitions_are_silent(self, silent: bool) -> None:
        self.world.leaders.silent = {1} if silent else set()

    @rule(lose=st.booleans())
    def the_coordinator_changes(self, lose: bool) -> None:
        self.world.fail_over(lose=lose)

    # -- the end

    def teardown(self) -> None:
        world = self.world
        self.the_partitions_are_silent(False)
        self.the_log_is_slow(False)
        world.run(10_000)
        for client in tuple(self.clients):
            if client.waiting is not None:
                self._hear(client)
        for one in world.coordinator.list(Filters()):
            for _ in range(20):
                if world.init(one.transactional_id).code is ErrorCode.NONE:
                    break
                world.run(1_000)
            else:
                raise AssertionError(f"{one.transactional_id} is never free: {one.image}")
        for txn in self.transactions:
            ends = set(txn.ends.values())
            assert None not in ends, f"never ended: {txn}"
            assert len(ends) == 1, f"half of it: {txn}"
            if txn.told:
                assert ends == {txn.requested}, f"not as it was told: {txn}"
            elif not txn.requested:
                assert ends == {False}, f"nobody asked for that: {txn}"


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
