"""The requests to the brokers that follow from a change of the image: LeaderAndIsr 7, UpdateMetadata 8, StopReplica 4.

    broker is new, or has a new epoch   UpdateMetadata with everything, then LeaderAndIsr for all its replicas
                                        (`introduce`); all brokers get UpdateMetadata with the brokers first
    leader epoch rose, or first state   LeaderAndIsr to the brokers of the replicas that are online
    partition changed in any way        UpdateMetadata to all brokers
    replica left the assignment         StopReplica with deletion to its broker, with the partition's leader epoch
    topic left the image                UpdateMetadata with the leader -2; its deletion sends that, and StopReplica

A broker gets its requests in the order LeaderAndIsr, UpdateMetadata, StopReplica; an UpdateMetadata with only the
brokers comes before them, so that a broker knows the live brokers before its first role (G40). A partition without a
state is in no request. A change of the ISR by the leader itself changes no role, so only UpdateMetadata reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from barnabas.controller.zookeeper.new_partitions import has_state
from barnabas.decisions import zookeeper_rules
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.metadata.registrations import BrokerImage
from barnabas.metadata.topics import PartitionImage, TopicImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.protocol.messages.stop_replica import StopReplicaRequest
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest

#: The leader in UpdateMetadata of a topic that is being deleted, and the leader epoch of its StopReplica.
LEADER_DURING_DELETE: Final = -2
EPOCH_DURING_DELETE: Final = -2

_Role = LeaderAndIsrRequest.LeaderAndIsrPartitionState
_Shown = UpdateMetadataRequest.UpdateMetadataPartitionState
_Stopped = StopReplicaRequest.StopReplicaPartitionState
#: A partition: the name of its topic, the topic's id, its number.
_Key = tuple[str, bytes, int]


class Sender(NamedTuple):
    """The sender of a batch of requests: a controller in one epoch."""

    controller_id: int
    controller_epoch: int
    #: The listener on which brokers connect to each other.
    listener: str
    #: The epoch of the controller that wrote the state of a partition: (topic id, partition) -> epoch.
    epoch_of: Callable[[bytes, int], int]


class RequestBatch:
    """The requests that follow from one change; each partition's row is built once for all brokers."""

    def __init__(self, sender: Sender, image: MetadataImage, to: Iterable[int] | None = None) -> None:
        """Begins a batch without requests. `to` are the brokers that get requests; None stands for all brokers."""
        self._sender = sender
        self._image = image
        self._to = None if to is None else frozenset(to)
        self._roles: dict[int, dict[_Key, _Role]] = {}
        self._shown: dict[_Key, _Shown] = {}
        self._stopped: dict[int, dict[tuple[str, int], _Stopped]] = {}
        self._brokers_changed = False
        #: The brokers that get everything afterwards, with the brokers in the first request.
        self._new_brokers: set[int] = set()
        #: Whether brokers are new or have other addresses, which the others know before roles name them.
        self._brokers_first = False

    def broker_is_new(self, broker_id: int) -> None:
        self._new_brokers.add(broker_id)
        self.brokers_changed(first=True)

    def brokers_changed(self, *, first: bool) -> None:
        self._brokers_changed = True
        self._brokers_first |= first

    def role(self, topic: str, topic_id: bytes, index: int, partition: PartitionImage, new_on: Sequence[int]) -> None:
        """Adds the roles of all replicas that are online; the replica is new on the brokers in `new_on`."""
        key = (topic, topic_id, index)
        known = self._role_row(key, partition, is_new=False)
        for broker_id in online_replicas(self._image, partition):
            is_new = broker_id in new_on
            row = self._role_row(key, partition, is_new=True) if is_new else known
            self._roles.setdefault(broker_id, {})[key] = row

    def role_on(self, broker_id: int, topic: str, topic_id: bytes, index: int, partition: PartitionImage) -> None:
        """Adds the role of one replica, unless the change has given it one already."""
        rows = self._roles.setdefault(broker_id, {})
        if (topic, topic_id, index) not in rows:
            rows[topic, topic_id, index] = self._role_row((topic, topic_id, index), partition, is_new=False)

    def show(self, topic: str, topic_id: bytes, index: int, partition: PartitionImage) -> None:
        self._shown[topic, topic_id, index] = self._shown_row(topic_id, index, partition)

    def show_deleted(self, topic: TopicImage, indexes: Iterable[int]) -> None:
        """Adds partitions of a topic that has left the image."""
        for index in indexes:
            partition = topic.partitions[index]
            row = _Shown(
                partition_index=index,
                controller_epoch=self._sender.controller_epoch,
                leader=LEADER_DURING_DELETE,
                isr=list(partition.isr),
                replicas=list(partition.replicas),
                offline_replicas=self._offline(partition),
            )
            self._shown[topic.name, topic.topic_id, index] = row

    def stop(self, broker_id: int, topic: str, index: int, leader_epoch: int, *, delete: bool) -> None:
        row = _Stopped(partition_index=index, leader_epoch=leader_epoch, delete_partition=delete)
        self._stopped.setdefault(broker_id, {})[topic, index] = row

    def requests(self) -> dict[int, list[Message]]:
        """Returns the requests of each broker, in their order."""
        alive = sorted(self._image.brokers if self._to is None else set(self._image.brokers) & self._to)
        shown = _shown_topics(self._shown)
        found: dict[int, list[Message]] = {}
        for broker_id in alive:
            requests: list[Message] = []
            has_news = self._brokers_first or (self._brokers_changed and not shown)
            if has_news and broker_id not in self._new_brokers:
                requests.append(self._update(broker_id, []))
            if self._roles.get(broker_id):
                requests.append(self._leader_and_isr(broker_id, self._roles[broker_id]))
            if shown:
                requests.append(self._update(broker_id, shown))
            if self._stopped.get(broker_id):
                requests.append(self._stop_replica(broker_id, self._stopped[broker_id]))
            if requests:
                found[broker_id] = requests
        return found

    # Rows.

    def _role_row(self, key: _Key, partition: PartitionImage, *, is_new: bool) -> _Role:
        return _Role(
            partition_index=key[2],
            controller_epoch=self._sender.epoch_of(key[1], key[2]),
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            partition_epoch=partition.partition_epoch,
            replicas=list(partition.replicas),
            adding_replicas=list(partition.adding_replicas),
            removing_replicas=list(partition.removing_replicas),
            is_new=is_new,
            leader_recovery_state=partition.leader_recovery_state,
        )

    def _shown_row(self, topic_id: bytes, index: int, partition: PartitionImage) -> _Shown:
        return _Shown(
            partition_index=index,
            controller_epoch=self._sender.epoch_of(topic_id, index),
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            zk_version=partition.partition_epoch,
            replicas=list(partition.replicas),
            offline_replicas=self._offline(partition),
        )

    def _offline(self, partition: PartitionImage) -> list[int]:
        online = online_replicas(self._image, partition)
        return [replica for replica in partition.replicas if replica not in online]

    # Requests.

    def _leader_and_isr(self, broker_id: int, rows: dict[_Key, _Role]) -> LeaderAndIsrRequest:
        topics: dict[tuple[str, bytes], list[_Role]] = {}
        for (name, topic_id, _), row in rows.items():
            topics.setdefault((name, topic_id), []).append(row)
        leaders = sorted({row.leader for row in rows.values()})
        return LeaderAndIsrRequest(
            controller_id=self._sender.controller_id,
            controller_epoch=self._sender.controller_epoch,
            broker_epoch=self._image.brokers[broker_id].epoch,
            topic_states=[
                LeaderAndIsrRequest.LeaderAndIsrTopicState(
                    topic_name=name, topic_id=topic_id, partition_states=partition_rows
                )
                for (name, topic_id), partition_rows in topics.items()
            ],
            live_leaders=list(self._live_leaders(leaders)),
        )

    def _live_leaders(self, leaders: Iterable[int]) -> Iterable[LeaderAndIsrRequest.LeaderAndIsrLiveLeader]:
        for leader in leaders:
            broker = self._image.brokers.get(leader)
            endpoint = None if broker is None else broker.endpoint(self._sender.listener)
            if endpoint is not None:
                yield LeaderAndIsrRequest.LeaderAndIsrLiveLeader(
                    broker_id=leader, host_name=endpoint.host, port=endpoint.port
                )

    def _update(
        self, broker_id: int, topics: list[UpdateMetadataRequest.UpdateMetadataTopicState]
    ) -> UpdateMetadataRequest:
        return UpdateMetadataRequest(
            controller_id=self._sender.controller_id,
            controller_epoch=self._sender.controller_epoch,
            broker_epoch=self._image.brokers[broker_id].epoch,
            topic_states=topics,
            live_brokers=[_live_broker(broker) for _, broker in sorted(self._image.brokers.items())],
        )

    def _stop_replica(self, broker_id: int, rows: dict[tuple[str, int], _Stopped]) -> StopReplicaRequest:
        topics: dict[str, list[_Stopped]] = {}
        for (name, _), row in rows.items():
            topics.setdefault(name, []).append(row)
        return StopReplicaRequest(
            controller_id=self._sender.controller_id,
            controller_epoch=self._sender.controller_epoch,
            broker_epoch=self._image.brokers[broker_id].epoch,
            topic_states=[
                StopReplicaRequest.StopReplicaTopicState(topic_name=name, partition_states=partition_rows)
                for name, partition_rows in topics.items()
            ],
        )


