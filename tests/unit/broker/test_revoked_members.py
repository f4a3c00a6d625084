"""Members of groups and producers of transactions whose rights end: nothing that they send afterwards has an effect."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.secured import ALICE, SecuredBroker
from tests.support.wired import WiredClient
from tests.support.wired_requests import topic_id

from barnabas.common.errors import ErrorCode
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
GROUP_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def secured() -> SecuredBroker:
    secured = SecuredBroker(
        transaction_state_log_num_partitions="2",
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
    )
    secured.create_topic("orders")
    secured.allow(READ, AclResource.GROUP, "g")
    secured.allow(READ, AclResource.TOPIC, "orders")
    for kind in (0, 1):
        request = FindCoordinatorRequest(key="g", key_type=kind)
        for _ in range(100):
            if secured.connect().call(request, 3, FindCoordinatorResponse).error_code == 0:
                break
            secured.host.time.run_for(100)
    secured.host.time.run_for(500)
    return secured


def _joined(client: WiredClient) -> tuple[str, int]:
    """Joins the group `g` as its only member. Returns member id and generation."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=30_000, rebalance_timeout_ms=30_000, protocol_type="consumer"
    )
    join.protocols = [protocol]
    answer = client.call(join, 3, JoinGroupResponse, within_ms=20_000)
    assert answer.error_code == 0
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"a")
    sync = SyncGroupRequest(
        group_id="g", generation_id=answer.generation_id, member_id=answer.member_id, assignments=[assignment]
    )
    assert client.call(sync, 3, SyncGroupResponse).error_code == 0
    return answer.member_id, answer.generation_id


def _committed(secured: SecuredBroker) -> int:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
    answer = secured.connect().call(OffsetFetchRequest(group_id="g", topics=[topic]), 7, OffsetFetchResponse)
    return answer.topics[0].partitions[0].committed_offset


def _commit(client: WiredClient, member: tuple[str, int], offset: int) -> int:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[partition])
    request = OffsetCommitRequest(
        group_id="g", member_id=member[0], generation_id_or_member_epoch=member[1], topics=[topic]
    )
    return client.call(request, 7, OffsetCommitResponse).topics[0].partitions[0].error_code


def test_a_member_without_its_right_commits_nothing_and_gets_the_error_with_the_next_heartbeat(
    secured: SecuredBroker,
) -> None:
    """Guard S10: a member of a classic group that joined by a right it no longer has."""
    client = secured.connect_as(ALICE)
    member = _joined(client)
    assert _commit(client, member, 5) == 0
    secured.remove_rules(ALICE)
    secured.allow(READ, AclResource.TOPIC, "orders")
    heartbeat = HeartbeatRequest(group_id="g", member_id=member[0], generation_id=member[1])
    assert client.call(heartbeat, 3, HeartbeatResponse).error_code == GROUP_REFUSED
    assert _commit(client, member, 6) == GROUP_REFUSED
    secured.remove_rules(ALICE)
    secured.allow(READ, AclResource.GROUP, "g")
    assert _commit(client, member, 7) == TOPIC_REFUSED
    assert _committed(secured) == 5


def test_a_member_that_waits_for_the_others_gets_no_assignment_after_its_right_ended(secured: SecuredBroker) -> None:
    """Guard S10: the response to the waiting JoinGroup names no assignment, and the SyncGroup that would is refused."""
    first, second = secured.connect_as(ALICE), secured.connect_as(ALICE)
    member = _joined(first)
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=30_000, rebalance_timeout_ms=5_000, protocol_type="consumer"
    )
    join.protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")]
    second.send(join, 3)
    secured.host.time.run_for(100)
    assert second.received() == [], "it waits for the first member"
    secured.remove_rules(ALICE)
    secured.host.time.run_for(40_000)
    ((_, answer),) = second.received()
    assert isinstance(answer, JoinGroupResponse)
    assert (answer.error_code, answer.members) == (GROUP_REFUSED, [])
    sync = SyncGroupRequest(group_id="g", generation_id=answer.generation_id, member_id=answer.member_id)
    assert second.call(sync, 3, SyncGroupResponse).error_code == GROUP_REFUSED
    heartbeat = HeartbeatRequest(group_id="g", member_id=member[0], generation_id=member[1])
    assert first.call(heartbeat, 3, HeartbeatResponse).error_code == GROUP_REFUSED


