"""A broker's AssignReplicasToDirs: one request, repeated until it is decided, with the newest directories last."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker import assignments as module
from barnabas.broker.assignments import DirectoryAssignments
from barnabas.common.errors import ErrorCode
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.message import Message
from barnabas.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from barnabas.protocol.messages.records_metadata import PartitionRecord, TopicRecord
from barnabas.simulation.host import MemoryHost

TOPIC = b"T" * 16
HERE, THERE = b"h" * 16, b"t" * 16
Told = dict[tuple[bytes, int], bytes]


def one_topic(partitions: int) -> MetadataStore:
    """Returns an image with partitions of one topic on broker 1, and one on broker 2 only."""
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(TopicRecord(name="orders", topic_id=TOPIC))
    for index in range(partitions + 1):
        broker = 1 if index < partitions else 2
        delta.replay(
            PartitionRecord(partition_id=index, topic_id=TOPIC, replicas=[broker], isr=[broker], leader=broker)
        )
    return MetadataStore(delta.apply(1, 1, 0))


class Desk:
    """The broker's side, with a controller that answers when the test lets it."""

    def __init__(self, partitions: int = 5) -> None:
        self.host = MemoryHost()
        self.requested: list[AssignReplicasToDirsRequest] = []
        self.replies: list[Callable[[Message | None], None]] = []
        self.done: list[str] = []
        self.epoch = 7
        self.assignments = DirectoryAssignments(self.host, 1, one_topic(partitions), lambda: self.epoch, self._send)
        self.partitions = partitions

    def _send(self, request: AssignReplicasToDirsRequest, reply: Callable[[Message | None], None]) -> None:
        self.requested.append(request)
        self.replies.append(reply)

    def assign(self, index: int, directory: bytes, name: str = "") -> None:
        self.assignments.assign(TOPIC, index, directory, lambda: self.done.append(name))

    def run(self, duration_ms: int = 0) -> None:
        self.host.time.run_for(duration_ms)

    def told(self, place: int = -1) -> Told:
        return {
            (topic.topic_id, row.partition_index): directory.id
            for directory in self.requested[place].directories
            for topic in directory.topics
            for row in topic.partitions
        }

    def answer(self, *refused: int, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        directories = [
            AssignReplicasToDirsResponse.DirectoryData(
                id=directory.id,
                topics=[
                    AssignReplicasToDirsResponse.TopicData(
                        topic_id=topic.topic_id,
                        partitions=[
                            AssignReplicasToDirsResponse.PartitionData(
                                partition_index=row.partition_index,
                                error_code=code if row.partition_index in refused else ErrorCode.NONE,
                            )
                            for row in topic.partitions
                        ],
                    )
                    for topic in directory.topics
                ],
            )
            for directory in self.requested[-1].directories
        ]
        self.replies[-1](AssignReplicasToDirsResponse(directories=directories))


def test_what_is_said_in_one_event_goes_in_one_request() -> None:
    desk = Desk()
    for index in range(3):
        desk.assign(index, THERE if index == 1 else HERE, str(index))
    assert desk.requested == []
    desk.run()
    (request,) = desk.requested
    assert (request.broker_id, request.broker_epoch) == (1, 7)
    assert desk.told() == {(TOPIC, 0): HERE, (TOPIC, 1): THERE, (TOPIC, 2): HERE}
    assert len(desk.assignments) == 3
    desk.answer()
    assert desk.done == ["0", "1", "2"]
    assert len(desk.assignments) == 0


def test_one_request_at_a_time_and_the_newest_word() -> None:
    desk = Desk()
    desk.assign(0, HERE, "first")
    desk.run()
    desk.assign(0, THERE, "second")
    desk.assign(1, THERE, "other")
    desk.run(1000)
    assert len(desk.requested) == 1
    desk.answer()
    desk.run()
    assert desk.told() == {(TOPIC, 0): THERE, (TOPIC, 1): THERE}
    desk.answer()
    assert desk.done == ["first", "second", "other"]


def test_an_overtaken_word_that_failed_is_not_said_again() -> None:
    desk = Desk()
    desk.assign(0, HERE, "first")
    desk.run()
    desk.assign(0, THERE, "second")
    desk.replies[-1](None)
    desk.run(1000)
    assert desk.told() == {(TOPIC, 0): THERE}
    desk.answer()
    assert desk.done == ["second"]


def test_what_was_refused_is_said_again_after_a_while() -> None:
    desk = Desk()
    desk.assign(0, HERE, "0")
    desk.assign(1, HERE, "1")
    desk.run()
    desk.answer(1)
    assert desk.done == ["0"]
    desk.run(99)
    assert len(desk.requested) == 1
    desk.run(1)
    assert desk.told() == {(TOPIC, 1): HERE}
    pauses = []
    for _ in range(12):
        desk.replies[-1](AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
        count, began = len(desk.requested), desk.host.time.now_ms()
        while len(desk.requested) == count:
            desk.run(100)
        pauses.append(desk.host.time.now_ms() - began)
    assert pauses == sorted(pauses)
    assert pauses[-1] == 10_000
    assert "STALE_BROKER_EPOCH" in desk.host.faults.reported[-1][0]
    desk.answer()
    assert desk.done == ["0", "1"]


def test_nothing_is_said_before_the_registration_or_of_what_is_not_ours() -> None:
    desk = Desk(partitions=2)
    desk.epoch = -1
    desk.assign(0, HERE)
    desk.assign(2, HERE)
    desk.assign(9, HERE)
    desk.assignments.assign(b"?" * 16, 0, HERE, lambda: None)
    desk.run(5000)
    assert desk.requested == []
    desk.epoch = 8
    desk.run(100)
    assert desk.told() == {(TOPIC, 0): HERE}
    assert desk.requested[0].broker_epoch == 8


def test_many_replicas_take_several_requests() -> None:
    count = module.REPLICAS_PER_REQUEST + 10
    desk = Desk(partitions=count)
    for index in range(count):
        desk.assign(index, HERE, str(index))
    desk.run()
    assert len(desk.told()) == module.REPLICAS_PER_REQUEST
    desk.answer()
    desk.run()
    assert len(desk.told()) == 10
    desk.answer()
    assert len(desk.done) == count


def test_after_the_end_nothing_is_said() -> None:
    desk = Desk()
    desk.assign(0, HERE)
    desk.assignments.close()
    desk.assign(1, HERE)
    desk.run(1000)
    assert desk.requested == []
