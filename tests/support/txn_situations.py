"""Situations of coordinators that seeds hardly ever reach, because a failover takes only a millisecond: each function
brings a world into one, and raises AssertionError if a promise was broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.coordinators.transactions.state import TxnState
from barnabas.protocol.message import Message
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.simulation.faulty_disk import FaultyDisk
from barnabas.simulation.worlds.replicated import CONTROLLER, Replicated
from barnabas.simulation.worlds.txn_client import GROUP, Coordination, TxnProducer, fetch, read

#: The time of a read of a coordinator's log that is not in the page cache.
_SLOW_READ_US = 700_000


@contextmanager
def cut_off(world: Replicated, node: str, *others: str) -> Iterator[None]:
    """Cuts the network between a node and others, in both directions, until the end of the block."""
    pairs = [pair for other in others for pair in ((node, other), (other, node))]
    for pair in pairs:
        world.cluster.network.cut(*pair)
    yield
    for pair in pairs:
        world.cluster.network.heal(*pair)


def rig(min_insync_replicas: str = "2", **properties: str) -> Replicated:
    """Returns a world with `orders` of two partitions, led by brokers 1 and 2, and one coordinator of each kind."""
    topics = {"transaction_state_log_num_partitions": "1", "offsets_topic_num_partitions": "1"}
    world = Replicated(1, 3, controllers=1, **topics, **properties)
    world.create_topic("orders", [[1, 2, 3], [2, 3, 1]], min_insync_replicas=min_insync_replicas)
    return world


def producer(world: Replicated, version: int, transactional_id: str = "t", timeout_ms: int = 60_000) -> TxnProducer:
    made = TxnProducer(world, transactional_id, version=version)
    made.begin(timeout_ms)
    return made


def state(world: Replicated) -> TxnState | None:
    """Returns the transaction's state as its coordinator has it; None while there is none."""
    leader = world.leader(TRANSACTION_STATE_TOPIC)
    if leader < 0 or not world.node(leader).is_running:
        return None
    try:
        return world.broker(leader).transactions.describe("t").image.state
    except RequestFailed:
        return None


def settle(world: Replicated, wanted: TxnState = TxnState.COMPLETE_COMMIT) -> None:
    world.run_until(lambda: state(world) is wanted, wanted.shown)


def completed(commit: bool) -> TxnState:
    return TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT


# -- a coordinator that dies after its decision


def a_coordinator_dies_after_its_decision(version: int, commit: bool) -> None:
    """Kills a coordinator before its markers are written: the next one writes them, and the producer's next transaction
    follows.
    """
    world = rig()
    writer = producer(world, version)
    writer.send(b"a")
    writer.send(b"b", partition=1)
    coordinator = world.leader(TRANSACTION_STATE_TOPIC)
    other = world.leader("orders", 0) if world.leader("orders", 0) != coordinator else world.leader("orders", 1)
    # The coordinator's markers do not reach the other leader; its records still reach the third broker.
    with cut_off(world, f"broker{coordinator}", f"broker{other}"):
        assert writer.end(commit) is ErrorCode.NONE
        assert state(world) in (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT), "it is decided, and not complete"
        world.node(coordinator).kill()
    settle(world, completed(commit))
    world.run_until(lambda: world.leader("orders", 0) > 0 and world.leader("orders", 1) > 0, "leaders")
    world.run_for(500)
    assert read(world) + read(world, 1) == ([b"a", b"b"] if commit else [])
    for partition in (0, 1):
        row = fetch(world, row_end(world, partition), partition)
        assert row.last_stable_offset == row.high_watermark, "no transaction waits"
    writer.send(b"next")
    writer.commit()
    settle(world)
    assert read(world) == ([b"a", b"next"] if commit else [b"next"])