def test_a_member_that_waits_for_its_assignment_does_not_get_it_after_its_right_ended(secured: SecuredBroker) -> None:
    """Guard S10: the leader of the group, another user, sends the assignment later."""
    leader, member = secured.connect(), secured.connect_as(ALICE)
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=30_000, rebalance_timeout_ms=10_000, protocol_type="consumer"
    )
    join.protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")]
    member_id, _ = _joined(leader)
    member.send(join, 3)
    secured.host.time.run_for(100)
    join.member_id = member_id
    leader.send(join, 3)
    secured.host.time.run_for(100)
    ((_, leads),), ((_, follows),) = leader.received(), member.received()
    assert isinstance(leads, JoinGroupResponse)
    assert isinstance(follows, JoinGroupResponse)
    assert [leads.error_code, follows.error_code] == [0, 0]
    assert leads.member_id == follows.leader != follows.member_id
    sync = SyncGroupRequest(group_id="g", generation_id=follows.generation_id, member_id=follows.member_id)
    member.send(sync, 3)
    secured.host.time.run_for(10)
    assert member.received() == []
    secured.remove_rules(ALICE)
    sync.member_id = leads.member_id
    sync.assignments = [
        SyncGroupRequest.SyncGroupRequestAssignment(member_id=row.member_id, assignment=b"orders-0")
        for row in leads.members
    ]
    assert leader.call(sync, 3, SyncGroupResponse).assignment == b"orders-0"
    ((_, answer),) = member.received()
    assert isinstance(answer, SyncGroupResponse)
    assert (answer.error_code, bytes(answer.assignment)) == (GROUP_REFUSED, b"")


def _beat(client: WiredClient, member_id: str, epoch: int, topics: list[str] | None) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=5_000 if topics else -1,
        subscribed_topic_names=topics,
        topic_partitions=[] if epoch == 0 else None,
    )
    return client.call(request, 1, ConsumerGroupHeartbeatResponse)


def test_a_member_of_the_consumer_protocol_is_refused_with_its_next_heartbeat(secured: SecuredBroker) -> None:
    """Guard S10: the group's right ends, and the right of a topic that the member subscribes to."""
    client = secured.connect_as(ALICE)
    answer = _beat(client, "AAAAAAAAAAAAAAAAAAAAAQ", 0, ["orders"])
    assert answer.error_code == 0
    epoch = answer.member_epoch
    secured.remove_rules(ALICE)
    secured.allow(READ, AclResource.GROUP, "g")
    answer = _beat(client, "AAAAAAAAAAAAAAAAAAAAAQ", epoch, ["orders", "more"])
    assert (answer.error_code, answer.assignment) == (TOPIC_REFUSED, None)
    secured.remove_rules(ALICE)
    answer = _beat(client, "AAAAAAAAAAAAAAAAAAAAAQ", epoch, None)
    assert (answer.error_code, answer.assignment) == (GROUP_REFUSED, None)


