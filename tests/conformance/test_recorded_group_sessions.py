"""A member's session in every version, as Apache Kafka 4.1.0 answered it: the same requests get the same answers.

The recording's sweep client used a separate group for each version: join (twice in versions that assign a member id
first), sync, heartbeat by an unknown member and by itself, leave. Member ids are random; they are identified by their
order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.group_world import Context, GroupWorld
from tests.support.recorded_frames import SWEEP, recorded

from barnabas.coordinators.groups.classic.group import GroupState
from barnabas.coordinators.groups.coordinator import GroupCoordinator
from barnabas.coordinators.groups.group_config import GroupConfig
from barnabas.protocol import codec
from barnabas.protocol.message import Message
from barnabas.protocol.messages.index import request_class, response_class

JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE = 11, 12, 13, 14, 15
METHODS: dict[int, Callable[..., None]] = {
    8: GroupCoordinator.commit_offsets,
    9: GroupCoordinator.fetch_offsets,
    JOIN: GroupCoordinator.join_group,
    HEARTBEAT: GroupCoordinator.heartbeat,
    LEAVE: GroupCoordinator.leave_group,
    SYNC: GroupCoordinator.sync_group,
    DESCRIBE: GroupCoordinator.describe_groups,
    42: GroupCoordinator.delete_groups,
    47: GroupCoordinator.delete_offsets,
}


SESSION = recorded(JOIN, SYNC, HEARTBEAT, LEAVE, DESCRIBE)
GROUPS = sorted({request.group_id for _, _, request, _ in SESSION if hasattr(request, "group_id")})


def group_of(request: Any) -> str:
    return str(request.groups[0]) if hasattr(request, "groups") else str(request.group_id)


class Names:
    """A map from the recorded member ids to those of this run: the n-th recorded one is the n-th of this run."""

    def __init__(self) -> None:
        self.theirs: dict[str, str] = {}

    def learn(self, theirs: str, ours: str) -> None:
        if theirs and theirs not in self.theirs:
            self.theirs[theirs] = ours
            assert len(theirs) == len(ours)

    def replaced(self, message: Message, version: int, encode_as: type[Message]) -> Message:
        data = bytes(codec.encode(message, version))
        for theirs, ours in self.theirs.items():
            data = data.replace(theirs.encode(), ours.encode())
        return codec.decode(encode_as, version, data)[0]


def sync_as_recorded(world: GroupWorld, group_id: str, described: Any) -> None:
    """Adds the sync that the recording lacks: it kept only some frames of a version, but shows the result of the
    sync.
    """
    [member] = world.group(group_id).members
    world.sync(group_id, 1, member, {member: described.groups[0].members[0].member_assignment})


@pytest.mark.parametrize("group_id", GROUPS)
def test_a_members_life_is_answered_as_kafka_answered_it(group_id: str) -> None:
    order = {JOIN: 0, SYNC: 1, DESCRIBE: 2, HEARTBEAT: 3, LEAVE: 4}
    frames = [frame for frame in SESSION if group_of(frame[2]) == group_id]
    frames.sort(key=lambda frame: order[frame[0]])
    joins = [frame for frame in frames if frame[0] == JOIN]
    if not any(response.error_code == 0 for *_, response in joins):
        pytest.skip("the recording kept no whole session of this version")
    joins.sort(key=lambda frame: frame[3].error_code != 79)
    world, names = GroupWorld(GroupConfig(initial_rebalance_delay_ms=500)), Names()
    for key, version, request, response in [*joins, *(frame for frame in frames if frame[0] != JOIN)]:
        request = names.replaced(request, version, request_class(key))
        if key == DESCRIBE and world.group(group_id).state is GroupState.COMPLETING_REBALANCE:
            sync_as_recorded(world, group_id, response)
        answers: list[Any] = []
        METHODS[key](world.coordinator, Context(version, SWEEP), request, answers.append)
        world.pass_ms(500)
        assert len(answers) == 1
        if key == JOIN:
            names.learn(response.member_id, answers[0].member_id)
        expected = names.replaced(response, version, response_class(key))
        assert codec.encode(answers[0], version) == codec.encode(expected, version)


def test_every_version_of_joining_is_in_the_recording() -> None:
    versions = {version for key, version, _, response in SESSION if key == JOIN and not response.error_code}
    assert versions >= {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}


@pytest.mark.parametrize("key,version,request_,response", recorded(8))
def test_simple_commits_are_answered_as_kafka_answered_them(
    key: int, version: int, request_: Message, response: Message
) -> None:
    answers: list[Message] = []
    METHODS[key](GroupWorld().coordinator, Context(version), request_, answers.append)
    assert [codec.encode(answer, version) for answer in answers] == [codec.encode(response, version)]


@pytest.mark.parametrize("key,version,request_,response", recorded(9))
def test_fetches_for_an_unknown_group_are_answered_as_kafka_answered_them(
    key: int, version: int, request_: Message, response: Message
) -> None:
    answers: list[Message] = []
    METHODS[key](GroupWorld().coordinator, Context(version), request_, answers.append)
    assert [codec.encode(answer, version) for answer in answers] == [codec.encode(response, version)]


@pytest.mark.parametrize("key,version,request_,response", recorded(42, 47))
def test_deletions_are_answered_as_kafka_answered_them(
    key: int, version: int, request_: Any, response: Message
) -> None:
    world = GroupWorld()
    if key == 42:
        for name in request_.groups_names:
            if name.startswith("sweep-dg"):
                world.commit(name, {("orders", 0): 5})
    elif request_.group_id:
        world.commit(request_.group_id, {("orders", 0): 5})
    answers: list[Message] = []
    METHODS[key](world.coordinator, Context(version), request_, answers.append)
    assert [codec.encode(answer, version) for answer in answers] == [codec.encode(response, version)]
