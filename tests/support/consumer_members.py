"""Members of the consumer protocol that behave as a client library does: a member owns its assigned partitions, revokes
those that are taken from it, and reports this in its next heartbeat.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.group_world import Answer, Context, GroupWorld

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

Place = tuple[str, int]
Beat = Answer[ConsumerGroupHeartbeatResponse]


def places_of(world: GroupWorld, assignment: ConsumerGroupHeartbeatResponse.Assignment | None) -> set[Place]:
    """Returns the (topic, partition)s of an assignment, without topics that no longer exist."""
    found = set()
    for one in [] if assignment is None else assignment.topic_partitions:
        topic = world.topic_view.find_id(one.topic_id)
        if topic is not None:
            found |= {(topic.name, partition) for partition in one.partitions}
    return found


def send(world: GroupWorld, request: ConsumerGroupHeartbeatRequest, version: int = 1, client_id: str = "c") -> Beat:
    answer: Beat = Answer(version)
    world.coordinator.consumer_group_heartbeat(Context(version, client_id), request, answer)
    return answer


def consumer_group(world: GroupWorld, group_id: str = "g") -> ConsumerGroup:
    shard = world.coordinator.shard(world.coordinator.partition_for(group_id))
    assert shard is not None
    group = shard.consumers.find(group_id)
    assert group is not None, f"no consumer group {group_id}"
    return group


def describe(
    world: GroupWorld, *group_ids: str, version: int = 1
) -> list[ConsumerGroupDescribeResponse.DescribedGroup]:
    answer: Answer[ConsumerGroupDescribeResponse] = Answer(version)
    world.coordinator.consumer_group_describe(ConsumerGroupDescribeRequest(group_ids=list(group_ids)), answer)
    return answer.response.groups


class Consumer:
    """A client. `owned` are the partitions that its application reads at present."""

    def __init__(
        self,
        world: GroupWorld,
        member_id: str,
        topics: Sequence[str] | None = ("orders",),
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        regex: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = 60_000,
        revokes_slowly: bool = False,
    ) -> None:
        """Creates a client. One that revokes slowly keeps the partitions to be revoked until `finish_revoking`."""
        self.world = world
        self.member_id = member_id
        self.group_id = group_id
        self.instance_id = instance_id
        self.topics = topics
        self.regex = regex
        self.assignor = assignor
        self.rebalance_ms = rebalance_ms
        self.revokes_slowly = revokes_slowly
        self.epoch = 0
        self.owned: set[Place] = set()
        #: The last assignment that it received; None if it received none since it reached the previous one.
        self.wanted: set[Place] | None = None
        self._says_all = True
        self._says_owned = True

    def request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        if self._says_all or self.epoch == 0:
            request.rebalance_timeout_ms = self.rebalance_ms
            request.subscribed_topic_names = None if self.topics is None else sorted(self.topics)
            request.subscribed_topic_regex = self.regex
            request.server_assignor = self.assignor
        if self._says_all or self._says_owned or self.epoch == 0:
            request.topic_partitions = self._owned_topics()
        return request

    def _owned_topics(self) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        by_topic: dict[bytes, list[int]] = {}
        for name, partition in sorted(self.owned):
            topic = self.world.topic_view.find(name)
            if topic is not None:
                by_topic.setdefault(topic.topic_id, []).append(partition)
        kind = ConsumerGroupHeartbeatRequest.TopicPartitions
        return [kind(topic_id=topic_id, partitions=partitions) for topic_id, partitions in by_topic.items()]

    def send(self) -> Beat:
        if self.epoch == 0:
            self.owned.clear()
        return send(self.world, self.request())

    def beat(self) -> ErrorCode:
        """Sends one heartbeat that is answered immediately, and applies the answer."""
        return self.take(self.send())

    def take(self, answer: Beat) -> ErrorCode:
        response = answer.response
        if response.error_code:
            if response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                self.epoch = 0
                self.owned.clear()
                self.wanted = None
            self._says_all = True
            return answer.error
        self.epoch = response.member_epoch
        self._says_all = self._says_owned = False
        if response.assignment is not None:
            self.wanted = places_of(self.world, response.assignment)
        if not (self.revokes_slowly and self.is_revoking):
            self.finish_revoking()
        return ErrorCode.NONE

    @property
    def is_revoking(self) -> bool:
        return self.wanted is not None and not self.owned <= self.wanted

    def finish_revoking(self) -> None:
        """Completes the revocation, which comes before any addition; the next heartbeat reports it to the
        coordinator.
        """
        if self.wanted is not None:
            self._says_owned = self.owned != self.wanted
            self.owned = set(self.wanted)
            self.wanted = None

    def forget(self, topic: str) -> None:
        """Drops a deleted topic; a later topic with that name is another one."""
        self.owned = {place for place in self.owned if place[0] != topic}
        if self.wanted is not None:
            self.wanted = {place for place in self.wanted if place[0] != topic}

    def lose_answer(self) -> None:
        """Loses the answer to the last heartbeat, so that the next one reports everything."""
        self._says_all = True

    def subscribe(self, topics: Sequence[str] | None, regex: str | None = None) -> None:
        self.topics, self.regex = topics, regex
        self._says_all = True

    def leave(self, epoch: int = -1) -> ErrorCode:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        self.owned.clear()
        return send(self.world, request).error


def settle(consumers: Sequence[Consumer], rounds: int = 12) -> None:
    """Sends heartbeats of all members until nothing changes any more."""
    for _ in range(rounds):
        before = [(one.epoch, set(one.owned)) for one in consumers]
        for one in consumers:
            one.beat()
        if before == [(one.epoch, set(one.owned)) for one in consumers]:
            return
    raise AssertionError("it does not settle")
