"""/brokers/topics: the assignment of a topic, and the state of each of its partitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from barnabas.common.host import Buffer
from barnabas.common.types import uuid_from_text, uuid_to_text
from barnabas.metadata.topics import NO_LEADER, RECOVERED, RECOVERING
from barnabas.znodes import paths
from barnabas.znodes.jvm_order import mutable_order
from barnabas.znodes.znode_json import JsonObject, ZnodeError, read_object

#: The versions of /brokers/topics/T: 2 added the replicas of a reassignment, 3 the topic id.
TOPIC_VERSION: Final = 3
STATE_VERSION: Final = 1


class ReplicaAssignment(NamedTuple):
    """The replicas of a partition; during a reassignment the target replicas come first, then those to be removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class TopicAssignment(NamedTuple):
    """The content of /brokers/topics/T. Partitions can have holes; versions 1 and 2 have no topic id."""

    topic_id: bytes | None
    partitions: Mapping[int, ReplicaAssignment]


class PartitionState(NamedTuple):
    """The content of a state znode. The partition epoch is the znode's data version and not part of its content."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    leader_recovery_state: int = RECOVERED


def encode_topic(assignment: TopicAssignment) -> bytes:
    """Returns the content in version 3."""
    partitions = assignment.partitions
    content = {
        "version": str(TOPIC_VERSION),
        "partitions": _object({number: item.replicas for number, item in partitions.items()}),
        "adding_replicas": _object({number: item.adding for number, item in partitions.items() if item.adding}),
        "removing_replicas": _object({number: item.removing for number, item in partitions.items() if item.removing}),
    }
    if assignment.topic_id is not None:
        content["topic_id"] = f'"{uuid_to_text(assignment.topic_id)}"'
    members = (f'"{key}":{content[key]}' for key in mutable_order(content, built_with=4))
    return f"{{{','.join(members)}}}".encode()


def _object(replicas: Mapping[int, tuple[int, ...]]) -> str:
    """Returns a JSON object of replicas by partition. Thousands of partitions share a few replica lists."""
    lists = {each: f"[{','.join(map(str, each))}]" for each in set(replicas.values())}
    numbers = _partition_order(len(replicas)) if _is_range(replicas) else _ordered(replicas)
    members = [f'"{number}":{lists[replicas[number]]}' for number in numbers]
    return f"{{{','.join(members)}}}"


def _is_range(replicas: Mapping[int, tuple[int, ...]]) -> bool:
    return all(number == place for place, number in enumerate(replicas))


def _ordered(numbers: Iterable[int]) -> list[int]:
    return [int(number) for number in mutable_order(map(str, numbers))]


@lru_cache(maxsize=8)
def _partition_order(count: int) -> Sequence[int]:
    """Returns the order of the first partitions, which costs more than everything else in a large topic."""
    return _ordered(range(count))


def decode_topic(path: str, data: Buffer | None) -> TopicAssignment:
    """Returns the assignment from version 1, 2 or 3. Raises ZnodeError for anything else, and for a partition whose
    replicas are not a list of distinct broker ids.
    """
    content = read_object(path, data)
    content.version(1, TOPIC_VERSION)
    replicas = content.nested("partitions")
    adding = _optional_object(content, "adding_replicas")
    removing = _optional_object(content, "removing_replicas")
    found: dict[int, ReplicaAssignment] = {}
    for number in replicas:
        if not paths.is_number(number):
            raise content.wrong(f"partitions.{number}", "is not a partition number")
        found[int(number)] = ReplicaAssignment(
            replicas.broker_ids(number), _some_replicas(adding, number), _some_replicas(removing, number)
        )
    return TopicAssignment(_topic_id(content), found)


def _optional_object(content: JsonObject, key: str) -> JsonObject | None:
    return content.nested(key) if content.has(key) else None


def _some_replicas(content: JsonObject | None, number: str) -> tuple[int, ...]:
    return content.broker_ids(number) if content is not None and content.has(number) else ()


def _topic_id(content: JsonObject) -> bytes | None:
    text = content.optional_text("topic_id")
    if text is None:
        return None
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise content.wrong("topic_id", f"is {error}") from error


def encode_state(state: PartitionState) -> bytes:
    recovery = f'"leader_recovery_state":{state.leader_recovery_state},' if state.leader_recovery_state else ""
    return (
        f'{{"controller_epoch":{state.controller_epoch},"leader":{state.leader},"version":{STATE_VERSION},{recovery}'
        f'"leader_epoch":{state.leader_epoch},"isr":[{",".join(map(str, state.isr))}]}}'
    ).encode()


#: A state exactly as `encode_state` and Kafka write it, with numbers that need no further check.
_WRITTEN_STATE: Final = re.compile(
    rb'\{"controller_epoch":(\d{1,9}),"leader":(-1|\d{1,9}),"version":1,(?:"leader_recovery_state":([01]),)?'
    rb'"leader_epoch":(\d{1,9}),"isr":\[((?:\d{1,9},)*\d{1,9})\]\}'
)


def decode_state(path: str, data: Buffer | None) -> PartitionState:
    """Returns the state of a partition. Raises ZnodeError for invalid content."""
    match = _WRITTEN_STATE.fullmatch(data) if data is not None else None
    if match is not None:
        controller_epoch, leader, recovery, leader_epoch, members = match.groups()
        isr = tuple(map(int, members.split(b",")))
        if len(set(isr)) == len(isr):
            return PartitionState(int(leader), int(leader_epoch), isr, int(controller_epoch), int(recovery or 0))
    return _read_state(path, data)


def _read_state(path: str, data: Buffer | None) -> PartitionState:
    content = read_object(path, data)
    if content.has("version"):
        content.version(1, STATE_VERSION)
    leader = content.int32("leader")
    if leader < NO_LEADER:
        raise content.wrong("leader", f"is {leader}, which is not a broker id")
    recovery = content.int32("leader_recovery_state") if content.has("leader_recovery_state") else RECOVERED
    if recovery not in (RECOVERED, RECOVERING):
        raise content.wrong("leader_recovery_state", f"is {recovery}, known are 0 and 1")
    return PartitionState(
        leader, content.int32("leader_epoch"), content.broker_ids("isr"), content.int32("controller_epoch"), recovery
    )


def check_state(path: str, state: PartitionState, replicas: tuple[int, ...]) -> None:
    """Checks a state against the assignment of its partition. Raises ZnodeError for a leader or an ISR member that is
    not a replica.
    """
    strangers = sorted({state.leader, *state.isr} - {NO_LEADER, *replicas})
    if strangers:
        raise ZnodeError(path, f"names brokers {strangers}, which are not among the replicas {list(replicas)}")
