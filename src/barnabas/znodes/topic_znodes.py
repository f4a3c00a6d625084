"""/brokers/topics: the assignment of a topic, and the state of each of its partitions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.common.host import Buffer
from barnabas.common.portions import PARTITIONS_IN_PORTION, Portions, whole
from barnabas.common.types import uuid_from_text
from barnabas.metadata.topics import NO_LEADER, RECOVERED, RECOVERING
from barnabas.znodes import paths
from barnabas.znodes.topic_text import TOPIC_VERSION, TopicText
from barnabas.znodes.znode_json import JsonObject, ZnodeError, read_object

STATE_VERSION: Final = 1


class ReplicaAssignment(NamedTuple):
    """The replicas of a partition; during a reassignment the target replicas come first, then those to be removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class TopicAssignment(NamedTuple):
    """The content of /brokers/topics/T. Partition numbers need not be consecutive; versions 1 and 2 have no topic
    id.
    """

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
    """Returns the content of a topic's znode, in version 3."""
    text = TopicText(assignment.topic_id)
    for number, item in assignment.partitions.items():
        text.put(number, item.replicas, item.adding, item.removing)
    return text.encoded()


def decode_topic(path: str, data: Buffer | None) -> TopicAssignment:
    """Returns the assignment from version 1, 2 or 3. Raises ZnodeError for anything else, and for a partition whose
    replicas are not a list of distinct broker ids.
    """
    return whole(topic_in_portions(path, data))


def topic_in_portions(path: str, data: Buffer | None) -> Portions[TopicAssignment]:
    """Does the same as `decode_topic`, up to `PARTITIONS_IN_PORTION` partitions at a time."""
    content = read_object(path, data)
    content.version(1, TOPIC_VERSION)
    replicas = content.nested("partitions")
    adding = _optional_object(content, "adding_replicas")
    removing = _optional_object(content, "removing_replicas")
    found: dict[int, ReplicaAssignment] = {}
    for number in replicas:
        if found and not len(found) % PARTITIONS_IN_PORTION:
            yield
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
        raise content.wrong("leader_recovery_state", f"is {recovery}, expected 0 or 1")
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
