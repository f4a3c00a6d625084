"""The controller's decisions on a broker's report of its replicas' directories (KIP-858)."""

from __future__ import annotations

import pytest
from tests.support.controller_world import ControllerWorld, directory_of

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.controller.kraft import directories
from barnabas.metadata.topics import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from barnabas.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from barnabas.protocol.messages.records_metadata import PartitionChangeRecord

ELSEWHERE = b"E" * 16


def world(brokers: int = 3, replicas: int = 3) -> ControllerWorld:
    made = ControllerWorld()
    for broker_id in range(brokers):
        made.add_broker(broker_id)
    made.create("orders", 2, replicas)
    return made


def request(
    made: ControllerWorld, directory: bytes, *partitions: int, broker_id: int = 1, topic_id: bytes | None = None
) -> AssignReplicasToDirsRequest:
    named = AssignReplicasToDirsRequest.TopicData(
        topic_id=topic_id or made.image.topics_by_name["orders"].topic_id,
        partitions=[AssignReplicasToDirsRequest.PartitionData(partition_index=index) for index in partitions],
    )
    return AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=made.image.brokers[broker_id].epoch,
        directories=[AssignReplicasToDirsRequest.DirectoryData(id=directory, topics=[named])],
    )


def codes(response: AssignReplicasToDirsResponse) -> list[int]:
    return [
        row.error_code for directory in response.directories for topic in directory.topics for row in topic.partitions
    ]


def test_the_directory_of_one_replica_changes_and_nothing_else() -> None:
    made = world()
    before = made.partition("orders", 1)
    result = directories.assign_replicas(made.view(), request(made, directory_of(1), 1))
    assert result.records == [], "it is there already"
    result = directories.assign_replicas(made.view(), request(made, UNASSIGNED_DIRECTORY, 1))
    ((record, _),) = result.records
    assert isinstance(record, PartitionChangeRecord)
    assert (record.isr, record.leader, record.replicas) == (None, -2, None)
    assert codes(made.apply(result)) == [0]
    after = made.partition("orders", 1)
    assert after.directory_of(1) == UNASSIGNED_DIRECTORY
    assert (after.leader, after.leader_epoch, after.isr) == (before.leader, before.leader_epoch, before.isr)
    assert [after.directory_of(other) for other in (0, 2)] == [directory_of(0), directory_of(2)]


def test_refusals_are_reported_for_each_partition() -> None:
    made = world(brokers=3, replicas=2)
    outside = next(b for b in range(3) if b not in made.partition("orders", 0).replicas)
    answer = directories.assign_replicas(made.view(), request(made, directory_of(outside), 0, 7, broker_id=outside))
    assert codes(answer.response) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    answer = directories.assign_replicas(made.view(), request(made, directory_of(1), 0, topic_id=b"?" * 16))
    assert codes(answer.response) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert answer.records == []


def test_a_broker_of_another_epoch_is_not_believed() -> None:
    made = world()
    stale = request(made, directory_of(1), 0)
    stale.broker_epoch -= 1
    with pytest.raises(RequestFailed) as caught:
        directories.assign_replicas(made.view(), stale)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("directory", [LOST_DIRECTORY, ELSEWHERE])
def test_a_replica_in_a_directory_that_is_offline_leads_no_more(directory: bytes) -> None:
    made = world()
    led = next(index for index in range(2) if made.partition("orders", index).leader >= 0)
    leader = made.partition("orders", led).leader
    made.apply(directories.assign_replicas(made.view(), request(made, directory, led, broker_id=leader)))
    after = made.partition("orders", led)
    assert after.directory_of(leader) == directory
    assert leader not in after.isr
    assert after.leader not in (leader, -1)