def a_leader_refuses_its_markers(commit: bool) -> None:
    """Lets a leader with too few replicas refuse markers: they are sent again, and the transaction ends when the
    replicas are back.
    """
    world = rig(min_insync_replicas="3")
    writer = producer(world, 2)
    writer.send(b"a")
    writer.send(b"b", partition=1)
    coordinator = world.leader(TRANSACTION_STATE_TOPIC)
    away = f"broker{next(number for number in (3, 2, 1) if number != coordinator)}"
    world.cluster.prevent_start(away)
    world.cluster.nodes[away].kill()
    world.run_until(lambda: all(len(world.image(index=index).isr) == 2 for index in (0, 1)), "one replica is missing")
    assert writer.end(commit) is ErrorCode.NONE
    world.run_for(2_000)
    world.cluster.allow_start(away)
    for index in (0, 1):
        world.await_isr((1, 2, 3), index=index)
    settle(world, completed(commit))
    for index in (0, 1):
        row = fetch(world, 0, index)
        assert row.last_stable_offset == row.high_watermark, "the transaction is not ended everywhere"
    assert read(world) + read(world, 1) == ([b"a", b"b"] if commit else [])


def row_end(world: Replicated, partition: int) -> int:
    return fetch(world, 0, partition).high_watermark


# -- a coordinator that is cut off with a pending commit, and then learns of its successor


def a_deposed_coordinator_is_asked_for_stable_offsets() -> None:
    """Checks that a request for stable offsets waits for the pending commit, and is then directed to the successor: the
    offsets of this coordinator are older than what the successor has acknowledged.
    """
    world = rig()
    group = Coordination(world)
    old = group.of(GROUP, 0)
    assert commit(world, old, 45) is ErrorCode.NONE
    others = [CONTROLLER, *(f"broker{number}" for number in (1, 2, 3) if number != old)]
    with cut_off(world, f"broker{old}", *others):
        answers: list[Message | None] = []
        client = world.client

        def call_old_coordinator() -> None:
            client.send(f"broker{old}", commit_request(99), lambda _: None, timeout_ms=60_000)
            client.send(f"broker{old}", stable_request(), answers.append, timeout_ms=60_000)

        client.process.enter(call_old_coordinator)
        world.run_until(lambda: world.leader(GROUP_METADATA_TOPIC) not in (-1, old), "a successor", 60_000)
        for _ in range(100):
            code = commit(world, world.leader(GROUP_METADATA_TOPIC), 245)
            if code is ErrorCode.NONE:
                break
            world.run_for(100)
        assert code is ErrorCode.NONE, code
        assert answers == [], "it waits for the commit in flight"
    world.run_until(lambda: bool(answers), "an answer of the one that was cut off", 60_000)
    assert isinstance(answers[0], OffsetFetchResponse)
    (answer,) = answers[0].groups
    told = [row.committed_offset for topic in answer.topics for row in topic.partitions]
    assert told in ([], [245]), f"answered an old offset: {told}"
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


def a_coordinator_that_is_cut_off_is_asked_to_commit() -> None:
    """Checks that a commit is not acknowledged without the followers, and that the successor has the commit before
    it."""
    world = rig()
    group = Coordination(world)
    old = group.of(GROUP, 0)
    assert commit(world, old, 45) is ErrorCode.NONE
    others = [CONTROLLER, *(f"broker{number}" for number in (1, 2, 3) if number != old)]
    with cut_off(world, f"broker{old}", *others):
        answers: list[Message | None] = []
        client = world.client
        client.process.enter(lambda: client.send(f"broker{old}", commit_request(99), answers.append, timeout_ms=60_000))
        world.run_until(lambda: world.leader(GROUP_METADATA_TOPIC) not in (old, -1), "another coordinator")
    world.run_until(lambda: bool(answers), "an answer", 60_000)
    (answer,) = answers
    told = isinstance(answer, OffsetCommitResponse) and answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert not told, "the leader that was cut off acknowledged a commit that no other broker has"


