"""Creation and deletion of topics, and new partitions: validation, placement, records.

Error codes and messages are those of Kafka 4.1's controller. Not supported: create.topic.policy.class.name (a Java
class). A `Permit` limits how many partitions the client creates and deletes (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from barnabas.common.config_keys import TOPIC_KEYS
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.portions import PARTITIONS_IN_PORTION, Portions, whole
from barnabas.common.topic_names import topic_name_problem
from barnabas.common.types import METADATA_TOPIC, ZERO_UUID
from barnabas.controller.requests.configs import ConfigChange, alter_resource, check_count
from barnabas.controller.requests.partitions import with_first_state
from barnabas.controller.requests.result import Cause, ControllerEvent, Result, Versioned
from barnabas.controller.requests.view import ControllerView
from barnabas.decisions.placement import StripedPlacement
from barnabas.metadata.image import TOPIC_RESOURCE, MetadataImage
from barnabas.metadata.topics import UNKNOWN_PARTITION, PartitionImage, TopicImage, partition_to_record
from barnabas.metadata.versions import partition_version
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.records_metadata import PartitionRecord, RemoveTopicRecord, TopicRecord

_T = TypeVar("_T")
#: Takes the name of a topic and a number of its partitions. Raises RequestFailed if the client has to wait.
Permit = Callable[[str, int], None]

#: The maximum number of new partitions in one request, which must fit in one batch (Kafka's MAX_RECORDS_PER_USER_OP).
MAX_PARTITIONS_PER_REQUEST: Final = 10_000
_TOO_MANY: Final = "Excessively large number of partitions per request."

UNKNOWN_TOPIC: Final = "This server does not host this topic-partition."
UNKNOWN_ID: Final = "This server does not host this topic ID."


def create_topics(view: ControllerView, request: CreateTopicsRequest, actor: str) -> Result[CreateTopicsResponse]:
    """Creates each topic completely or not at all; valid topics are created even if others in the request fail."""
    return whole(create_topics_in_portions(view, request, actor))


def create_topics_in_portions(
    view: ControllerView, request: CreateTopicsRequest, actor: str, permit: Permit | None = None
) -> Portions[Result[CreateTopicsResponse]]:
    """Does the same as `create_topics`, up to `PARTITIONS_IN_PORTION` partitions at a time."""
    duplicates = _duplicates(topic.name for topic in request.topics)
    response = CreateTopicsResponse()
    records: list[Versioned] = []
    late: list[CreateTopicsResponse.CreatableTopicResult] = []
    created: list[str] = []
    budget = MAX_PARTITIONS_PER_REQUEST
    alike = names_alike(view.image, (topic.name for topic in request.topics))
    seen: set[str] = set()
    for topic in request.topics:
        if topic.name in seen:
            continue
        seen.add(topic.name)
        if topic.name in duplicates:
            late.append(_topic_error(topic.name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
            continue
        if topic.name == METADATA_TOPIC:
            text = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
            late.append(_topic_error(topic.name, ErrorCode.INVALID_REQUEST, text))
            continue
        try:
            new_records, result = yield from _create_topic(
                view, topic, alike, budget, only_checked=request.validate_only
            )
            if permit is not None:
                permit(topic.name, result.num_partitions)
        except RequestFailed as error:
            response.topics.append(_topic_error(topic.name, error.code, error.message))
            continue
        budget -= result.num_partitions
        created.append(topic.name)
        records += new_records
        response.topics.append(result)
    response.topics += late
    return Result(records, response, Cause(ControllerEvent.CREATE_TOPICS, actor, ", ".join(created)))


def new_partitions(view: ControllerView, request: CreateTopicsRequest) -> int:
    """Returns the number of partitions that the request would create if all of it is valid."""
    default = view.config.int_of("num.partitions")
    return sum(
        len(topic.assignments) or (default if topic.num_partitions == -1 else topic.num_partitions)
        for topic in request.topics
    )


def _create_topic(
    view: ControllerView,
    topic: CreateTopicsRequest.CreatableTopic,
    alike: Mapping[str, str],
    budget: int,
    *,
    only_checked: bool,
) -> Portions[tuple[list[Versioned], CreateTopicsResponse.CreatableTopicResult]]:
    _check_new_name(view.image, topic.name, alike)
    if len(topic.assignments) > budget:
        raise RequestFailed(ErrorCode.POLICY_VIOLATION, _TOO_MANY)
    config_records = _new_topic_configs(view, topic)
    partitions = yield from _assigned(view, topic) if topic.assignments else _placed(view, topic, budget)
    topic_id = view.random.uuid()
    version = partition_version(view.image.metadata_version)
    records: list[Versioned] = []
    if not only_checked:
        records = [(TopicRecord(name=topic.name, topic_id=topic_id), 0), *config_records]
        for index, partition in enumerate(partitions):
            if index and not index % PARTITIONS_IN_PORTION:
                yield
            records.append((_partition_record(topic_id, index, partition, version), version))
    result = CreateTopicsResponse.CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        topic_config_error_code=ErrorCode.NONE,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=_effective_configs(view, topic),
    )
    return records, result


def _check_new_name(image: MetadataImage, name: str, alike: Mapping[str, str]) -> None:
    problem = topic_name_problem(name)
    if name in image.topics_by_name:
        raise RequestFailed(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if problem is not None:
        raise RequestFailed(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    colliding = alike.get(_unified(name))
    if colliding is not None:
        text = f"Topic '{name}' collides with existing topic: {colliding}"
        raise RequestFailed(ErrorCode.INVALID_TOPIC_EXCEPTION, text)


def names_alike(image: MetadataImage, names: Iterable[str]) -> Mapping[str, str]:
    """Returns the existing topics that differ only in "." and "_" from one of these names, by the name with "_" only:
    metrics could not distinguish the two. Reads the names of all topics once, and only if it has to.
    """
    wanted = {_unified(name) for name in names if "." in name or "_" in name}
    found: dict[str, str] = {}
    if wanted:
        for existing in image.topics_by_name:
            unified = _unified(existing)
            if unified in wanted:
                found[unified] = min(existing, found.get(unified, existing))
    return found


def _unified(name: str) -> str:
    return name.replace(".", "_")


def _new_topic_configs(view: ControllerView, topic: CreateTopicsRequest.CreatableTopic) -> list[Versioned]:
    check_count(topic.configs)
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        text = f"Null value not supported for topic configs: {','.join(nulls)}"
        raise RequestFailed(ErrorCode.INVALID_CONFIG, text)
    changes = [ConfigChange(config.name, ConfigChange.SET, config.value) for config in topic.configs]
    return alter_resource(view, TOPIC_RESOURCE, topic.name, changes, is_new=True) if changes else []


def _assigned(view: ControllerView, topic: CreateTopicsRequest.CreatableTopic) -> Portions[list[PartitionImage]]:
    """Returns the partitions of a request that assigns the brokers explicitly."""
    if topic.replication_factor != -1:
        text = "A manual partition assignment was specified, but replication factor was not set to -1."
        raise RequestFailed(ErrorCode.INVALID_REQUEST, text)
    if topic.num_partitions != -1:
        text = "A manual partition assignment was specified, but numPartitions was not set to -1."
        raise RequestFailed(ErrorCode.INVALID_REQUEST, text)
    partitions: dict[int, PartitionImage] = {}
    # Thousands of partitions share a few replica lists; new partitions with the same replicas share one value.
    known: dict[tuple[int, ...], PartitionImage] = {}
    replication_factor: int | None = None
    for number, assignment in enumerate(topic.assignments):
        if number and not number % PARTITIONS_IN_PORTION:
            yield
        index = assignment.partition_index
        if index in partitions:
            text = f"Found multiple manual partition assignments for partition {index}"
            raise RequestFailed(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        replicas = tuple(assignment.broker_ids)
        partition = known.get(replicas) if len(replicas) == replication_factor else None
        if partition is None:
            partition = known[replicas] = _assigned_partition(view, index, replicas, replication_factor)
            replication_factor = len(replicas)
        partitions[index] = partition
    if sorted(partitions) != list(range(len(partitions))):
        text = "partitions should be a consecutive 0-based integer sequence"
        raise RequestFailed(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return [partitions[index] for index in range(len(partitions))]


def _assigned_partition(
    view: ControllerView, index: int, replicas: Sequence[int], replication_factor: int | None
) -> PartitionImage:
    check_assignment(view, replicas, replication_factor)
    partition = _new_partition(view, replicas)
    if partition is None:
        raise RequestFailed(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown.",
        )
    return partition


def check_assignment(view: ControllerView, replicas: Sequence[int], replication_factor: int | None) -> None:
    """Raises RequestFailed(INVALID_REPLICA_ASSIGNMENT) if a manual assignment of these replicas is not allowed."""
    prefix = "The manual partition assignment includes"
    problem = None
    if not replicas:
        problem = f"{prefix} an empty replica list."
    previous: int | None = None
    for broker_id in sorted(replicas):
        if broker_id not in view.image.brokers:
            problem = f"{prefix} broker {broker_id}, but no such broker is registered."
            break
        if broker_id == previous:
            problem = f"{prefix} the broker {broker_id} more than once."
            break
        previous = broker_id
    if problem is None and replication_factor is not None and len(replicas) != replication_factor:
        problem = (
            f"{prefix} a partition with {len(replicas)} replica(s), but this is not consistent with previous "
            f"partitions, which have {replication_factor} replica(s)."
        )
    if problem is not None:
        raise RequestFailed(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _placed(
    view: ControllerView, topic: CreateTopicsRequest.CreatableTopic, budget: int
) -> Portions[list[PartitionImage]]:
    """Returns the partitions of a request that gives only their number and replication factor."""
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        text = "Replication factor must be larger than 0, or -1 to use the default value."
        raise RequestFailed(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        text = "Number of partitions was set to an invalid non-positive value."
        raise RequestFailed(ErrorCode.INVALID_PARTITIONS, text)
    count = view.config.int_of("num.partitions") if topic.num_partitions == -1 else topic.num_partitions
    factor = topic.replication_factor
    if factor == -1:
        factor = view.config.int_of("default.replication.factor")
    if count > budget:
        raise RequestFailed(ErrorCode.POLICY_VIOLATION, _TOO_MANY)
    prefix = f"Unable to replicate the partition {factor} time(s): "
    placement = StripedPlacement(view.usable_brokers(), view.random)
    try:
        placement.check(factor)
    except RequestFailed as error:
        raise RequestFailed(error.code, prefix + (error.message or "")) from None
    known: dict[tuple[int, ...], PartitionImage] = {}
    partitions: list[PartitionImage] = []
    for index in range(count):
        if index and not index % PARTITIONS_IN_PORTION:
            yield
        replicas = tuple(placement.place(factor))
        partition = known.get(replicas)
        if partition is None:
            partition = known[replicas] = _placed_partition(view, replicas, factor)
        partitions.append(partition)
    return partitions


def _placed_partition(view: ControllerView, replicas: Sequence[int], factor: int) -> PartitionImage:
    partition = _new_partition(view, replicas)
    if partition is None:
        raise RequestFailed(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): All brokers are currently fenced or in controlled "
            "shutdown.",
        )
    return partition


def _new_partition(view: ControllerView, replicas: Sequence[int]) -> PartitionImage | None:
    directories = tuple(view.default_directory(replica) for replica in replicas)
    return with_first_state(view, UNKNOWN_PARTITION._replace(replicas=tuple(replicas), directories=directories))


def _partition_record(topic_id: bytes, index: int, partition: PartitionImage, version: int) -> PartitionRecord:
    record = partition_to_record(topic_id, index, partition)
    if version < 1:
        record.directories = []
    return record


def _effective_configs(
    view: ControllerView, topic: CreateTopicsRequest.CreatableTopic
) -> list[CreateTopicsResponse.CreatableTopicConfigs]:
    given = {config.name: config.value for config in topic.configs}
    configs = []
    for key in sorted(TOPIC_KEYS):
        if TOPIC_KEYS[key].internal and key not in given:
            continue
        text, source = (given[key], 1) if key in given else view.default_topic_value(key)
        configs.append(
            CreateTopicsResponse.CreatableTopicConfigs(
                name=key, value=text, read_only=False, config_source=int(source), is_sensitive=False
            )
        )
    return configs


def _topic_error(name: str, code: ErrorCode, text: str | None) -> CreateTopicsResponse.CreatableTopicResult:
    return CreateTopicsResponse.CreatableTopicResult(name=name, error_code=code, error_message=text, configs=[])


def _duplicates(items: Iterable[_T]) -> set[_T]:
    """Returns the items that occur more than once."""
    return {item for item, count in Counter(items).items() if count > 1}


def delete_topics(
    view: ControllerView, request: DeleteTopicsRequest, actor: str, permit: Permit | None = None
) -> Result[DeleteTopicsResponse]:
    """Deletes topics by name or, since version 6, by id. The caller checks `delete.topic.enable`."""
    response = DeleteTopicsResponse()
    requested = _requested_topics(request)
    twice = _duplicates(requested)
    targets: dict[bytes, TopicImage] = {}
    for name, topic_id in dict.fromkeys(requested):
        try:
            topic = _topic_to_delete(view, name, topic_id, is_duplicate=(name, topic_id) in twice)
        except RequestFailed as error:
            response.responses.append(_deletion(name, topic_id, error.code, error.message))
            continue
        if topic.topic_id in targets:
            targets.pop(topic.topic_id)
            text = "The provided topic name maps to an ID that was already supplied."
            response.responses.append(_deletion(topic.name, topic.topic_id, ErrorCode.INVALID_REQUEST, text))
            continue
        targets[topic.topic_id] = topic
    records: list[Versioned] = []
    deleted: list[str] = []
    for topic_id, topic in targets.items():
        try:
            if permit is not None:
                permit(topic.name, len(topic.partitions))
        except RequestFailed as error:
            response.responses.append(_deletion(topic.name, topic_id, error.code, error.message))
            continue
        records.append((RemoveTopicRecord(topic_id=topic_id), 0))
        response.responses.append(_deletion(topic.name, topic_id, ErrorCode.NONE, None))
        deleted.append(topic.name)
    names = ", ".join(deleted)
    return Result(records, response, Cause(ControllerEvent.DELETE_TOPICS, actor, names))


def _requested_topics(request: DeleteTopicsRequest) -> list[tuple[str | None, bytes]]:
    """Returns (name or None, id or zero) per topic; before version 6 a request has names only."""
    requested: list[tuple[str | None, bytes]] = [(name, ZERO_UUID) for name in request.topic_names]
    return requested + [(topic.name, topic.topic_id) for topic in request.topics]


def _topic_to_delete(view: ControllerView, name: str | None, topic_id: bytes, *, is_duplicate: bool) -> TopicImage:
    if name is not None and topic_id != ZERO_UUID:
        raise RequestFailed(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if name is None and topic_id == ZERO_UUID:
        raise RequestFailed(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if is_duplicate:
        raise RequestFailed(ErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if name is None else 'name'}.")
    if name is None:
        topic = view.image.topics_by_id.get(topic_id)
        code, text = ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_ID
    else:
        topic = view.image.topics_by_name.get(name)
        code, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC
    if topic is None:
        raise RequestFailed(code, text)
    return topic


def _deletion(
    name: str | None, topic_id: bytes, code: ErrorCode, text: str | None
) -> DeleteTopicsResponse.DeletableTopicResult:
    return DeleteTopicsResponse.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=text)


def create_partitions(
    view: ControllerView, request: CreatePartitionsRequest, actor: str
) -> Result[CreatePartitionsResponse]:
    """Adds partitions to each topic: all that the request asks for, or none."""
    return whole(create_partitions_in_portions(view, request, actor))


def additional_partitions(view: ControllerView, request: CreatePartitionsRequest) -> int:
    """Returns the number of partitions that the request would add if all of it is valid."""
    present = view.image.topics_by_name
    return sum(topic.count - len(present[topic.name].partitions) for topic in request.topics if topic.name in present)


def create_partitions_in_portions(
    view: ControllerView, request: CreatePartitionsRequest, actor: str, permit: Permit | None = None
) -> Portions[Result[CreatePartitionsResponse]]:
    """Does the same as `create_partitions`, up to `PARTITIONS_IN_PORTION` partitions at a time."""
    duplicates = _duplicates(topic.name for topic in request.topics)
    response = CreatePartitionsResponse()
    records: list[Versioned] = []
    grown: list[str] = []
    for name in sorted(duplicates):
        response.results.append(_growth(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
    for topic in request.topics:
        if topic.name in duplicates:
            continue
        try:
            new_records = yield from _add_partitions(view, topic, MAX_PARTITIONS_PER_REQUEST - len(records))
            if permit is not None:
                permit(topic.name, len(new_records))
        except RequestFailed as error:
            response.results.append(_growth(topic.name, error.code, error.message))
            continue
        records += new_records
        grown.append(f"{topic.name} to {topic.count}")
        response.results.append(_growth(topic.name, ErrorCode.NONE, None))
    if request.validate_only:
        records = []
    return Result(records, response, Cause(ControllerEvent.CREATE_PARTITIONS, actor, ", ".join(grown)))


def _growth(name: str, code: ErrorCode, text: str | None) -> CreatePartitionsResponse.CreatePartitionsTopicResult:
    return CreatePartitionsResponse.CreatePartitionsTopicResult(name=name, error_code=code, error_message=text)


def _add_partitions(
    view: ControllerView, topic: CreatePartitionsRequest.CreatePartitionsTopic, budget: int
) -> Portions[list[Versioned]]:
    image = view.image.topics_by_name.get(topic.name)
    if image is None:
        raise RequestFailed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(image.partitions)
    if topic.count == present:
        raise RequestFailed(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if topic.count < present:
        text = f"The topic {topic.name} currently has {present} partition(s); {topic.count} would not be an increase."
        raise RequestFailed(ErrorCode.INVALID_PARTITIONS, text)
    additional = topic.count - present
    if topic.assignments is not None and len(topic.assignments) != additional:
        text = (
            f"Attempted to add {additional} additional partition(s), but only {len(topic.assignments)} "
            "assignment(s) were specified."
        )
        raise RequestFailed(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    if additional > budget:
        raise RequestFailed(ErrorCode.POLICY_VIOLATION, _TOO_MANY)
    factor = len(image.partitions[0].replicas)
    placement = None
    if topic.assignments is None:
        placement = StripedPlacement(view.usable_brokers(), view.random)
        placement.check(factor)
    version = partition_version(view.image.metadata_version)
    records: list[Versioned] = []
    for added in range(additional):
        if added and not added % PARTITIONS_IN_PORTION:
            yield
        index = present + added
        if placement is not None:
            partition = _placed_partition(view, placement.place(factor), factor)
        else:
            assert topic.assignments is not None, "partitions are placed or assigned"
            partition = _assigned_partition(view, index, topic.assignments[added].broker_ids, factor)
        records.append((_partition_record(image.topic_id, index, partition, version), version))
    return records


# Responses to requests that are refused as a whole: every requested topic, with one code.


def create_refused(request: CreateTopicsRequest, code: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_topic_error(topic.name, code, None) for topic in request.topics])


def delete_refused(request: DeleteTopicsRequest, code: ErrorCode, text: str | None = None) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[_deletion(name, topic_id, code, text) for name, topic_id in _requested_topics(request)]
    )


def create_partitions_refused(request: CreatePartitionsRequest, code: ErrorCode) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[_growth(topic.name, code, None) for topic in request.topics])