def add_change(
    batch: RequestBatch, delta: MetadataDelta, after: MetadataImage, is_sent_later: Callable[[str], bool]
) -> None:
    """Adds all requests that follow from this change of the image, in slices. The requests about deleted topics are not
    among them: they are sent later.
    """
    _add_brokers(batch, delta, after)
    for topic in delta.deleted_topics.values():
        if not is_sent_later(topic.name):
            batch.show_deleted(topic, range(len(topic.partitions)))
    for topic_id, change in delta.changed_topics.items():
        for index, partition in sorted(change.changed_partitions.items()):
            if not has_state(partition):
                continue
            before = change.partition_before(index)
            if before is None or not has_state(before):
                batch.role(change.name, topic_id, index, partition, new_on=partition.replicas)
            elif before.leader_epoch != partition.leader_epoch or before.replicas != partition.replicas:
                added = [replica for replica in partition.replicas if replica not in before.replicas]
                batch.role(change.name, topic_id, index, partition, new_on=added)
            batch.show(change.name, topic_id, index, partition)
            for replica in before.replicas if before is not None else ():
                if replica not in partition.replicas and replica in after.brokers:
                    batch.stop(replica, change.name, index, partition.leader_epoch, delete=True)


def _add_brokers(batch: RequestBatch, delta: MetadataDelta, after: MetadataImage) -> None:
    for broker_id, broker in sorted(delta.changed_brokers.items()):
        before = delta.image.brokers.get(broker_id)
        if broker is None:
            batch.brokers_changed(first=False)
        elif before is None or before.epoch != broker.epoch:
            batch.broker_is_new(broker_id)
        elif before.endpoints != broker.endpoints or before.rack != broker.rack:
            batch.brokers_changed(first=True)


def online_replicas(image: MetadataImage, partition: PartitionImage) -> list[int]:
    """Returns the replicas that are online by this image, in the order of the assignment."""
    return zookeeper_rules.online_replicas(partition, image.brokers.__contains__)


def _shown_topics(rows: dict[_Key, _Shown]) -> list[UpdateMetadataRequest.UpdateMetadataTopicState]:
    topics: dict[tuple[str, bytes], list[_Shown]] = {}
    for (name, topic_id, _), row in rows.items():
        topics.setdefault((name, topic_id), []).append(row)
    return [
        UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=states)
        for (name, topic_id), states in topics.items()
    ]


def _live_broker(broker: BrokerImage) -> UpdateMetadataRequest.UpdateMetadataBroker:
    rows = [
        UpdateMetadataRequest.UpdateMetadataEndpoint(
            port=endpoint.port,
            host=endpoint.host,
            listener=endpoint.name,
            security_protocol=endpoint.security_protocol,
        )
        for endpoint in broker.endpoints
    ]
    return UpdateMetadataRequest.UpdateMetadataBroker(id=broker.broker_id, endpoints=rows, rack=broker.rack)
