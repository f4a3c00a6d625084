"""The decisions of ZooKeeper mode on the image of a controller in memory: what its topics are as znodes, what is read
of them again, which parts a request has, and what changes when brokers are gone. Each is made a second time.
"""

from __future__ import annotations

import json
from itertools import pairwise
from random import Random

from barnabas.common.types import uuid_to_text
from barnabas.controller.requests.view import ControllerView
from barnabas.controller.zookeeper import feature_answers, imbalance, new_partitions, replica_changes, request_parts
from barnabas.controller.zookeeper.assignment_texts import AssignmentTexts
from barnabas.controller.zookeeper.topic_reads import TopicReading, checked
from barnabas.controller.zookeeper.znode_writes import create, delete, put, set_data
from barnabas.metadata.topics import LOST_DIRECTORY, MIGRATING_DIRECTORY, PartitionImage, TopicImage
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest
from barnabas.simulation.history import Violation
from barnabas.znodes import paths
from barnabas.znodes.topic_znodes import PartitionState, decode_topic, encode_state
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import ZnodeContent

_EPOCH = 5
_TOO_LARGE = 101


class ZnodeExplorer:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._texts = AssignmentTexts()

    def run(self, view: ControllerView) -> None:
        """Raises Violation if a decision is wrong."""
        self._cut_requests(view)
        self._join_answers()
        self._write()
        for topic in view.image.topics_by_name.values():
            self._compare_text(topic)
            self._read(topic)
        self._compare_text(self._large())
        self._settle(view)
        feature_answers.feature_answers(UpdateFeaturesRequest(), 1, is_active=True)
        feature_answers.feature_answers(UpdateFeaturesRequest(), 1, is_active=False)

    def _cut_requests(self, view: ControllerView) -> None:
        request_parts.parts_of_alter_partition(AlterPartitionRequest())
        request_parts.parts_of_elect_leaders(ElectLeadersRequest(topic_partitions=[]))
        request_parts.parts_of_alter_reassignments(AlterPartitionReassignmentsRequest())
        request_parts.parts_of_create_topics(CreateTopicsRequest())
        request_parts.parts_of_create_partitions(CreatePartitionsRequest(), dict(view.image.topics_by_name))

    def _join_answers(self) -> None:
        random = self._random
        topics = [random.choice((b"a" * 16, b"b" * 16, b"c" * 16)) for _ in range(4)]
        make = AlterPartitionResponse
        altered = [
            make(
                error_code=random.choice((0, 0, 0, 41)),
                topics=[make.TopicData(topic_id=each, partitions=[make.PartitionData(partition_index=number)])],
            )
            for number, each in enumerate(topics)
        ]
        request_parts.joined_alter_partition(altered)
        row = ElectLeadersResponse.ReplicaElectionResult
        cell = ElectLeadersResponse.PartitionResult
        elected = [
            ElectLeadersResponse(
                error_code=random.choice((0, 0, 0, 41)),
                replica_election_results=[row(topic=each.hex(), partition_result=[cell(partition_id=number)])],
            )
            for number, each in enumerate(topics)
        ]
        request_parts.joined_elect_leaders(elected)
        self._join_moves([each.hex() for each in topics])

    def _join_moves(self, topics: list[str]) -> None:
        row = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
        cell = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
        answers = [
            AlterPartitionReassignmentsResponse(
                responses=[row(name=each, partitions=[cell(partition_index=number)])] if number else []
            )
            for number, each in enumerate(topics)
        ]
        joined = request_parts.joined_alter_reassignments(answers)
        found = [(each.name, cell.partition_index) for each in joined.responses for cell in each.partitions]
        names = [each.name for each in joined.responses]
        repeats = any(one == other for one, other in pairwise(names))
        if found != [(each, number) for number, each in enumerate(topics) if number] or repeats:
            raise Violation(f"joined wrongly: {found} of {topics}")

    def _write(self) -> None:
        for write in (create("/a", b"x"), set_data("/a", b"x", 3), put("/a", b"x"), delete("/a")):
            write.part()
            write.is_done(None)
            write.fitting(None)
            if write.size_bytes < len(write.path) + len(write.data or b""):
                raise Violation(f"{write} is larger than it says")

    # -- topics as znodes

    def _compare_text(self, topic: TopicImage) -> None:
        """Writes a topic several times with a partition changed, and reads it with the JSON of Python."""
        for _ in range(3):
            data = self._texts.encoded(topic)
            expected = {
                "version": 3,
                "topic_id": uuid_to_text(topic.topic_id),
                "partitions": {str(number): list(each.replicas) for number, each in enumerate(topic.partitions)},
                "adding_replicas": _named(topic, "adding_replicas"),
                "removing_replicas": _named(topic, "removing_replicas"),
            }
            if json.loads(data) != expected:
                raise Violation(f"the znode of {topic.name} is {data!r}, it should be {expected}")
            if not topic.partitions:
                return
            index = self._random.randrange(len(topic.partitions))
            partitions = list(topic.partitions)
            partitions[index] = partitions[index]._replace(
                adding_replicas=self._random.choice(((), (1,))), removing_replicas=self._random.choice(((), (2, 3)))
            )
            partitions += self._random.choice(([], partitions[:1]))
            topic = TopicImage(topic.name, topic.topic_id, tuple(partitions))

    def _large(self) -> TopicImage:
        partition = PartitionImage((1, 2), (1,), 1, 0, 0, (MIGRATING_DIRECTORY,) * 2)
        return TopicImage("large", b"L" * 16, (partition,) * self._random.choice((_TOO_LARGE - 1, _TOO_LARGE, 1_001)))

    def _read(self, topic: TopicImage) -> None:
        """Reads a topic from its znodes, with a state missing or damaged, and compares it with the image."""
        path = paths.topic(topic.name)
        assignment = decode_topic(path, AssignmentTexts().encoded(topic))
        if len(checked(path, assignment)) != len(topic.partitions):
            raise Violation(f"{path} is read with other partitions")
        self._check_refusals(topic)
        reading = TopicReading(topic.name, assignment, 4)
        damaged = self._random.choice((None, None, *range(len(topic.partitions))))
        missing = self._random.choice((None, None, *range(len(topic.partitions))))
        for index, each in enumerate(topic.partitions):
            if reading.is_complete:
                raise Violation("a topic is complete before all of its partitions are read")
            reading.add(index, self._znode(each, is_damaged=index == damaged, is_missing=index == missing))
        if not reading.is_complete:
            raise Violation("a topic is not complete although all of its partitions are read")
        is_broken = damaged is not None and damaged != missing
        if bool(reading.broken) != is_broken or (is_broken and reading.broken[0][1] != 7):
            raise Violation(f"broken states are {reading.broken}")
        stateless = {damaged, missing}
        epochs = {index: _EPOCH for index in range(len(topic.partitions)) if index not in stateless}
        if reading.epochs != epochs:
            raise Violation(f"controller epochs are {reading.epochs}, they should be {epochs}")
        _, read = reading.change(topic.topic_id, None)
        for index, each in enumerate(topic.partitions):
            self._compare_read(read.partitions[index], each, has_state=index not in stateless)
        known = TopicImage(topic.name, topic.topic_id, topic.partitions[: self._random.randrange(3)])
        reading.change(topic.topic_id, known)
        self._refuse_fewer(reading, topic)

    def _refuse_fewer(self, reading: TopicReading, topic: TopicImage) -> None:
        more = TopicImage(topic.name, topic.topic_id, (*topic.partitions, *topic.partitions[:1]))
        try:
            reading.change(topic.topic_id, more)
        except ZnodeError:
            return
        raise Violation("a topic lost partitions, and this is no error")

    def _check_refusals(self, topic: TopicImage) -> None:
        path = paths.topic(topic.name)
        for cut, text in ((topic.partitions[1:], None), ((), None), (topic.partitions, "holes")):
            partitions = {index + (text is not None): each.replicas for index, each in enumerate(cut)}
            if text is None and cut:
                partitions[len(cut)] = ()
            content = {"version": 3, "partitions": {str(index): list(each) for index, each in partitions.items()}}
            try:
                checked(path, decode_topic(path, json.dumps(content).encode()))
            except ZnodeError:
                continue
            raise Violation(f"an assignment with {partitions} is taken")

    def _znode(self, partition: PartitionImage, *, is_damaged: bool, is_missing: bool) -> ZnodeContent | None:
        if is_missing:
            return None
        state = PartitionState(
            partition.leader,
            partition.leader_epoch,
            partition.isr,
            _EPOCH,
            partition.leader_recovery_state,
        )
        if is_damaged:
            state = self._random.choice((state._replace(leader=4_000), state._replace(isr=(4_000,))))
        return ZnodeContent(encode_state(state), 7)

    def _compare_read(self, read: PartitionImage, partition: PartitionImage, *, has_state: bool) -> None:
        expected = partition._replace(
            directories=(MIGRATING_DIRECTORY,) * len(partition.replicas), elr=(), last_known_elr=()
        )
        if has_state:
            expected = expected._replace(partition_epoch=7)
        else:
            expected = expected._replace(
                isr=(), leader=-1, leader_epoch=-1, partition_epoch=-1, leader_recovery_state=0
            )
        if read != expected:
            raise Violation(f"a partition is read as {read}, it should be {expected}")

    # -- partitions

    def _settle(self, view: ControllerView) -> None:
        topics = list(view.image.topics_by_name.values())
        located = [(topic, index, each) for topic in topics for index, each in enumerate(topic.partitions)]
        broker_id = self._random.choice([*view.image.brokers, 4_000])
        new_partitions.first_states(view, located)
        replica_changes.settle(view, located)
        replica_changes.controlled_shutdown(view, broker_id, located)
        replica_changes.raised(view, located)
        for _, _, partition in located[:3]:
            replica_changes.is_unsettled(view, partition)
        imbalance.rebalance(view, imbalance.imbalanced(view, self._random.choice((0, 10, 50))))
        lost = list(replica_changes.directories_lost(view, broker_id, located))
        expected = [(topic.topic_id, index) for topic, index, each in located if broker_id in each.replicas]
        if [(record.topic_id, record.partition_id) for record in lost] != expected or not all(
            record.directories[list(record.replicas).index(broker_id)] == LOST_DIRECTORY
            and list(record.directories).count(LOST_DIRECTORY) == 1
            for record in lost
        ):
            raise Violation(f"the replicas of broker {broker_id} are not in a lost directory: {lost}")


def _named(topic: TopicImage, field: str) -> dict[str, list[int]]:
    rows = {str(number): list(getattr(each, field)) for number, each in enumerate(topic.partitions)}
    return {number: brokers for number, brokers in rows.items() if brokers}
