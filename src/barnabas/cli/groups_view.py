"""Queries about groups: their members, their committed offsets, and the offsets of the logs.

All but two requests go through the client library, so that they work wherever it can connect. The library lacks
OffsetDelete, and the epochs and two states of consumer groups (KIP-848). These requests go to the coordinator over a
plain connection; without one, epochs and those states are omitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, OffsetSpec

from barnabas.cli.clients import TIMEOUT_S, admin_client, reason, result
from barnabas.cli.raw_requests import Wire
from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.embedded.failures import Failure
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

UNKNOWN: Final = "Unknown"
#: Kafka's names for the library's numbers.
_STATES: Final[dict[Enum, str]] = {
    ConsumerGroupState.UNKNOWN: UNKNOWN,
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}
_TYPES: Final[dict[Enum, str]] = {ConsumerGroupType.CONSUMER: "consumer", ConsumerGroupType.CLASSIC: "classic"}
TYPES: Final = tuple(_TYPES.values())
#: The last two are states of consumer groups that the library has no names for.
STATES: Final = (*_STATES.values(), "Assigning", "Reconciling")


class Listed(NamedTuple):
    group: str
    type: str
    state: str
    #: A group that never had members: its consumers assign partitions themselves.
    simple: bool


class MemberRow(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    #: The target assignment of a member of a consumer group; None in a classic group.
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None


class NodeAddress(NamedTuple):
    broker_id: int
    host: str
    port: int


class Described(NamedTuple):
    group: str
    type: str
    state: str
    coordinator: NodeAddress
    assignor: str
    members: tuple[MemberRow, ...]
    #: Consumer groups only.
    epoch: int | None = None
    assignment_epoch: int | None = None

    @property
    def is_active(self) -> bool:
        return self.state not in ("Empty", "Dead")


class GroupsView:
    """Queries and changes groups. Every method raises Failure if the cluster does not answer."""

    def __init__(self, bootstrap: str, properties: Iterable[str] | None) -> None:
        self._admin: AdminClient = admin_client(bootstrap, properties)
        self._leaders: dict[TopicPartition, int] | None = None

    # -- groups

    def listed(self) -> list[Listed]:
        answer = result(self._admin.list_consumer_groups(request_timeout=TIMEOUT_S), "cannot list groups")
        for error in answer.errors:
            raise Failure(f"not all coordinators listed their groups: {_reason(error)}")
        found = [
            Listed(
                one.group_id,
                _TYPES.get(one.type, UNKNOWN),
                _STATES.get(one.state, UNKNOWN),
                one.is_simple_consumer_group,
            )
            for one in answer.valid
        ]
        unclear = [one.group for one in found if one.state == UNKNOWN]
        states = {one.group: one.state for one in self.describe(unclear)}
        return sorted(one._replace(state=states.get(one.group, one.state)) for one in found)

    def describe(self, groups: Sequence[str], *, epochs: bool = False) -> list[Described]:
        """Describes groups in the given order, with their epochs if available. A group that does not exist is Dead."""
        if not groups:
            return []
        futures = self._admin.describe_consumer_groups(list(groups), request_timeout=TIMEOUT_S)
        found = [_described(result(futures[group], f"cannot describe group {group}")) for group in groups]
        return [_refined(one) if one.type == "consumer" and (epochs or one.state == UNKNOWN) else one for one in found]

    def delete(self, groups: Sequence[str]) -> dict[str, str | None]:
        """Deletes groups. Returns group -> the reason why it could not be deleted."""
        found: dict[str, str | None] = {}
        for group, future in self._admin.delete_consumer_groups(list(groups), request_timeout=TIMEOUT_S).items():
            try:
                result(future, "cannot delete it")
            except Failure as refused:
                found[group] = refused.message.partition(": ")[2]
            else:
                found[group] = None
        return found

    # -- offsets

    def committed(self, group: str) -> dict[TopicPartition, int]:
        request = ConsumerGroupTopicPartitions(group)
        futures = self._admin.list_consumer_group_offsets([request], request_timeout=TIMEOUT_S)
        answer = result(futures[group], f"cannot read the offsets of group {group}")
        return {
            TopicPartition(one.topic, one.partition): one.offset for one in answer.topic_partitions if one.offset >= 0
        }

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Stores offsets for a group without members."""
        wanted = [ClientPartition(topic, index, offset) for (topic, index), offset in sorted(offsets.items())]
        request = ConsumerGroupTopicPartitions(group, wanted)
        futures = self._admin.alter_consumer_group_offsets([request], request_timeout=TIMEOUT_S)
        answer = result(futures[group], f"cannot reset the offsets of group {group}")
        failed = {f"{one.topic}-{one.partition}": one.error for one in answer.topic_partitions if one.error is not None}
        if failed:
            raise Failure(
                f"cannot reset all offsets of group {group}",
                "\n".join(f"{name}: {_reason(error)}" for name, error in sorted(failed.items())),
            )

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str | None]:
        """Deletes offsets. Returns partition -> the reason why its offset could not be deleted."""
        (described,) = self.describe([group])
        by_topic: dict[str, list[OffsetDeleteRequest.OffsetDeleteRequestPartition]] = {}
        for topic, index in sorted(partitions):
            requested = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index)
            by_topic.setdefault(topic, []).append(requested)
        topics = [
            OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=rows) for name, rows in by_topic.items()
        ]
        with Wire(described.coordinator.host, described.coordinator.port) as wire:
            answer = wire.call(OffsetDeleteRequest(group_id=group, topics=topics), 0, OffsetDeleteResponse)
        if answer.error_code:
            raise Failure(f"cannot delete offsets of group {group}: {ErrorCode(answer.error_code).name}")
        return {
            TopicPartition(topic.name, row.partition_index): ErrorCode(row.error_code).name if row.error_code else None
            for topic in answer.topics
            for row in topic.partitions
        }

    # -- logs

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Returns all partitions of a topic. Raises Failure if the topic does not exist."""
        found = sorted(partition for partition in self._led() if partition.topic == topic)
        if not found:
            raise Failure(f"no topic {topic}")
        return found

    def missing(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Returns the given partitions that do not exist or have no leader."""
        leaders = self._led()
        return [partition for partition in partitions if leaders.get(partition, -1) < 0]

    def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(partitions, OffsetSpec.earliest())

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the log end offsets. Partitions without a leader are omitted, as in all of these methods."""
        return self._offsets(partitions, OffsetSpec.latest())

    def since(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """Returns the offset of the first record at or after a time; partitions without such a record are omitted."""
        found = self._offsets(partitions, OffsetSpec.for_timestamp(timestamp_ms))
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    def _offsets(self, partitions: Collection[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        missing = set(self.missing(partitions))
        requested = {ClientPartition(*partition): spec for partition in partitions if partition not in missing}
        futures = self._admin.list_offsets(requested, request_timeout=TIMEOUT_S) if requested else {}
        return {
            TopicPartition(one.topic, one.partition): result(future, f"cannot read the offsets of {one.topic}").offset
            for one, future in futures.items()
        }

    def _led(self) -> dict[TopicPartition, int]:
        """Returns partition -> leader, -1 if there is none. The cluster is queried only once."""
        if self._leaders is None:
            metadata: Any = self._admin.list_topics(timeout=TIMEOUT_S)
            self._leaders = {
                TopicPartition(name, index): partition.leader
                for name, topic in metadata.topics.items()
                for index, partition in topic.partitions.items()
            }
        return self._leaders


def _reason(error: object) -> str:
    if isinstance(error, KafkaException) and error.args:
        error = error.args[0]
    return reason(error) if isinstance(error, KafkaError) else str(error)


def _described(answer: ConsumerGroupDescription) -> Described:
    members = []
    for one in answer.members:
        target = None if one.target_assignment is None else _partitions(one.target_assignment.topic_partitions)
        partitions = _partitions(one.assignment.topic_partitions)
        members.append(MemberRow(one.member_id, one.group_instance_id, one.client_id, one.host, partitions, target))
    node = answer.coordinator
    return Described(
        answer.group_id,
        _TYPES.get(answer.type, UNKNOWN),
        _STATES.get(answer.state, UNKNOWN),
        NodeAddress(node.id, node.host, node.port),
        answer.partition_assignor,
        tuple(sorted(members)),
    )


def _partitions(found: Iterable[ClientPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(one.topic, one.partition) for one in found))


def _refined(described: Described) -> Described:
    """Returns the group with its epochs and the state that its coordinator reports; unchanged if that cannot be
    requested.
    """
    try:
        with Wire(described.coordinator.host, described.coordinator.port) as wire:
            request = ConsumerGroupDescribeRequest(group_ids=[described.group])
            (found,) = wire.call(request, 0, ConsumerGroupDescribeResponse).groups
    except Failure:
        return described
    if found.error_code:
        return described
    epochs = {one.member_id: one.member_epoch for one in found.members}
    return described._replace(
        state=found.group_state,
        members=tuple(one._replace(epoch=epochs.get(one.member_id)) for one in described.members),
        epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
    )