def test_an_expression_matches_only_what_the_client_may_describe(secured: SecuredBroker) -> None:
    """Guard S18: the assignment of a regular expression does not tell which other topics exist."""
    secured.create_topic("ordinary")
    client = secured.connect_as(ALICE)

    def assigned(member_id: str, group: str) -> set[bytes]:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=5_000,
            subscribed_topic_regex="or.*",
            topic_partitions=[],
        )
        answer = client.call(request, 1, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == 0
        assert answer.assignment is not None
        return {row.topic_id for row in answer.assignment.topic_partitions}

    assert assigned("AAAAAAAAAAAAAAAAAAAAAQ", "g") == {topic_id(secured, "orders")}
    secured.allow(READ, AclResource.GROUP, "later")
    secured.allow(DESCRIBE, AclResource.TOPIC, "ordinary")
    assert assigned("AAAAAAAAAAAAAAAAAAAAAQ", "later") == {topic_id(secured, "orders"), topic_id(secured, "ordinary")}


def test_a_transactional_producer_loses_its_id(secured: SecuredBroker) -> None:
    """Guard S10: the producer id that it has does not outlive the right on the transactional id."""
    secured.allow(WRITE, AclResource.TRANSACTIONAL_ID, "tx")
    client = secured.connect_as(ALICE)
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=10_000)
    answer = client.call(request, 4, InitProducerIdResponse)
    assert answer.error_code == 0
    secured.remove_rules(ALICE)
    again = InitProducerIdRequest(
        transactional_id="tx",
        transaction_timeout_ms=10_000,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )
    refused = client.call(again, 4, InitProducerIdResponse)
    assert (refused.error_code, refused.producer_id) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)


@pytest.mark.parametrize("is_revoked", [False, True])
@pytest.mark.parametrize("adds_offsets", [False, True])
def test_a_request_that_waits_for_the_last_transaction_adds_nothing_after_its_right_ended(
    secured: SecuredBroker, adds_offsets: bool, is_revoked: bool
) -> None:
    """Guard S10."""
    secured.allow(WRITE, AclResource.TRANSACTIONAL_ID, "tx")
    secured.allow(WRITE, AclResource.TOPIC, "orders")
    client = secured.connect_as(ALICE)
    producer = client.call(
        InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=10_000), 4, InitProducerIdResponse
    )
    of_producer: dict[str, Any] = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="orders", partitions=[0])],
    )
    client.call(add, 3, AddPartitionsToTxnResponse)
    client.send(EndTxnRequest(transactional_id="tx", committed=True, **of_producer), 3)
    late = secured.connect_as(ALICE)
    if adds_offsets:
        late.send(AddOffsetsToTxnRequest(transactional_id="tx", group_id="g", **of_producer), 3)
    else:
        late.send(add, 3)
    assert late.received() == [], "it waits for the markers"
    if is_revoked:
        secured.remove_rules(ALICE)
    secured.host.time.run_for(500)
    ((_, answer),) = late.received()
    if isinstance(answer, AddPartitionsToTxnResponse):
        code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    else:
        assert isinstance(answer, AddOffsetsToTxnResponse)
        code = answer.error_code
    state = secured.connect().call(
        DescribeTransactionsRequest(transactional_ids=["tx"]), 0, DescribeTransactionsResponse
    )
    open_topics = [topic.topic for topic in state.transaction_states[0].topics]
    if is_revoked:
        assert (code, open_topics) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, [])
    else:
        assert (code, open_topics) == (0, ["__consumer_offsets" if adds_offsets else "orders"])


def test_a_hidden_group_and_a_missing_one_look_the_same(secured: SecuredBroker) -> None:
    """Guard S18: a client without DESCRIBE cannot tell whether a group exists, nor see its offsets."""
    client = secured.connect_as(ALICE)
    _commit(client, _joined(client), 5)
    stranger = secured.connect_as("User:mallory")

    def rows(group: str) -> list[str]:
        described = stranger.call(DescribeGroupsRequest(groups=[group]), 5, DescribeGroupsResponse).groups[0]
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
        offsets = stranger.call(OffsetFetchRequest(group_id=group, topics=[topic]), 7, OffsetFetchResponse)
        heartbeat = HeartbeatRequest(group_id=group, member_id="m", generation_id=1)
        beat = stranger.call(heartbeat, 3, HeartbeatResponse)
        return [repr(each).replace(f"'{group}'", "") for each in (described, offsets, beat)]

    assert rows("g") == rows("absent")
    assert str(GROUP_REFUSED.value) in rows("g")[0]
