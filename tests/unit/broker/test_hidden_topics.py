"""Topics that a client may not see or delete, in requests that are made to get around the check."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.secured import ALICE, SecuredBroker

from barnabas.common.errors import ErrorCode
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

DESCRIBE, TOPIC = AclOperation.DESCRIBE, AclResource.TOPIC


@pytest.fixture
def secured() -> SecuredBroker:
    secured = SecuredBroker()
    secured.create_topic("orders")
    return secured


def test_a_group_that_is_named_twice_shows_no_hidden_topics(secured: SecuredBroker) -> None:
    """Guard S18: a second row for the group, with a list of topics, lifted the filter from the first one."""
    secured.create_topic("shown")
    admin = secured.connect()
    admin.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4, FindCoordinatorResponse)
    secured.host.time.run_for(2_000)
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in ("orders", "shown")
    ]
    commit = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)
    committed = admin.call(commit, 8, OffsetCommitResponse)
    assert [topic.partitions[0].error_code for topic in committed.topics] == [0, 0]
    secured.allow(DESCRIBE, AclResource.GROUP, "g")
    secured.allow(DESCRIBE, TOPIC, "shown")
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    wanted = OffsetFetchRequest.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
    groups = [group(group_id="g", topics=None), group(group_id="g", topics=[]), group(group_id="g", topics=[wanted])]
    found = secured.connect_as(ALICE).call(OffsetFetchRequest(groups=groups), 8, OffsetFetchResponse)
    assert [[topic.name for topic in answer.topics] for answer in found.groups] == [["shown"], [], ["orders"]]
    assert found.groups[2].topics[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_topic_that_is_not_committed_yet_is_not_deleted_without_the_right(
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller knows a topic before its image does, so it must not get a request that only the image allows."""
    asked: list[list[str | None]] = []
    decide = secured.broker.services.controller.delete_topics

    def noted(request: DeleteTopicsRequest, *args: Any, **options: Any) -> None:
        asked.append([topic.name for topic in request.topics])
        decide(request, *args, **options)

    monkeypatch.setattr(secured.broker.services.controller, "delete_topics", noted)
    secured.allow(DESCRIBE, TOPIC, "new")
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="new")], timeout_ms=1_000)
    client = secured.connect_as(ALICE)
    for _ in range(2):
        (row,) = client.call(request, 6, DeleteTopicsResponse).responses
        assert (row.name, row.error_code) == ("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        secured.allow(AclOperation.DELETE, TOPIC, "new")
    assert asked == [["new"]], "with the right alone"
