"""Requests of the controller in ZooKeeper mode, as changes of the metadata image and of this broker's replicas.

    UpdateMetadata   -> brokers, topics and partitions of the image; gives no replica a role
    LeaderAndIsr     -> partitions of the image, and the roles of this broker's replicas
    StopReplica      -> ends roles and deletes logs; the image stays

The gate, in this order, with Kafka's errors:

    broker epoch      below this broker's own                                        STALE_BROKER_EPOCH
    controller epoch  below the highest seen in any of the three requests            STALE_CONTROLLER_EPOCH
    topic id          LeaderAndIsr for a topic whose log here has another id         INCONSISTENT_TOPIC_ID
    leader epoch      LeaderAndIsr: not above the replica's                          STALE_CONTROLLER_EPOCH
                      StopReplica: below the replica's, unless it deletes            FENCED_LEADER_EPOCH

A request about many partitions is applied in slices, each of which is a change of its own; the rest is refused if a
later controller's request came meanwhile. LeaderAndIsr is answered when its roles are assigned, and StopReplica waits
for the roles that it could end. Each change gets the next offset, so that the image moves forward as in a quorum; the
epoch of the image is the controller's. UpdateMetadata replaces a partition in the image only by one whose leader epoch
and partition epoch are not lower. Source: `ReplicaManager` and `ZkMetadataCache` of Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from barnabas.broker.requests.steps import SLICE_UNITS
from barnabas.common.errors import ErrorCode, StorageFault
from barnabas.common.host import Clock
from barnabas.common.types import ZERO_UUID, TopicPartition
from barnabas.controller.zookeeper.slices import portions, portions_by_topic
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.metadata.registrations import BrokerImage, Endpoint
from barnabas.metadata.store import MetadataStore
from barnabas.metadata.topics import (
    NO_LEADER,
    RECOVERED,
    UNASSIGNED_DIRECTORY,
    UNKNOWN_PARTITION,
    PartitionImage,
    partition_to_record,
)
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.records_metadata import RemoveTopicRecord, TopicRecord, UnregisterBrokerRecord
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from barnabas.replication.partition import Role
from barnabas.replication.replica_manager import ReplicaManager

#: Leaders in UpdateMetadata that are not broker ids: the topic is being deleted.
LEADER_DURING_DELETE: Final = -2
#: Leader epochs of StopReplica that no replica's epoch refuses: a deletion, and versions without the field.
EPOCH_DURING_DELETE: Final = -2
NO_EPOCH: Final = -1
#: The version of LeaderAndIsr from which the rows of the response are below topic ids.
_BY_TOPIC_ID: Final = 5
#: The epoch of other brokers, which UpdateMetadata does not contain.
UNKNOWN_BROKER_EPOCH: Final = -1

_Key = tuple[str, int]


_ShownRow = UpdateMetadataRequest.UpdateMetadataPartitionState
_RoleRow = LeaderAndIsrRequest.LeaderAndIsrPartitionState
_Row = TypeVar("_Row", _ShownRow, _RoleRow)
T = TypeVar("T")
#: The work of a request, whose result is the response.
Answering = Generator[int, None, T]


class _Rows(NamedTuple, Generic[_Row]):
    """Rows of one topic, in the same form for all versions of the request."""

    name: str
    topic_id: bytes
    partitions: Sequence[_Row]


class ControllerFeed:
    """Applies the requests of controllers to the image and the replicas of one broker."""

    def __init__(
        self,
        node_id: int,
        store: MetadataStore,
        replicas: ReplicaManager,
        clock: Clock,
        broker_epoch: Callable[[], int],
        on_introduced: Callable[[MetadataImage], None] | None = None,
    ) -> None:
        """`on_introduced` is called at the first UpdateMetadata of a controller to a registration of this broker, with
        the image before it, if that has topics.
        """
        self._node_id = node_id
        self._store = store
        self._replicas = replicas
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._on_introduced = on_introduced
        #: The controller epoch and the broker epoch of the last UpdateMetadata.
        self._introduced = (0, UNKNOWN_BROKER_EPOCH)
        #: The highest controller epoch in any request so far.
        self.controller_epoch = 0
        #: The controller of the last UpdateMetadata or LeaderAndIsr; -1 before the first.
        self.controller_id = -1
        #: Whether that controller is a broker of Apache Kafka, which keeps no journal.
        self.is_of_kafka = False

    # -- the gate

    def _refusal(self, broker_epoch: int, controller_epoch: int) -> ErrorCode:
        """Returns the error if the request, or the next slice of it, is refused; otherwise records its controller
        epoch.
        """
        if broker_epoch != UNKNOWN_BROKER_EPOCH and broker_epoch < self._broker_epoch():
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE

    def _note_controller(self, controller_id: int, client_id: str | None) -> None:
        """Records the sender. Only a controller of Apache Kafka has its plain id as the client id."""
        self.controller_id = controller_id
        self.is_of_kafka = client_id == str(controller_id)

    def _note_introduction(self, request: UpdateMetadataRequest) -> None:
        epochs = (request.controller_epoch, max(request.broker_epoch, self._broker_epoch()))
        if epochs != self._introduced:
            self._introduced = epochs
            if self._on_introduced is not None and self._store.image.topics_by_name:
                self._on_introduced(self._store.image)

    # -- UpdateMetadata

    def update_metadata(
        self, request: UpdateMetadataRequest, client_id: str | None = None
    ) -> Answering[UpdateMetadataResponse]:
        """Applies brokers and partitions; the brokers of the request are all live brokers."""
        for number, topics in enumerate(_slices(_shown_rows(request, self._store.image))):
            if number:
                yield SLICE_UNITS
            code = self._refusal(request.broker_epoch, request.controller_epoch)
            if code is not ErrorCode.NONE:
                return UpdateMetadataResponse(error_code=code)
            self._note_controller(request.controller_id, client_id)
            self._note_introduction(request)
            delta = MetadataDelta(self._store.image)
            delta.roles = frozenset()
            if not number:
                self._take_brokers(delta, [_broker_of(row) for row in request.live_brokers])
            for topic in topics:
                self._take_shown(delta, topic)
            self._publish(delta)
        return UpdateMetadataResponse()

    def _take_shown(self, delta: MetadataDelta, topic: _Rows[_ShownRow]) -> None:
        states = {
            row.partition_index: _metadata_partition(row, self._known(delta, topic.topic_id, row))
            for row in topic.partitions
            if row.leader != LEADER_DURING_DELETE
        }
        if states:
            self._take_partitions(delta, topic.name, topic.topic_id, states, is_role=False)
        elif topic.partitions:
            self._remove_topic(delta, topic.name, topic.topic_id)

    def _take_brokers(self, delta: MetadataDelta, live: Iterable[BrokerImage]) -> None:
        image = delta.image
        alive: set[int] = set()
        for broker in live:
            alive.add(broker.broker_id)
            before = image.brokers.get(broker.broker_id)
            if broker.broker_id == self._node_id:
                broker = _with_epoch(broker, self._broker_epoch())
            if broker != before:
                delta.replay(broker.to_record())
        for broker_id, before in sorted(image.brokers.items()):
            if broker_id not in alive:
                delta.replay(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=before.epoch))

    def _known(self, delta: MetadataDelta, topic_id: bytes, row: _ShownRow) -> PartitionImage | None:
        topic = delta.image.topics_by_id.get(topic_id)
        if topic is None or row.partition_index >= len(topic.partitions):
            return None
        return topic.partitions[row.partition_index]

    # -- LeaderAndIsr

    def leader_and_isr(
        self, request: LeaderAndIsrRequest, version: int, client_id: str | None = None
    ) -> Answering[LeaderAndIsrResponse]:
        """Gives replicas of this broker their roles. The response has a row with an error code for each partition."""
        rows = _role_rows(request, self._store.image)
        errors: dict[_Key, ErrorCode] = {}
        for number, topics in enumerate(_slices(rows)):
            if number:
                yield SLICE_UNITS
            yield from self._settled()
            code = self._refusal(request.broker_epoch, request.controller_epoch)
            if code is not ErrorCode.NONE:
                return LeaderAndIsrResponse(error_code=code)
            self._note_controller(request.controller_id, client_id)
            errors |= self._take_roles(topics)
        yield from self._settled()
        errors |= {key: self._role_result(key) for key, code in errors.items() if code is ErrorCode.NONE}
        return _leader_response(version, rows, errors)

    def _take_roles(self, topics: Sequence[_Rows[_RoleRow]]) -> dict[_Key, ErrorCode]:
        delta = MetadataDelta(self._store.image)
        errors: dict[_Key, ErrorCode] = {}
        for topic in topics:
            states: dict[int, PartitionImage] = {}
            for row in topic.partitions:
                code = self._role_refusal(topic, row)
                errors[topic.name, row.partition_index] = code
                if code is ErrorCode.NONE:
                    states[row.partition_index] = _role_partition(row)
            if states:
                self._take_partitions(delta, topic.name, topic.topic_id, states, is_role=True)
        delta.roles = frozenset(key for key, code in errors.items() if code is ErrorCode.NONE)
        self._publish(delta)
        return errors

    def _settled(self) -> Generator[int, None, None]:
        """Waits until the replicas have the roles of the slices before. A role that is assigned after StopReplica would
        create the log again.
        """
        while self._replicas.is_behind:
            yield SLICE_UNITS

    def _role_refusal(self, topic: _Rows[_RoleRow], row: _RoleRow) -> ErrorCode:
        if self._node_id not in row.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        log = self._replicas.logs.get(TopicPartition(topic.name, row.partition_index))
        if log is not None and ZERO_UUID not in (topic.topic_id, log.topic_id) and log.topic_id != topic.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        partition = self._replicas.find(topic.name, row.partition_index)
        if partition is None:
            return ErrorCode.NONE
        if partition.role is Role.OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE if row.leader_epoch > partition.leader_epoch else ErrorCode.STALE_CONTROLLER_EPOCH

    def _role_result(self, key: _Key) -> ErrorCode:
        """Returns the error code for an assigned role: an error if the log of the replica is unusable."""
        partition = self._replicas.find(*key)
        if partition is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR if partition.role is Role.OFFLINE else ErrorCode.NONE
        return ErrorCode.KAFKA_STORAGE_ERROR if TopicPartition(*key) in self._replicas.unopened else ErrorCode.NONE

    # -- StopReplica

    def stop_replica(self, request: StopReplicaRequest) -> Answering[StopReplicaResponse]:
        """Ends the roles of these replicas, and deletes the logs of those that the request marks for deletion."""
        response = StopReplicaResponse()
        rows = list(_stop_rows(request))
        for number, portion in enumerate(portions(rows)):
            if number:
                yield SLICE_UNITS
            yield from self._settled()
            code = self._refusal(request.broker_epoch, request.controller_epoch)
            if code is not ErrorCode.NONE:
                return StopReplicaResponse(error_code=code)
            response.partition_errors += [
                StopReplicaResponse.StopReplicaPartitionError(
                    topic_name=name, partition_index=index, error_code=self._stop(name, index, leader_epoch, delete)
                )
                for name, index, leader_epoch, delete in portion
            ]
        return response

    def _stop(self, name: str, index: int, leader_epoch: int, delete: bool) -> ErrorCode:
        partition = self._replicas.find(name, index)
        if partition is not None:
            if partition.role is Role.OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR
            is_fenced = leader_epoch not in (EPOCH_DURING_DELETE, NO_EPOCH) and leader_epoch < partition.leader_epoch
            if is_fenced:
                return ErrorCode.FENCED_LEADER_EPOCH
            self._replicas.remove(partition, delete=delete)
        topic_partition = TopicPartition(name, index)
        self._replicas.unopened.discard(topic_partition)
        if not delete or self._replicas.logs.get(topic_partition) is None:
            return ErrorCode.NONE
        try:
            self._replicas.logs.delete(topic_partition)  # The replica has a log but no role.
        except StorageFault as fault:
            self._replicas.on_storage_fault(fault)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    # -- the image

    def _take_partitions(
        self, delta: MetadataDelta, name: str, topic_id: bytes, states: dict[int, PartitionImage], *, is_role: bool
    ) -> None:
        """Adds partitions to the image, and removes a topic of the same name with another id. A partition with a role
        is in the delta even if UpdateMetadata has already shown the same state.
        """
        present = delta.topics.topic_id_of(name)
        if present is not None and present != topic_id:
            delta.replay(RemoveTopicRecord(topic_id=present))
            present = None
        if present is None:
            delta.replay(TopicRecord(name=name, topic_id=topic_id))
        changed = delta.topics.changed.get(topic_id)
        base = delta.image.topics_by_id.get(topic_id) if changed is None or changed.base is not None else None
        count = len(base.partitions) if base is not None else 0
        pending = () if changed is None else changed.changed_partitions
        for index in range(count, max(states)):
            if index not in states and index not in pending:
                delta.replay(partition_to_record(topic_id, index, UNKNOWN_PARTITION))
        for index, partition in sorted(states.items()):
            before = base.partitions[index] if base is not None and index < count else None
            if is_role or before is None or _is_newer(partition, before):
                delta.replay(partition_to_record(topic_id, index, partition))

    def _remove_topic(self, delta: MetadataDelta, name: str, topic_id: bytes) -> None:
        """Removes the topic, unless a newer topic has the same name."""
        present = delta.topics.topic_id_of(name)
        if present is not None and topic_id in (present, ZERO_UUID):
            delta.replay(RemoveTopicRecord(topic_id=present))

    def _publish(self, delta: MetadataDelta) -> None:
        image = delta.apply(delta.image.offset + 1, self.controller_epoch, self._clock.wall_ms())
        self._store.publish(delta, image)


def _is_newer(partition: PartitionImage, before: PartitionImage) -> bool:
    """Returns whether a partition replaces the known one, that is, whether none of its epochs is lower."""
    return partition.leader_epoch > before.leader_epoch or (
        partition.leader_epoch == before.leader_epoch
        and partition.partition_epoch >= before.partition_epoch
        and partition != before
    )


def _metadata_partition(row: _ShownRow, before: PartitionImage | None) -> PartitionImage:
    """Returns a partition as UpdateMetadata shows it. Fields that the request lacks keep their values as long as the
    replicas are the same.
    """
    replicas = tuple(row.replicas)
    kept = before if before is not None and before.replicas == replicas else UNKNOWN_PARTITION
    return PartitionImage(
        replicas,
        tuple(row.isr),
        max(row.leader, NO_LEADER),
        row.leader_epoch,
        row.zk_version,
        (UNASSIGNED_DIRECTORY,) * len(replicas),
        kept.removing_replicas,
        kept.adding_replicas,
        kept.leader_recovery_state if row.leader_epoch == kept.leader_epoch else RECOVERED,
    )


def _role_partition(row: _RoleRow) -> PartitionImage:
    return PartitionImage(
        tuple(row.replicas),
        tuple(row.isr),
        max(row.leader, NO_LEADER),
        row.leader_epoch,
        row.partition_epoch,
        (UNASSIGNED_DIRECTORY,) * len(row.replicas),
        tuple(row.removing_replicas),
        tuple(row.adding_replicas),
        row.leader_recovery_state,
    )


def _broker_of(row: UpdateMetadataRequest.UpdateMetadataBroker) -> BrokerImage:
    """Returns a live broker. Before version 1 it has one address, of the listener PLAINTEXT."""
    endpoints = tuple(
        sorted(Endpoint(each.listener, each.host, each.port, each.security_protocol) for each in row.endpoints)
    ) or (Endpoint("PLAINTEXT", row.v0_host, row.v0_port, 0),)
    return BrokerImage(row.id, UNKNOWN_BROKER_EPOCH, ZERO_UUID, endpoints, rack=row.rack, fenced=False)


def _with_epoch(broker: BrokerImage, epoch: int) -> BrokerImage:
    return BrokerImage(broker.broker_id, epoch, ZERO_UUID, broker.endpoints, rack=broker.rack, fenced=False)


def _slices(topics: Iterable[_Rows[_Row]]) -> Iterator[list[_Rows[_Row]]]:
    for portion in portions_by_topic((topic, topic.partitions) for topic in topics):
        yield [topic._replace(partitions=rows) for topic, rows in portion]


def _rows_by_topic(
    grouped: Iterable[tuple[str, bytes, Iterable[_Row]]], ungrouped: Iterable[_Row], image: MetadataImage
) -> list[_Rows[_Row]]:
    """Returns the rows of a request by topic. The first versions do not group them, and the next ones have no ids."""
    found = {name: (topic_id, list(rows)) for name, topic_id, rows in grouped}
    for row in ungrouped:
        found.setdefault(row.topic_name, (ZERO_UUID, []))[1].append(row)
    return [_Rows(name, _id_of(name, topic_id, image), rows) for name, (topic_id, rows) in found.items()]


def _shown_rows(request: UpdateMetadataRequest, image: MetadataImage) -> list[_Rows[_ShownRow]]:
    grouped = ((topic.topic_name, topic.topic_id, topic.partition_states) for topic in request.topic_states)
    return _rows_by_topic(grouped, request.ungrouped_partition_states, image)


def _role_rows(request: LeaderAndIsrRequest, image: MetadataImage) -> list[_Rows[_RoleRow]]:
    grouped = ((topic.topic_name, topic.topic_id, topic.partition_states) for topic in request.topic_states)
    return _rows_by_topic(grouped, request.ungrouped_partition_states, image)


def _id_of(name: str, topic_id: bytes, image: MetadataImage) -> bytes:
    """Returns the id of a topic; if the request has none, the id of the topic with that name."""
    if topic_id != ZERO_UUID:
        return topic_id
    known = image.topics_by_name.get(name)
    return ZERO_UUID if known is None else known.topic_id


def _leader_response(
    version: int, topics: Sequence[_Rows[_RoleRow]], errors: dict[_Key, ErrorCode]
) -> LeaderAndIsrResponse:
    """Returns a row for each partition: below version 5 with its topic's name, later below its topic's id."""
    response = LeaderAndIsrResponse()
    for topic in topics:
        rows = [
            LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                topic_name=topic.name,
                partition_index=row.partition_index,
                error_code=errors[topic.name, row.partition_index],
            )
            for row in topic.partitions
        ]
        if version < _BY_TOPIC_ID:
            response.partition_errors += rows
        else:
            entry = LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=rows)
            response.topics.append(entry)
    return response


def _stop_rows(request: StopReplicaRequest) -> Iterable[tuple[str, int, int, bool]]:
    """Yields (topic, partition, leader epoch, delete) of all versions."""
    for row in request.ungrouped_partitions:
        yield row.topic_name, row.partition_index, NO_EPOCH, request.delete_partitions
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield topic.name, index, NO_EPOCH, request.delete_partitions
    for states in request.topic_states:
        for state in states.partition_states:
            yield states.topic_name, state.partition_index, state.leader_epoch, state.delete_partition
