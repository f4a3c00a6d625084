"""Committed offsets: which commits are accepted, what is read, what is deleted, and what expires."""

from __future__ import annotations

import pytest
from tests.support.group_world import RANGE, GroupWorld, MemoryPartitions, commit_errors, fetched, subscription

from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.coordinators.groups.classic.group import GroupState
from barnabas.coordinators.groups.group_config import GroupConfig
from barnabas.coordinators.groups.group_records import offset_record
from barnabas.records.batch import encode_batch
from barnabas.records.record import Record

ORDERS_0 = ("orders", 0)
MINUTE_MS = 60_000


def short_lived() -> GroupConfig:
    return GroupConfig(offsets_retention_ms=10 * MINUTE_MS, offsets_retention_check_interval_ms=MINUTE_MS)


# -- committing


@pytest.mark.parametrize("version", range(2, 10))
def test_anybody_commits_for_a_group_without_members(version: int) -> None:
    world = GroupWorld()
    assert commit_errors(world.commit("g", {ORDERS_0: 5}, version=version)) == {ORDERS_0: ErrorCode.NONE}
    assert fetched(world.fetch("g", {"orders": [0, 1]})) == {ORDERS_0: 5, ("orders", 1): -1}
    assert world.group("g").state is GroupState.EMPTY


def test_the_empty_group_id_is_good_for_offsets() -> None:
    world = GroupWorld()
    world.commit("", {ORDERS_0: 5})
    assert fetched(world.fetch("", {"orders": [0]})) == {ORDERS_0: 5}


def test_leader_epoch_and_metadata_come_back() -> None:
    world = GroupWorld()
    world.commit("g", {ORDERS_0: 5}, leader_epoch=3, metadata="half way")
    partition = world.fetch("g", {"orders": [0]}).response.groups[0].topics[0].partitions[0]
    assert (partition.committed_offset, partition.committed_leader_epoch, partition.metadata) == (5, 3, "half way")


def test_metadata_of_null_is_empty() -> None:
    world = GroupWorld()
    world.commit("g", {ORDERS_0: 5}, metadata=None)
    assert world.offsets("g")[ORDERS_0].metadata == ""


