"""Writes of a coordinator: the result of a barrier after them, and that a record that cannot be encoded changes
nothing.
"""

from __future__ import annotations

import pytest
from tests.support.group_world import Answer, Context, GroupWorld, MemoryPartitions, fetched

from barnabas.common.errors import EncodeError, ErrorCode
from barnabas.common.types import GROUP_METADATA_TOPIC, TopicPartition
from barnabas.coordinators.deadlines import Deadlines
from barnabas.coordinators.groups.committers import Committers
from barnabas.coordinators.groups.group_records import NO_EXPIRY, CommittedOffset
from barnabas.coordinators.runtime import KeyValue, ShardLog
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.simulation.host import MemoryHost

PARTITION = TopicPartition(GROUP_METADATA_TOPIC, 0)
RECORD = KeyValue(b"k", b"v")
N = ErrorCode.NONE
LOST = ErrorCode.NOT_LEADER_OR_FOLLOWER
AFTER = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class Log:
    def __init__(self) -> None:
        self.host = MemoryHost(seed=1)
        self.partitions = MemoryPartitions()
        self.partitions.holding = True
        deadlines = Deadlines(self.host.clock, self.host.timers)
        self.log = ShardLog(self.host, self.partitions, PARTITION, deadlines, timeout_ms=1_000)
        self.codes: list[ErrorCode] = []

    def write(self) -> None:
        self.log.append([RECORD], lambda _: None)

    def barrier(self) -> None:
        self.log.when_settled(self.codes.append)

    def settle(self, code: ErrorCode) -> None:
        """Ends the oldest pending write with this code."""
        _, _, done = self.partitions._held.popleft()
        done(code, -1)


@pytest.mark.parametrize(
    ("codes", "told"),
    [
        ([N, N, N], N),
        ([N, LOST, N], LOST),
        ([LOST, N, N], LOST),
        ([N, N, AFTER], AFTER),
        ([LOST, AFTER, N], LOST),
        ([AFTER, LOST, AFTER], LOST),
        ([ErrorCode.MESSAGE_TOO_LARGE, N, N], N),
        ([N, ErrorCode.NOT_ENOUGH_REPLICAS, N], N),
    ],
)
def test_a_barrier_gets_the_worst_result_that_it_waited_for(codes: list[ErrorCode], told: ErrorCode) -> None:
    log = Log()
    for _ in codes:
        log.write()
    log.barrier()
    for code in codes:
        assert log.codes == []
        log.settle(code)
    assert log.codes == [told]


def test_a_barrier_ignores_earlier_and_later_writes() -> None:
    log = Log()
    log.write()
    log.settle(LOST)
    log.barrier()
    assert log.codes == [N]
    log.write()
    log.barrier()
    log.write()
    log.settle(N)
    log.settle(LOST)
    assert log.codes == [N, N]


def test_a_write_that_failed_behind_another_counts() -> None:
    """The write has ended when the barrier comes, but is behind one that has not."""
    log = Log()
    log.write()
    log.write()
    _, _, second = log.partitions._held.pop()
    second(LOST, -1)
    log.barrier()
    log.settle(N)
    assert log.codes == [LOST]


def test_barriers_of_a_log_that_is_closed_get_an_error() -> None:
    log = Log()
    log.write()
    log.barrier()
    log.log.close()
    assert log.codes == [LOST]


# -- offsets


def fetch(world: GroupWorld) -> Answer[OffsetFetchResponse]:
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=topics)
    answer: Answer[OffsetFetchResponse] = Answer(9)
    world.coordinator.fetch_offsets(Context(9), OffsetFetchRequest(groups=[group], require_stable=True), answer)
    return answer


@pytest.mark.parametrize(("ends", "told"), [(LOST, ErrorCode.NOT_COORDINATOR), (N, N)])
def test_a_stable_fetch_behind_a_commit_that_is_lost_is_refused(ends: ErrorCode, told: ErrorCode) -> None:
    """The coordinator was cut off: another one has accepted the commit and answered its client before this one learns
    of its resignation.
    """
    world = GroupWorld()
    world.commit("g", {("orders", 0): 45})
    world.log.holding = True
    world.commit("g", {("orders", 0): 245})
    requested = fetch(world)
    assert requested.is_parked
    world.log.fail_held(ends) if ends is not N else world.log.commit()
    (group,) = requested.response.groups
    assert group.error_code == told
    assert [row.committed_offset for topic in group.topics for row in topic.partitions] == ([] if told else [245])


RETENTION_MAX = (1 << 63) - 1


def test_a_retention_beyond_all_times_is_for_ever() -> None:
    world = GroupWorld()
    committed = world.commit("g", {("orders", 0): 5}, retention_ms=RETENTION_MAX, version=4)
    assert committed.response.topics[0].partitions[0].error_code == N
    assert world.offsets("g")["orders", 0].expire_timestamp_ms == RETENTION_MAX
    world = world.restart()
    assert world.offsets("g")["orders", 0].expire_timestamp_ms == RETENTION_MAX
    # A later commit, of a client that says nothing of it, is kept as long as any; then the group goes.
    world.commit("g", {("orders", 0): 6})
    assert world.offsets("g")["orders", 0].expire_timestamp_ms == NO_EXPIRY
    world.pass_ms(world.config.offsets_retention_ms + 2 * world.config.offsets_retention_check_interval_ms)
    assert world.find("g") is None


def test_what_cannot_be_encoded_is_not_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that cannot be written is no reason to keep the group forever."""
    world = GroupWorld()
    shard = world.coordinator.shard(0)
    assert shard is not None
    impossible = CommittedOffset(5, -1, "", 0, expire_timestamp_ms=RETENTION_MAX + 1)
    with monkeypatch.context() as patch:
        patch.setattr(Committers, "accept", lambda *_: impossible)
        with pytest.raises(EncodeError):
            world.commit("g", {("orders", 0): 5})
    assert shard.offsets._in_flight == {}
    world.commit("g", {("orders", 0): 6})
    world.pass_ms(world.config.offsets_retention_ms + 2 * world.config.offsets_retention_check_interval_ms)
    assert world.find("g") is None


@pytest.mark.parametrize("require_stable", [False, True])
def test_a_coordinator_that_may_have_a_successor_has_no_offsets(require_stable: bool) -> None:
    """A coordinator that was cut off from controllers and followers answered with what was committed before. A client
    in a transaction, which had taken over from another one, processed records a second time.
    """
    world = GroupWorld()
    world.commit("g", {("orders", 0): 45})
    world.log.followed = False
    (group,) = world.fetch("g", {"orders": [0]}, require_stable=require_stable).response.groups
    assert (group.error_code, group.topics) == (ErrorCode.NOT_COORDINATOR, [])
    world.log.followed = True
    assert fetched(world.fetch("g", {"orders": [0]}, require_stable=require_stable)) == {("orders", 0): 45}
