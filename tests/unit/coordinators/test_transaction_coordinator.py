"""The transaction coordinator over a log in memory: what is durable when, what waits, and what a failover resumes."""

from __future__ import annotations

import pytest
from tests.support.txn_world import A, B, Marker, TransactionWorld

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import TopicPartition
from barnabas.coordinators.loading import LOAD_SLICE_RECORDS
from barnabas.coordinators.patterns import matcher
from barnabas.coordinators.runtime import ShardState
from barnabas.coordinators.transactions.coordinator import Filters
from barnabas.coordinators.transactions.state import EPOCH_MAX, TxnState
from barnabas.coordinators.transactions.transaction_config import TransactionConfig
from barnabas.coordinators.transactions.transitions import ProducerIdentity

S = TxnState
HOUR_MS = 3_600_000


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


def states(world: TransactionWorld) -> list[TxnState]:
    return [image.state for _, image in world.written() if image is not None]


# -- a transaction from begin to end


@pytest.mark.parametrize("version, bump", [(0, 0), (2, 1)])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_decided_announced_and_completed(
    world: TransactionWorld, version: int, bump: int, commit: bool
) -> None:
    producer = world.begin()
    assert producer == (1000, 0)
    assert world.add(producer, A, B, version=version).code is ErrorCode.NONE
    answered = world.end(producer, commit, version=version)
    assert answered.code is ErrorCode.NONE
    assert answered.producer == ((1000, 1) if version == 2 else (-1, -1))
    assert world.leaders.markers == []  # the answer does not wait for the markers
    world.run()
    assert world.leaders.markers == [Marker(p, 1000, bump, commit, world.epoch) for p in (A, B)]
    ends = [S.PREPARE_COMMIT, S.COMPLETE_COMMIT] if commit else [S.PREPARE_ABORT, S.COMPLETE_ABORT]
    assert states(world) == [S.EMPTY, S.ONGOING, *ends]
    assert world.image().partitions == frozenset()


def test_nothing_is_answered_before_it_is_committed(world: TransactionWorld) -> None:
    """Guard G23: a partition is part of the transaction before the first record goes in."""
    producer = world.begin()
    world.log.holding = True
    added = world.add(producer, A)
    assert added.is_parked
    assert world.coordinator.verify_partitions("t", producer, {A}) == {A: ErrorCode.TRANSACTION_ABORTABLE}
    assert world.end(producer).code is ErrorCode.CONCURRENT_TRANSACTIONS
    world.log.commit()
    assert added.code is ErrorCode.NONE
    assert world.coordinator.verify_partitions("t", producer, {A, B}) == {
        A: ErrorCode.NONE,
        B: ErrorCode.TRANSACTION_ABORTABLE,
    }
    ended = world.end(producer)
    world.run()
    assert ended.is_parked
    assert world.leaders.markers == []
    world.log.commit()
    world.run()
    assert ended.code is ErrorCode.NONE
    assert len(world.leaders.markers) == 1


def test_markers_of_many_transactions_go_in_one_request() -> None:
    world = TransactionWorld()
    producers = {name: world.begin(name) for name in ("a", "b", "c")}
    for name, producer in producers.items():
        world.add(producer, A, transactional_id=name)
    for name, producer in producers.items():
        world.end(producer, transactional_id=name)
    world.run()
    ((broker_id, request),) = world.leaders.requests
    assert broker_id == 1
    assert len(request.markers) == 3


