"""Kafka's recorded answers about a group of the consumer protocol: the same requests get the same answers here.

Two members joined one after the other; then the group was described. Member ids and topic ids are random.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.consumer_members import describe, places_of, send
from tests.support.group_world import GroupWorld
from tests.support.recorded_frames import SWEEP, recorded

from barnabas.protocol import codec
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse

HEARTBEAT, DESCRIBE = 68, 69


def exchanged(key: int, version: int) -> list[tuple[Any, Any]]:
    """Returns (request, response) in the order of the members' epochs."""
    found = [(request, response) for _, its, request, response in recorded(key) if its == version]
    return sorted(found, key=lambda one: getattr(one[1], "member_epoch", 0))


def shown(group: ConsumerGroupDescribeResponse.DescribedGroup) -> Any:
    """Returns everything except random ids."""
    members = sorted(
        (
            member.member_epoch,
            member.client_id,
            member.instance_id,
            member.rack_id,
            member.subscribed_topic_names,
            member.subscribed_topic_regex,
            [(topic.topic_name, topic.partitions) for topic in member.assignment.topic_partitions],
            [(topic.topic_name, topic.partitions) for topic in member.target_assignment.topic_partitions],
            member.member_type,
        )
        for member in group.members
    )
    return (
        group.error_code,
        group.error_message,
        group.group_id,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        group.assignor_name,
        members,
    )


@pytest.mark.parametrize("version", [0, 1])
def test_members_are_answered_and_shown_as_by_kafka(version: int) -> None:
    world = GroupWorld()
    [join, *others] = exchanged(HEARTBEAT, version)
    request, expected = join
    partitions = {index for topic in expected.assignment.topic_partitions for index in topic.partitions}
    world.topics["orders"] = len(partitions)
    for request, expected in [join, *others]:
        answer = send(world, request, version, SWEEP).response
        assert (answer.error_code, answer.error_message) == (expected.error_code, expected.error_message)
        assert (answer.member_epoch, answer.heartbeat_interval_ms) == (
            expected.member_epoch,
            expected.heartbeat_interval_ms,
        )
        assert len(answer.member_id or "") == len(expected.member_id)
        places = {("orders", index) for topic in expected.assignment.topic_partitions for index in topic.partitions}
        assert places_of(world, answer.assignment) == places
    if not others:  # the recording kept one join of this version: the other was like it
        request.member_id = "x" * 22
        send(world, request, version, SWEEP)
    group_id = request.group_id
    compared = 0
    for _, response in exchanged(DESCRIBE, version):
        for group in response.groups:
            if group.group_id == group_id and len(group.members) == 2:
                ours = ConsumerGroupDescribeResponse(groups=describe(world, group_id, version=version))
                # This version can omit fields, so both answers are read in it.
                read, _ = codec.decode(ConsumerGroupDescribeResponse, version, codec.encode(ours, version))
                assert shown(read.groups[0]) == shown(group)
                compared += 1
    assert compared