def commit(world: Replicated, broker: int, offset: int) -> ErrorCode:
    answer = world.client.call(f"broker{broker}", commit_request(offset), OffsetCommitResponse, within_ms=10_000)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def commit_request(offset: int) -> OffsetCommitRequest:
    row = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", topic_id=bytes(16), partitions=[row])
    return OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, topics=[topic])


def stable_request() -> OffsetFetchRequest:
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
    return OffsetFetchRequest(groups=[group], require_stable=True)


# -- markers that are under way for a long time


def nothing_is_aborted_while_markers_are_on_their_way(commit: bool) -> None:
    """Checks that the next transaction of a producer of version 2 waits until the previous one is complete (G24), even
    if it is aborted before it has sent anything.
    """
    world = rig()
    writer = producer(world, 2)
    writer.send(b"a")
    writer.send(b"b", partition=1)
    coordinator = world.leader(TRANSACTION_STATE_TOPIC)
    other = world.leader("orders", 0) if world.leader("orders", 0) != coordinator else world.leader("orders", 1)
    with cut_off(world, f"broker{coordinator}", f"broker{other}"):
        assert writer.end(commit) is ErrorCode.NONE
        for _ in range(5):
            code = writer.end(False)
            assert code is ErrorCode.CONCURRENT_TRANSACTIONS, f"answered {code.name} while markers are in flight"
            world.run_for(100)
    writer.abort()
    settle(world, TxnState.COMPLETE_ABORT)
    writer.send(b"next")
    writer.commit()
    settle(world)
    assert read(world) + read(world, 1) == ([b"a", b"next", b"b"] if commit else [b"next"])


# -- a coordinator that gets requests while it loads


def _read_slowly(disk: FaultyDisk, topic: str) -> None:
    """Empties the page cache of this topic's logs and makes the disk slow; only threads wait for it, not a loop."""
    use, on_loop, disk.cold_chance = disk.use, disk.charge, 1.0

    def slow(duration_us: int, call: str, path: str) -> None:
        is_slow = call == "read" and topic in path and disk.charge is not on_loop
        use(_SLOW_READ_US if is_slow else duration_us, call, path)

    disk.use = slow  # type: ignore[method-assign]


def _fail_over_slowly(world: Replicated, topic: str) -> None:
    """Kills this topic's coordinator; its successor needs a while to read the log."""
    dead = world.leader(topic)
    for number in (1, 2, 3):
        _read_slowly(world.node(number).disk, topic)
    world.node(dead).kill()
    world.run_until(lambda: world.leader(topic) not in (-1, dead), "another coordinator")


def offsets_are_asked_for_before_they_are_loaded() -> None:
    """Checks that no group gets the answer "no offset" too early: it would begin again, or skip to the end and miss
    records.
    """
    world = rig()
    writer = producer(world, 2)
    group = Coordination(world)
    writer.again(lambda: writer.send_offset(41))
    writer.commit()
    settle(world)
    world.run_until(lambda: group.offsets(stable=True)[0] == (0, 41), "the offset counts")
    _fail_over_slowly(world, GROUP_METADATA_TOPIC)
    assert Coordination(world).offsets(stable=True)[0] == (0, 41), "a committed offset went back"


def a_producer_begins_before_its_transactions_are_loaded(version: int) -> None:
    """Checks that the previous producer of the transactional id is fenced, and its open transaction is aborted."""
    world = rig()
    zombie = producer(world, version)
    zombie.send(b"zombie")
    _fail_over_slowly(world, TRANSACTION_STATE_TOPIC)
    successor = producer(world, version)
    assert successor.producer_id == zombie.producer_id, "the id of the last producer"
    assert successor.epoch > zombie.epoch
    world.run_until(world.settled, "a leader")
    assert zombie.produce(b"again") is ErrorCode.INVALID_PRODUCER_EPOCH
    successor.send(b"successor")
    successor.commit()
    settle(world)
    assert read(world) == [b"successor"]


Situation = Callable[[], None]