def test_too_large_metadata_fails_alone() -> None:
    world = GroupWorld(GroupConfig(offset_metadata_size_max=4))
    assert commit_errors(world.commit("g", {ORDERS_0: 5}, metadata="1234")) == {ORDERS_0: ErrorCode.NONE}
    answer = world.commit("g", {ORDERS_0: 6}, metadata="12345")
    assert commit_errors(answer) == {ORDERS_0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert world.offsets("g")[ORDERS_0].offset == 5


def test_partitions_that_are_not_there_fail_alone() -> None:
    world = GroupWorld()
    answer = world.commit("g", {("none", 0): 1, ORDERS_0: 5, ("orders", 6): 1})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit_errors(answer) == {("none", 0): unknown, ORDERS_0: ErrorCode.NONE, ("orders", 6): unknown}
    assert set(world.offsets("g")) == {ORDERS_0}


def test_a_commit_of_nothing_writes_nothing() -> None:
    world = GroupWorld()
    assert world.commit("g", {}).response.topics == []
    assert commit_errors(world.commit("g", {("none", 0): 1}))[("none", 0)] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.log.records(world.partition()) == []
    assert world.find("g") is None


def test_members_commit_in_their_generation() -> None:
    world = GroupWorld()
    [member] = world.stable("g")

    def error(generation: int, member_id: str, instance_id: str | None = None) -> ErrorCode:
        answer = world.commit("g", {ORDERS_0: 5}, generation=generation, member_id=member_id, instance_id=instance_id)
        return commit_errors(answer)[ORDERS_0]

    assert error(1, member) is ErrorCode.NONE
    assert error(0, member) is ErrorCode.ILLEGAL_GENERATION
    assert error(2, member) is ErrorCode.ILLEGAL_GENERATION
    assert error(-1, member) is ErrorCode.ILLEGAL_GENERATION
    assert error(1, "stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(-1, "") is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(1, member, "one") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_fenced_instance_cannot_commit() -> None:
    world = GroupWorld()
    first = world.join("g", instance_id="one")
    world.pass_ms(6_000)
    old = first.response.member_id
    world.sync_all("g", 1, [old])
    new = world.join("g", instance_id="one").response.member_id
    stale = world.commit("g", {ORDERS_0: 5}, generation=1, member_id=old, instance_id="one")
    assert commit_errors(stale)[ORDERS_0] is ErrorCode.FENCED_INSTANCE_ID
    fresh = world.commit("g", {ORDERS_0: 5}, generation=1, member_id=new, instance_id="one")
    assert commit_errors(fresh)[ORDERS_0] is ErrorCode.NONE


def test_a_group_that_is_not_there_has_no_generation() -> None:
    world = GroupWorld()
    assert commit_errors(world.commit("g", {ORDERS_0: 5}, generation=1, member_id="m", version=8)) == {
        ORDERS_0: ErrorCode.ILLEGAL_GENERATION
    }
    assert commit_errors(world.commit("g", {ORDERS_0: 5}, generation=1, member_id="m", version=9)) == {
        ORDERS_0: ErrorCode.GROUP_ID_NOT_FOUND
    }


def test_members_may_commit_while_a_rebalance_is_prepared_but_not_while_it_is_completed() -> None:
    world = GroupWorld()
    [member] = world.stable("g")
    new = world.enter("g")
    answer = world.commit("g", {ORDERS_0: 5}, generation=1, member_id=member)
    assert commit_errors(answer)[ORDERS_0] is ErrorCode.NONE
    world.join("g", member)
    assert new.response.generation_id == 2
    answer = world.commit("g", {ORDERS_0: 6}, generation=2, member_id=member)
    assert commit_errors(answer)[ORDERS_0] is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_is_a_sign_of_life() -> None:
    world = GroupWorld()
    [member] = world.stable("g", session_ms=10_000)
    for _ in range(5):
        world.pass_ms(9_000)
        world.commit("g", {ORDERS_0: 5}, generation=1, member_id=member)
    assert world.heartbeat("g", 1, member) is ErrorCode.NONE


def test_an_offset_is_read_once_it_is_committed_to_the_log() -> None:
    world = GroupWorld()
    world.commit("g", {ORDERS_0: 5})
    world.log.holding = True
    answer = world.commit("g", {ORDERS_0: 6})
    assert answer.is_parked
    assert fetched(world.fetch("g", {"orders": [0]})) == {ORDERS_0: 5}
    stable = world.fetch("g", {"orders": [0]}, require_stable=True)
    assert stable.is_parked, "it may be about to change"
    world.log.commit()
    assert commit_errors(answer)[ORDERS_0] is ErrorCode.NONE
    assert fetched(stable) == {ORDERS_0: 6}


@pytest.mark.parametrize(
    "failure,told",
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_commit_that_cannot_be_written_changes_nothing(failure: ErrorCode, told: ErrorCode) -> None:
    world = GroupWorld()
    world.commit("g", {ORDERS_0: 5})
    world.log.refuse_with = failure
    assert commit_errors(world.commit("g", {ORDERS_0: 6}))[ORDERS_0] is told
    assert world.offsets("g")[ORDERS_0].offset == 5


def test_a_commit_that_takes_too_long_is_answered_and_still_counts_later() -> None:
    world = GroupWorld()
    world.log.holding = True
    answer = world.commit("g", {ORDERS_0: 5})
    world.pass_ms(3_000)
    later = world.commit("g", {ORDERS_0: 6})
    world.pass_ms(1_999)
    assert answer.is_parked
    world.pass_ms(1)
    assert commit_errors(answer)[ORDERS_0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert later.is_parked
    world.pass_ms(3_000)
    assert commit_errors(later)[ORDERS_0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.commit()
    assert world.offsets("g")[ORDERS_0].offset == 6


def test_old_versions_may_set_the_retention_themselves() -> None:
    world = GroupWorld(short_lived())
    world.commit("g", {ORDERS_0: 5}, retention_ms=30 * MINUTE_MS, version=4)
    world.pass_ms(29 * MINUTE_MS)
    assert ORDERS_0 in world.offsets("g")
    world = world.restart()
    assert world.offsets("g")[ORDERS_0].expire_timestamp_ms > 0
    world.pass_ms(2 * MINUTE_MS)
    assert world.offsets("g") == {}


# -- fetching


@pytest.mark.parametrize("version", range(1, 10))
def test_all_versions_of_fetch_are_served(version: int) -> None:
    world = GroupWorld()
    world.commit("g", {ORDERS_0: 5, ("bills", 2): 7})
    topics = {"orders": [0, 3], "none": [1]}
    assert fetched(world.fetch("g", topics, version=version)) == {ORDERS_0: 5, ("orders", 3): -1, ("none", 1): -1}
    if version >= 2:
        assert fetched(world.fetch("g", version=version)) == {ORDERS_0: 5, ("bills", 2): 7}


def test_a_group_that_is_not_there_has_no_offsets() -> None:
    world = GroupWorld()
    answer = world.fetch("none", {"orders": [0]})
    assert fetched(answer) == {ORDERS_0: -1}
    partition = answer.response.groups[0].topics[0].partitions[0]
    assert (partition.metadata, partition.committed_leader_epoch, partition.error_code) == ("", -1, 0)


def test_several_groups_are_fetched_together() -> None:
    world = GroupWorld()
    world.commit("a", {ORDERS_0: 1})
    world.commit("b", {ORDERS_0: 2})
    groups = world.fetch(["a", "b", "c"], {"orders": [0]}).response.groups
    assert [(g.group_id, g.topics[0].partitions[0].committed_offset) for g in groups] == [("a", 1), ("b", 2), ("c", -1)]


@pytest.mark.parametrize("version", [1, 2, 7, 8])
def test_errors_of_fetch_stand_where_the_version_has_room_for_them(version: int) -> None:
    world = GroupWorld(lead=False)
    response = world.fetch("g", {"orders": [0]}, version=version).response
    if version >= 8:
        assert response.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    else:
        # Version 2 and later have the error in each row too: some clients ignore that of the whole response.
        (row,) = response.topics[0].partitions
        assert (row.committed_offset, row.error_code) == (-1, ErrorCode.NOT_COORDINATOR)
        assert response.error_code == (ErrorCode.NOT_COORDINATOR if version >= 2 else ErrorCode.NONE)


def open_transaction(ended: bytes | None) -> MemoryPartitions:
    """Returns a log with an offset of 5, and a transaction that commits 6: open, or ended by this marker type."""
    log = MemoryPartitions()
    GroupWorld(log=log).commit("g", {ORDERS_0: 5})
    partition = TopicPartition("__consumer_offsets", 0)
    committed = GroupWorld(log=log).offsets("g")[ORDERS_0]._replace(offset=6)
    written = offset_record("g", "orders", 0, committed)
    data = [Record(offset=0, timestamp=1, key=written.key, value=written.value, headers=[])]
    log.append(
        partition, encode_batch(data, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True), _ignore
    )
    if ended is not None:
        marker = [Record(offset=0, timestamp=1, key=b"\x00\x00" + ended, value=bytes(6), headers=[])]
        log.append(
            partition,
            encode_batch(marker, producer_id=9, producer_epoch=0, transactional=True, control=True),
            _ignore,
        )
    return log


def _ignore(code: ErrorCode, offset: int) -> None:
    assert code is ErrorCode.NONE


@pytest.mark.parametrize("marker,offset", [(b"\x00\x01", 6), (b"\x00\x00", 5)])
def test_offsets_of_ended_transactions_count_only_when_they_were_committed(marker: bytes, offset: int) -> None:
    world = GroupWorld(log=open_transaction(marker))
    assert fetched(world.fetch("g", {"orders": [0]}, require_stable=True)) == {ORDERS_0: offset}


def test_an_open_transaction_makes_an_offset_unstable() -> None:
    world = GroupWorld(log=open_transaction(None))
    assert fetched(world.fetch("g", {"orders": [0]})) == {ORDERS_0: 5}
    answer = world.fetch("g", {"orders": [0, 1]}, require_stable=True)
    codes = [partition.error_code for partition in answer.response.groups[0].topics[0].partitions]
    assert codes == [ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NONE]


# -- deleting offsets


def test_offsets_of_topics_that_nobody_consumes_can_be_deleted() -> None:
    world = GroupWorld()
    world.commit("g", {ORDERS_0: 5, ("bills", 0): 7})
    answer = world.delete_offsets("g", [ORDERS_0, ("orders", 5), ("none", 0)])
    codes = [(t.name, p.partition_index, p.error_code) for t in answer.response.topics for p in t.partitions]
    assert codes == [("orders", 0, 0), ("orders", 5, 0), ("none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert set(world.offsets("g")) == {("bills", 0)}
    assert set(world.restart().offsets("g")) == {("bills", 0)}


def test_offsets_in_use_are_not_deleted() -> None:
    world = GroupWorld()
    [member] = world.stable("g", protocols={"range": subscription("orders")})
    world.commit("g", {ORDERS_0: 5, ("bills", 0): 7}, generation=1, member_id=member)
    answer = world.delete_offsets("g", [ORDERS_0, ("bills", 0)])
    codes = [p.error_code for t in answer.response.topics for p in t.partitions]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert set(world.offsets("g")) == {ORDERS_0}


def test_errors_of_offset_delete() -> None:
    world = GroupWorld()
    assert world.delete_offsets("none", []).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.delete_offsets("", []).error is ErrorCode.INVALID_GROUP_ID
    world.enter("g", protocol_type="connect")
    world.pass_ms(3_000)
    assert world.delete_offsets("g", [ORDERS_0]).error is ErrorCode.NON_EMPTY_GROUP
    world.commit("simple", {ORDERS_0: 5})
    world.log.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.delete_offsets("simple", [ORDERS_0]).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert set(world.offsets("simple")) == {ORDERS_0}


def test_a_commit_on_its_way_before_a_deletion_is_deleted_and_one_after_it_stays() -> None:
    world = GroupWorld()
    world.log.holding = True
    world.commit("g", {ORDERS_0: 5})
    world.commit("g", {("bills", 0): 5})
    world.log.commit(1)
    deletion = world.delete_offsets("g", [ORDERS_0, ("bills", 0)])
    world.commit("g", {("bills", 1): 8, ORDERS_0: 9})
    world.log.commit()
    assert deletion.error is ErrorCode.NONE
    expected = {("bills", 1): 8, ORDERS_0: 9}
    assert {partition: kept.offset for partition, kept in world.offsets("g").items()} == expected
    assert {partition: kept.offset for partition, kept in world.restart().offsets("g").items()} == expected


def test_offsets_of_deleted_topics_go() -> None:
    world = GroupWorld()
    world.commit("g", {ORDERS_0: 5, ("bills", 0): 7})
    world.coordinator.on_partitions_deleted([TopicPartition("orders", i) for i in range(6)])
    assert set(world.offsets("g")) == {("bills", 0)}
    assert set(world.restart().offsets("g")) == {("bills", 0)}


# -- expiry


def test_offsets_of_simple_consumers_expire_after_their_commit() -> None:
    world = GroupWorld(short_lived())
    world.commit("g", {ORDERS_0: 5})
    world.pass_ms(5 * MINUTE_MS)
    world.commit("g", {("bills", 0): 7})
    world.pass_ms(5 * MINUTE_MS + 1)
    assert set(world.offsets("g")) == {("bills", 0)}
    world.pass_ms(5 * MINUTE_MS)
    assert world.find("g") is None
    assert world.restart().find("g") is None


def test_offsets_of_a_group_expire_after_it_became_empty() -> None:
    world = GroupWorld(short_lived())
    [member] = world.stable("g")
    world.commit("g", {ORDERS_0: 5}, generation=1, member_id=member)
    for _ in range(30):
        world.pass_ms(9_000)
        assert world.heartbeat("g", 1, member) is ErrorCode.NONE
    world.leave("g", (member, None))
    world.pass_ms(9 * MINUTE_MS)
    assert world.restart().offsets("g")
    world = world.restart()
    world.pass_ms(2 * MINUTE_MS)
    assert world.find("g") is None
    assert world.offsets("g") == {}


def test_offsets_that_a_living_group_still_subscribes_to_never_expire() -> None:
    world = GroupWorld(short_lived())
    [member] = world.stable("g", session_ms=1_000_000)
    world.commit("g", {ORDERS_0: 5, ("bills", 0): 7}, generation=1, member_id=member)
    world.pass_ms(12 * MINUTE_MS)
    assert set(world.offsets("g")) == {ORDERS_0}


def test_offsets_do_not_expire_during_a_rebalance() -> None:
    world = GroupWorld(short_lived())
    [member] = world.stable("g", session_ms=1_800_000, rebalance_ms=1_800_000)
    world.commit("g", {("bills", 0): 7}, generation=1, member_id=member)
    world.join("g", version=3, rebalance_ms=1_800_000)
    world.pass_ms(4 * MINUTE_MS)
    world.enter("g", rebalance_ms=1_800_000)
    world.pass_ms(4 * MINUTE_MS)
    world.enter("g", rebalance_ms=1_800_000)
    world.pass_ms(4 * MINUTE_MS)
    assert world.group("g").state is GroupState.PREPARING_REBALANCE
    assert set(world.offsets("g")) == {("bills", 0)}


def test_expiry_does_not_remove_a_commit_on_its_way() -> None:
    world = GroupWorld(short_lived())
    world.commit("g", {ORDERS_0: 5})
    world.pass_ms(10 * MINUTE_MS - 1)
    world.log.holding = True
    renewed = world.commit("g", {ORDERS_0: 6})
    world.pass_ms(2)
    world.log.commit()
    assert not renewed.is_parked
    assert world.offsets("g")[ORDERS_0].offset == 6
    assert world.restart().offsets("g")[ORDERS_0].offset == 6


def test_a_group_that_somebody_is_about_to_join_does_not_go() -> None:
    world = GroupWorld(short_lived())
    world.pass_ms(MINUTE_MS - 1)
    member = world.join("g").response.member_id
    world.pass_ms(10)
    assert world.join("g", member).is_parked


def test_many_groups_expire_in_turns_of_the_loop() -> None:
    world = GroupWorld(short_lived())
    for i in range(1_000):
        world.commit(f"g{i}", {ORDERS_0: i})
    world.pass_ms(11 * MINUTE_MS)
    shard = world.coordinator.shard(0)
    assert shard is not None
    assert shard.groups() == ()


# -- administration


def test_a_deleted_group_takes_its_offsets_along() -> None:
    world = GroupWorld()
    world.commit("g", {ORDERS_0: 5})
    before = len(world.log.records(world.partition()))
    answer = world.delete("g", "none", "g")
    errors = [(result.group_id, result.error_code) for result in answer.response.results]
    assert errors == [("g", ErrorCode.NONE), ("none", ErrorCode.GROUP_ID_NOT_FOUND)]
    tombstones = world.log.records(world.partition())[before:]
    assert [(bytes(record.key or b"")[:2], record.value) for record in tombstones] == [
        (b"\x00\x01", None),
        (b"\x00\x02", None),
    ]
    assert world.find("g") is None
    assert fetched(world.restart().fetch("g")) == {}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_group_with_members_is_not_deleted(version: int) -> None:
    world = GroupWorld()
    world.stable("g")
    assert world.delete("g", version=version).response.results[0].error_code == ErrorCode.NON_EMPTY_GROUP


def test_a_deletion_that_cannot_be_written_deletes_nothing() -> None:
    world = GroupWorld()
    world.commit("g", {ORDERS_0: 5})
    world.log.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.delete("g").response.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.offsets("g")[ORDERS_0].offset == 5


def test_a_group_that_is_joined_while_it_is_deleted_lives_on_without_its_offsets() -> None:
    world = GroupWorld()
    world.commit("g", {ORDERS_0: 5})
    world.log.holding = True
    deletion = world.delete("g")
    joining = world.join("g", version=3, protocols=RANGE)
    world.log.commit()
    world.log.holding = False
    assert deletion.response.results[0].error_code == ErrorCode.NONE
    world.pass_ms(3_000)
    member = joining.response.member_id
    world.sync_all("g", 1, [member])
    assert fetched(world.fetch("g", {"orders": [0]})) == {ORDERS_0: -1}
    assert set(world.restart().group("g").members) == {member}