def test_the_next_transaction_waits_until_the_last_is_complete(world: TransactionWorld) -> None:
    """G24."""
    producer = world.begin()
    world.add(producer, A)
    world.leaders.holding = True
    after = world.end(producer).producer
    world.run()
    assert world.add(after, A).code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.coordinator.verify_partitions("t", after, {A}) == {A: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert world.init().code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.end(producer).code is ErrorCode.CONCURRENT_TRANSACTIONS  # a retry of the commit
    world.leaders.release()
    assert world.add(after, A).code is ErrorCode.NONE
    # A delayed duplicate of the first commit does not touch the second transaction (guard G24).
    assert world.end(producer).code is ErrorCode.PRODUCER_FENCED
    assert world.image().state is S.ONGOING


@pytest.mark.parametrize("version", [0, 2])
def test_a_request_that_waits_is_answered_when_the_last_transaction_is_complete(
    world: TransactionWorld, version: int
) -> None:
    producer = world.begin()
    world.add(producer, A, version=version)
    world.leaders.holding = True
    ended = world.end(producer, version=version)
    after = ended.producer if version == 2 else producer
    waiting, refused = world.add(after, B, version=version, wait_ms=100), world.add(after, B, version=version)
    assert refused.code is ErrorCode.CONCURRENT_TRANSACTIONS
    world.run(50)
    assert waiting.is_parked
    world.leaders.release()
    world.run()
    assert waiting.code is ErrorCode.NONE
    assert world.image().partitions == {B}


def test_a_wait_for_the_last_transaction_ends(world: TransactionWorld) -> None:
    producer = world.begin()
    world.add(producer, A, version=0)
    world.leaders.holding = True
    world.end(producer, version=0)
    late = world.add(producer, B, version=0, wait_ms=100)
    moved = world.add(producer, B, version=0, wait_ms=10_000)
    world.run(100)
    assert late.code is ErrorCode.CONCURRENT_TRANSACTIONS
    world.coordinator.on_partition_resigned(0)
    world.run()
    assert moved.code is ErrorCode.NOT_COORDINATOR


# -- markers that do not get through


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_marker_is_sent_again_until_it_is_written(world: TransactionWorld, code: ErrorCode) -> None:
    producer = world.begin()
    world.add(producer, A, B)
    world.leaders.codes[A] = [code] * 5
    world.end(producer)
    world.run(5_000)
    assert [marker.partition for marker in world.leaders.markers] == [B, A]
    assert world.image().state is S.COMPLETE_COMMIT


def test_a_silent_broker_is_asked_again_and_elsewhere_when_the_leader_moves(world: TransactionWorld) -> None:
    producer = world.begin()
    world.add(producer, A, B)
    world.leaders.leaders[A] = 2
    world.leaders.silent.add(2)
    world.end(producer)
    world.run(3_000)
    assert world.image().state is S.PREPARE_COMMIT
    assert len([1 for broker_id, _ in world.leaders.requests if broker_id == 2]) > 3
    world.leaders.leaders[A] = 3
    world.run(2_000)
    assert world.image().state is S.COMPLETE_COMMIT
    assert {marker.partition for marker in world.leaders.markers} == {A, B}


def test_a_partition_without_a_leader_is_waited_for_and_a_deleted_one_is_not(world: TransactionWorld) -> None:
    producer = world.begin()
    world.add(producer, A, B)
    world.leaders.leaders[A] = -1
    world.leaders.leaders[B] = None
    world.end(producer)
    world.run(2_000)
    assert world.image().state is S.PREPARE_COMMIT
    world.leaders.leaders[A] = 1
    world.run(2_000)
    assert world.image().state is S.COMPLETE_COMMIT
    assert [marker.partition for marker in world.leaders.markers] == [A]


def test_a_partition_that_knows_a_later_epoch_needs_no_marker(world: TransactionWorld) -> None:
    producer = world.begin()
    world.add(producer, A)
    world.leaders.codes[A] = [ErrorCode.INVALID_PRODUCER_EPOCH]
    world.end(producer)
    world.run()
    assert world.image().state is S.COMPLETE_COMMIT


def test_a_coordinator_that_was_replaced_stops_sending(world: TransactionWorld) -> None:
    producer = world.begin()
    world.add(producer, A, B)
    world.leaders.codes[A] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    world.leaders.codes[B] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    world.end(producer)
    world.run(5_000)
    assert world.image().state is S.PREPARE_COMMIT
    assert len(world.leaders.requests) == 1


def test_the_completion_is_written_again_until_it_is_there(world: TransactionWorld) -> None:
    producer = world.begin()
    world.add(producer, A)
    world.leaders.holding = True
    world.end(producer)
    world.run()
    world.log.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    world.leaders.release()
    world.run(1_000)
    assert world.image().state is S.PREPARE_COMMIT
    world.log.refuse_with = None
    world.run(1_000)
    assert world.image().state is S.COMPLETE_COMMIT


# -- records that are not committed


@pytest.mark.parametrize(
    "code, told",
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_what_is_refused_changes_nothing(world: TransactionWorld, code: ErrorCode, told: ErrorCode) -> None:
    producer = world.begin()
    world.add(producer, A)
    world.log.refuse_with = code
    assert world.end(producer).code is told
    assert world.init().code is told
    world.log.refuse_with = None
    assert world.image().state is S.ONGOING
    assert world.end(producer).code is ErrorCode.NONE


def test_a_slow_write_is_answered_and_counts_when_it_is_committed(world: TransactionWorld) -> None:
    producer = world.begin()
    world.add(producer, A)
    world.log.holding = True
    ended = world.end(producer)
    world.run(6_000)
    assert ended.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.end(producer).code is ErrorCode.CONCURRENT_TRANSACTIONS
    world.log.holding = False
    world.log.commit()
    world.run()
    assert world.image().state is S.COMPLETE_COMMIT


# -- failover


@pytest.mark.parametrize("lose", [True, False])
def test_a_decision_on_its_way_is_lost_whole_or_goes_on(world: TransactionWorld, lose: bool) -> None:
    """Guard G23: never half committed."""
    producer = world.begin()
    world.add(producer, A, B)
    world.log.holding = True
    ended = world.end(producer)
    world.run()
    world.fail_over(lose=lose)
    assert ended.code is ErrorCode.NOT_COORDINATOR
    world.run()
    if lose:
        assert world.leaders.markers == []
        assert world.image().state is S.ONGOING
        assert world.end(producer).code is ErrorCode.NONE  # the client's retry
        world.run()
    assert world.image().state is S.COMPLETE_COMMIT
    assert [(marker.partition, marker.commit) for marker in world.leaders.markers] == [(A, True), (B, True)]
    assert {marker.coordinator_epoch for marker in world.leaders.markers} == {2}
    # Both leave a state in which the client's next retry succeeds.
    again = world.end(producer)
    assert (again.code, again.producer) == (ErrorCode.NONE, (1000, 1))


def test_markers_that_were_not_all_written_are_written_by_the_next_coordinator(world: TransactionWorld) -> None:
    producer = world.begin()
    world.add(producer, A, B)
    world.leaders.codes[B] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 100
    world.end(producer, False)
    world.run(100)
    world.leaders.codes.clear()
    world.fail_over(lose=True)
    world.run()
    assert [(m.partition, m.commit, m.coordinator_epoch) for m in world.leaders.markers] == [
        (A, False, 1),
        (A, False, 2),
        (B, False, 2),
    ]
    assert world.image().state is S.COMPLETE_ABORT


def test_while_it_is_loaded_clients_get_a_retriable_error(world: TransactionWorld) -> None:
    for number in range(3 * LOAD_SLICE_RECORDS):
        world.begin(f"t{number}")
    world.coordinator.on_partition_leader(0, 2)
    answered = world.init("t1")
    assert answered.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(RequestFailed):
        world.coordinator.list(Filters())
    world.run(10)
    (shard,) = world.coordinator.shards()
    assert shard.state is ShardState.ACTIVE
    assert world.init("t1").producer == (1001, 1)
    world.coordinator.on_partition_resigned(0)
    assert world.init("t1").code is ErrorCode.NOT_COORDINATOR
    world.coordinator.shutdown()
    assert world.init("t1").code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_new_epoch_of_the_same_leader_sends_all_markers_again(world: TransactionWorld) -> None:
    producer = world.begin()
    world.add(producer, A)
    world.leaders.silent.add(1)
    world.end(producer)
    world.run(50)
    world.leaders.silent.clear()
    world.elect()
    world.run(1_000)
    assert world.leaders.markers == [Marker(A, 1000, 1, True, 2)]


def test_an_epoch_that_is_exhausted_is_rotated_over_a_failover(world: TransactionWorld) -> None:
    producer = world.begin()
    last = ProducerIdentity(1000, EPOCH_MAX - 1)
    (shard,) = world.coordinator.shards()
    transaction = world.coordinator.describe("t")
    shard.write(transaction, transaction.image._replace(producer_epoch=last.epoch))
    assert world.add(producer, A).code is ErrorCode.PRODUCER_FENCED
    assert world.add(last, A).code is ErrorCode.NONE
    world.leaders.silent.add(1)
    world.ids.holding = True
    ended = world.end(last)
    assert ended.is_parked
    world.ids.give()
    assert (ended.code, ended.producer) == (ErrorCode.NONE, (1001, 0))
    world.run()
    world.fail_over(lose=True)
    assert world.add(ended.producer, A).code is ErrorCode.CONCURRENT_TRANSACTIONS
    world.leaders.silent.clear()
    world.run(2_000)
    assert world.leaders.markers == [Marker(A, 1000, EPOCH_MAX, True, 2)]
    assert world.add(ended.producer, A).code is ErrorCode.NONE


# -- zombies, and what is abandoned


@pytest.mark.parametrize("server_version, epochs", [(0, 1), (1, 1), (2, 2)])
def test_another_producer_aborts_what_is_open_and_fences(server_version: int, epochs: int) -> None:
    world = TransactionWorld(server_version=server_version)
    first = world.begin()
    world.add(first, A)
    assert world.init().code is ErrorCode.CONCURRENT_TRANSACTIONS
    world.run()
    assert world.leaders.markers == [Marker(A, 1000, epochs, False, 1)]
    second = world.begin()
    assert second == (1000, epochs + 1)
    for version in (0, 2):
        assert world.end(first, True, version=version).code is ErrorCode.PRODUCER_FENCED
    assert world.add(first, A).code is ErrorCode.PRODUCER_FENCED
    assert world.init(expected=first).code is ErrorCode.PRODUCER_FENCED


def test_an_abandoned_transaction_is_aborted(world: TransactionWorld) -> None:
    answered = world.init(timeout_ms=20_000)
    producer = answered.producer
    world.add(producer, A)
    world.run(19_000)
    assert world.image().state is S.ONGOING
    world.run(12_000)
    assert world.image().state is S.COMPLETE_ABORT
    assert world.leaders.markers == [Marker(A, 1000, 2, False, 1)]
    assert world.end(producer).code is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_a_timeout_out_of_bounds_is_refused(world: TransactionWorld, timeout_ms: int) -> None:
    assert world.init(timeout_ms=timeout_ms).code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert world.init("u", timeout_ms=900_000).code is ErrorCode.NONE


def test_without_a_producer_id_the_client_gets_a_retriable_error(world: TransactionWorld) -> None:
    world.ids.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.init().code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.ids.error = ErrorCode.NONE
    world.ids.holding = True
    first, second = world.init(), world.init()
    world.ids.give()
    assert (first.producer, second.producer) == ((1000, 0), (1000, 1))


def test_an_unused_id_is_forgotten() -> None:
    world = TransactionWorld(config=TransactionConfig(id_expiration_ms=5 * HOUR_MS - HOUR_MS // 2))
    for number in range(600):
        world.begin(f"t{number}")
    world.run(3 * HOUR_MS)
    kept = world.begin("kept")
    world.run(2 * HOUR_MS + HOUR_MS // 2)
    assert sorted(one.transactional_id for one in world.coordinator.list(Filters())) == ["kept"]
    assert world.image("kept").producer_id == kept.producer_id
    tombstones = [key for key, image in world.written() if image is None]
    assert len(tombstones) == 600
    world.fail_over(lose=True)
    assert world.begin("t1").epoch == 0


def test_an_id_that_is_being_forgotten_waits(world: TransactionWorld) -> None:
    world = TransactionWorld(config=TransactionConfig(id_expiration_ms=1000, expiry_interval_ms=500))
    world.begin()
    world.run(900)
    world.log.holding = True
    world.run(700)
    assert world.init().code is ErrorCode.CONCURRENT_TRANSACTIONS
    with pytest.raises(RequestFailed) as failed:
        world.coordinator.describe("t")
    assert failed.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    world.log.commit()
    world.log.holding = False
    assert world.begin() == (1001, 0)


# -- requests that make no sense


def test_unknown_and_empty_ids(world: TransactionWorld) -> None:
    nobody = ProducerIdentity(1, 0)
    assert world.add(nobody, A).code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.end(nobody).code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.add(nobody, A, transactional_id="").code is ErrorCode.INVALID_REQUEST
    assert world.end(nobody, transactional_id="").code is ErrorCode.INVALID_REQUEST
    assert world.coordinator.verify_partitions("t", nobody, {A}) == {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING}


def test_what_is_listed(world: TransactionWorld) -> None:
    producer = world.begin("a-1")
    world.begin("b-1")
    world.add(producer, A, transactional_id="a-1")
    world.run(5_000)

    def listed(**filters: object) -> list[str]:
        return [one.transactional_id for one in world.coordinator.list(Filters(**filters))]  # type: ignore[arg-type]

    assert listed() == ["a-1", "b-1"]
    assert listed(states=frozenset({S.ONGOING})) == ["a-1"]
    assert listed(producer_ids=frozenset({1001})) == ["b-1"]
    assert listed(states=frozenset({S.ONGOING}), open_for_ms=4_999) == ["a-1"]
    assert listed(states=frozenset({S.ONGOING}), open_for_ms=5_000) == []
    assert listed(matches=matcher("b.*")) == ["b-1"]
    assert listed(matches=matcher("b")) == []


def test_ids_are_spread_over_partitions_as_kafka_spreads_them() -> None:
    world = TransactionWorld(partitions=50)
    assert world.coordinator.partition_for("hello") == 99162322 % 50
    world.begin("hello")
    partition = TopicPartition("__transaction_state", 99162322 % 50)
    assert len(world.log.records(partition)) == 1


@pytest.mark.parametrize(("server_version", "value_version"), [(0, 0), (1, 1), (2, 1)])
def test_the_level_of_the_feature_says_which_records_are_written(server_version: int, value_version: int) -> None:
    world = TransactionWorld(server_version=server_version)
    producer = world.begin()
    world.add(producer, A, version=2 if server_version == 2 else 0)
    values = [record.value or b"" for record in world.log.records(TopicPartition("__transaction_state", 0))]
    assert {int.from_bytes(value[:2], "big") for value in values} == {value_version}
    world.fail_over(lose=True)
    assert world.image().partitions == {A}
