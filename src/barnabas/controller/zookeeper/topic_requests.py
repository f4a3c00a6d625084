"""CreateTopics, DeleteTopics and CreatePartitions in ZooKeeper mode.

The controller writes the assignment, or the marker, as any tool would, and continues as if it had found it. The
response waits until this broker knows the result, as Kafka's does, so that a client that asks for metadata finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from barnabas.common.errors import ErrorCode
from barnabas.common.portions import PARTITIONS_IN_PORTION, Portions
from barnabas.controller.requests import topics
from barnabas.controller.requests.reassignments import is_in_progress
from barnabas.controller.requests.result import Result, Versioned
from barnabas.controller.zookeeper.active_controller import ActiveController
from barnabas.controller.zookeeper.answers import Answer
from barnabas.controller.zookeeper.decision_writes import topic_creation, topic_growth
from barnabas.controller.zookeeper.new_partitions import without_state
from barnabas.controller.zookeeper.record_store import ReadPartitions, Settled
from barnabas.controller.zookeeper.request_parts import parts_of_create_partitions, parts_of_create_topics
from barnabas.controller.zookeeper.slices import Job
from barnabas.metadata.topics import MIGRATING_DIRECTORY, PartitionImage, TopicImage, partition_to_record
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.records_metadata import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from barnabas.znodes import paths
from barnabas.znodes.topic_text import TopicText
from barnabas.znodes.topic_znodes import ReplicaAssignment

T = TypeVar("T")
_CreatedRow = CreateTopicsResponse.CreatableTopicResult
_GrownRow = CreatePartitionsResponse.CreatePartitionsTopicResult


def create_topics(
    active: ActiveController,
    request: CreateTopicsRequest,
    reply: Callable[[CreateTopicsResponse], None],
    actor: str,
    permit: topics.Permit | None,
) -> None:
    taken = [topic.name for topic in request.topics if active.has_unread_znode(topic.name)]
    free = CreateTopicsRequest(
        topics=[topic for topic in request.topics if topic.name not in taken],
        timeout_ms=request.timeout_ms,
        validate_only=request.validate_only,
    )
    answer = active.answers.add(reply, lambda code: reply(topics.create_refused(request, code)), request.timeout_ms)
    active.core.slices.begin(_creation(active, free, [_exists(active, name) for name in taken], answer, actor, permit))


def _creation(
    active: ActiveController,
    request: CreateTopicsRequest,
    taken: list[_CreatedRow],
    answer: Answer,
    actor: str,
    permit: topics.Permit | None,
) -> Job:
    """Creates the topics of a request, in slices if they have many partitions."""
    core = active.core
    rows: list[_CreatedRow] = []
    lost: set[str] = set()
    for number, part in enumerate(parts_of_create_topics(request)):
        if number:
            yield
        result = yield from topics.create_topics_in_portions(core.view(), part, actor, permit)
        if len(result.records) > PARTITIONS_IN_PORTION:
            yield from _large_creation(active, result, rows, lost.update)
        else:
            rows += result.response.topics
            core.propose_in_job(_without_states(result), lost.update)

    def written(_: frozenset[str]) -> None:
        found = [_exists(active, row.name) if row.name in lost else row for row in rows]
        _answer_when_known(active, answer, CreateTopicsResponse(topics=[*found, *taken]))

    core.records.after_all(written)


def _large_creation(
    active: ActiveController, result: Result[CreateTopicsResponse], rows: list[_CreatedRow], lost: Settled
) -> Job:
    """Creates one topic of thousands of partitions: the text of its znode is made in slices, and the image gets its
    partitions without a record for each.
    """
    core = active.core
    records: list[Message] = []
    partitions: dict[int, PartitionImage] = {}
    text: TopicText | None = None
    for number, (record, _) in enumerate(result.records):
        if number and not number % PARTITIONS_IN_PORTION:
            yield
        if isinstance(record, PartitionRecord):
            assert text is not None, "the record of the topic is the first"
            assigned = ReplicaAssignment(tuple(record.replicas))
            text.put(record.partition_id, assigned.replicas, (), ())
            partitions[record.partition_id] = without_state(assigned, MIGRATING_DIRECTORY)
            continue
        records.append(record)
        if isinstance(record, TopicRecord):
            text, topic = TopicText(record.topic_id), record
    assert text is not None
    yield
    content = text.encoded()
    yield
    if topic.name in core.image.topics_by_name or active.has_unread_znode(topic.name):
        rows.append(_exists(active, topic.name))
        return
    rows += result.response.topics
    config = {
        record.name: record.value for record in records if isinstance(record, ConfigRecord) and record.value is not None
    }
    core.write_in_job(
        [topic_creation(topic.name, config, content)],
        lost,
        records=records,
        partitions=ReadPartitions(topic.topic_id, partitions),
        cause=result.cause,
    )


def _exists(active: ActiveController, name: str) -> _CreatedRow:
    text = f"Topic '{name}' already exists."
    if active.deletions.is_deleting(name):
        text = f"Topic '{name}' is marked for deletion."
    return _CreatedRow(name=name, error_code=ErrorCode.TOPIC_ALREADY_EXISTS, error_message=text, configs=[])


def create_partitions(
    active: ActiveController,
    request: CreatePartitionsRequest,
    reply: Callable[[CreatePartitionsResponse], None],
    actor: str,
    permit: topics.Permit | None,
) -> None:
    def refused(code: ErrorCode) -> None:
        reply(topics.create_partitions_refused(request, code))

    answer = active.answers.add(reply, refused, request.timeout_ms)
    active.core.slices.begin(_growth(active, request, answer, actor, permit))


def _growth(
    active: ActiveController, request: CreatePartitionsRequest, answer: Answer, actor: str, permit: topics.Permit | None
) -> Job:
    """Adds the partitions of a request, in slices if they or their topics are many."""
    core = active.core
    rows: list[_GrownRow] = []
    conflicts: set[str] = set()
    for number, part in enumerate(parts_of_create_partitions(request, core.image.topics_by_name)):
        if number:
            yield
        for topic in _known(active, part):
            yield from core.records.texts.prepare(topic)
        is_decided = False
        while not is_decided:
            moving = [row.name for row in part.topics if _is_moving(active, row.name)]
            free = CreatePartitionsRequest(
                topics=[row for row in part.topics if row.name not in moving],
                timeout_ms=part.timeout_ms,
                validate_only=part.validate_only,
            )
            result = yield from topics.create_partitions_in_portions(core.view(), free, actor, permit)
            if len(result.records) > PARTITIONS_IN_PORTION:
                (grown,) = _known(active, free)
                is_decided = yield from _large_growth(active, grown, result, conflicts.update)
            else:
                core.propose_in_job(_without_states(result), conflicts.update)
                is_decided = True
        rows += [*result.response.results, *(_moves(name) for name in moving)]

    def written(_: frozenset[str]) -> None:
        if conflicts:
            answer.refuse(ErrorCode.NOT_CONTROLLER)
        else:
            _answer_when_known(active, answer, CreatePartitionsResponse(results=rows))

    core.records.after_all(written)


def _large_growth(
    active: ActiveController, topic: TopicImage, result: Result[CreatePartitionsResponse], lost: Settled
) -> Portions[bool]:
    """Adds thousands of partitions to one topic, as `_large_creation` creates one; returns False, and adds none, if
    another decision changed the topic meanwhile.
    """
    core = active.core
    added: dict[int, PartitionImage] = {}
    for number, (record, _) in enumerate(result.records):
        if number and not number % PARTITIONS_IN_PORTION:
            yield
        assert isinstance(record, PartitionRecord), "a growth consists of partitions"
        added[record.partition_id] = without_state(ReplicaAssignment(tuple(record.replicas)), MIGRATING_DIRECTORY)
    yield from core.records.texts.prepare(topic, tuple(added.values()))
    known = core.image.topics_by_id.get(topic.topic_id)
    if known is None or len(known.partitions) != len(topic.partitions) or _is_moving(active, topic.name):
        return False
    grown = replace(known, partitions=(*known.partitions, *added.values()))
    version = core.records.version_of(paths.topic(known.name))
    core.write_in_job(
        [topic_growth(known.name, core.records.texts.encoded(grown), version)],
        lost,
        partitions=ReadPartitions(known.topic_id, added),
        cause=result.cause,
    )
    return True


def _known(active: ActiveController, request: CreatePartitionsRequest) -> list[TopicImage]:
    by_name = active.core.image.topics_by_name
    return [by_name[row.name] for row in request.topics if row.name in by_name]


def _is_moving(active: ActiveController, name: str) -> bool:
    topic = active.core.image.topics_by_name.get(name)
    return topic is not None and any(is_in_progress(partition) for partition in topic.partitions)


def _moves(name: str) -> _GrownRow:
    text = f"A partition reassignment is in progress for the topic '{name}'."
    return _GrownRow(name=name, error_code=ErrorCode.REASSIGNMENT_IN_PROGRESS, error_message=text)


def _without_states(result: Result[T]) -> Result[T]:
    """Returns the decision without the states of its partitions. A later decision creates the states."""
    records: list[Versioned] = []
    for record, version in result.records:
        if isinstance(record, PartitionRecord):
            assigned = without_state(ReplicaAssignment(tuple(record.replicas)), MIGRATING_DIRECTORY)
            record = partition_to_record(record.topic_id, record.partition_id, assigned)
        records.append((record, version))
    return Result(records, result.response, result.cause)


def _answer_when_known(active: ActiveController, answer: Answer, response: object) -> None:
    """Answers when this broker knows the first states, which are decided once the assignment is written."""
    active.core.records.after_all(lambda _: active.when_own_broker_knows(lambda: answer.give(response)))


def delete_topics(
    active: ActiveController,
    request: DeleteTopicsRequest,
    reply: Callable[[DeleteTopicsResponse], None],
    actor: str,
    permit: topics.Permit | None,
) -> None:
    result = topics.delete_topics(active.core.view(), request, actor, permit)
    answer = active.answers.add(reply, lambda code: reply(topics.delete_refused(request, code)), request.timeout_ms)
    names = _names(active, result.records)
    active.deletions.mark(names, lambda: active.when_own_broker_knows(lambda: answer.give(result.response)))


def _names(active: ActiveController, records: Iterable[Versioned]) -> list[str]:
    by_id = active.core.image.topics_by_id
    return [by_id[record.topic_id].name for record, _ in records if isinstance(record, RemoveTopicRecord)]
