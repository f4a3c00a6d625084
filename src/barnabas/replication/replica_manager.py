"""All replicas of this broker: follows the metadata image and appends to partitions (`fetching` reads them).

The image decides the roles; this package only carries them out. A storage fault takes the partitions of its directory
offline: requests for them get KAFKA_STORAGE_ERROR, and the others are served. In a directory without free space only
operations that need space are refused (decision 0012).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode, RecordsRejected, RequestFailed, StorageExhausted, StorageFault
from barnabas.common.host import Buffer, Host
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.metadata.image import BROKER_RESOURCE, EMPTY_IMAGE, TOPIC_RESOURCE, MetadataDelta, MetadataImage
from barnabas.metadata.store import Subscriber
from barnabas.metadata.topics import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, PartitionImage, TopicImage
from barnabas.records.append_rules import AppendRules, ValidationDeferred
from barnabas.records.deferred import DeferredValidation
from barnabas.records.header import TRANSACTIONAL_FLAG
from barnabas.replication.cold_reads import ColdReads
from barnabas.replication.damage import is_waiting, set_aside, settle
from barnabas.replication.environment import EventReporter, ReplicaEnvironment
from barnabas.replication.fetcher_pool import FetcherPool
from barnabas.replication.image_slices import ImageSlices
from barnabas.replication.isr_changes import SendRequest
from barnabas.replication.isr_expiration import IsrExpiration
from barnabas.replication.moves import Assignments, ReplicaMoves
from barnabas.replication.partition import Partition, Role
from barnabas.replication.purgatory import Purgatory
from barnabas.replication.quotas import ReplicationQuotas
from barnabas.replication.strays import set_strays_aside
from barnabas.replication.traffic import Traffic
from barnabas.replication.unopened import UnopenedReplicas
from barnabas.storage.directories import root_of
from barnabas.storage.log import AppendInfo, Origin
from barnabas.storage.log_manager import LogManager

#: Offset of the low byte of a batch's attributes.
_ATTRIBUTES_AT = 22


class Appended(NamedTuple):
    """The result of an append to one partition. `log_start_offset` is set even if the log refused the batches."""

    error: ErrorCode
    info: AppendInfo | None = None
    message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()
    log_start_offset: int = -1
    #: The rules by which the batches must be validated in a thread, before they are appended again; None if the result
    #: is final.
    deferred: AppendRules | None = None


class LeadershipListener(NamedTuple):
    """Callbacks for when this broker begins (index, leader epoch) or ceases (index) to lead a partition of a topic."""

    topic: str
    on_leader: Callable[[int, int], None]
    on_resigned: Callable[[int], None]


class LeadershipListeners:
    """The leadership listeners of all topics; each is called for its own topic."""

    def __init__(self) -> None:
        self._all: list[LeadershipListener] = []

    def add(self, listener: LeadershipListener) -> None:
        self._all.append(listener)

    def led(self, topic: str, index: int, leader_epoch: int) -> None:
        for listener in self._all:
            if listener.topic == topic:
                listener.on_leader(index, leader_epoch)

    def resigned(self, topic: str, index: int) -> None:
        for listener in self._all:
            if listener.topic == topic:
                listener.on_resigned(index)


class ReplicaPorts(NamedTuple):
    """Functions of the broker that its replicas use."""

    #: Sends a request to the active controller.
    send: SendRequest
    #: Returns the broker epoch, as the controller assigned it; -1 before.
    broker_epoch: Callable[[], int]
    #: Records the data that replicas of this broker lost or possibly lost.
    report_event: EventReporter
    #: Reports the directories of replicas to the controller.
    assignments: Assignments


class ReplicaManager:
    """The partitions of one broker, by topic name and index."""

    def __init__(self, host: Host, config: BrokerConfig, logs: LogManager, ports: ReplicaPorts) -> None:
        self.host = host
        self.logs = logs
        self.purgatory = Purgatory(host.clock, host.timers)
        self.cold_reads = ColdReads(host.blocking)
        #: Batches that are decompressed in a thread.
        self.openings = ColdReads(host.blocking, running_max=1)
        self._config = config
        self._node_id = config.node_id
        self._topics: dict[str, dict[int, Partition]] = {}
        self._image = EMPTY_IMAGE
        self._listeners = LeadershipListeners()
        self._checkpointed_hws: dict[TopicPartition, int] = {}
        self._roots = logs.roots
        self._full = self._roots.full
        self.unopened = UnopenedReplicas(host.timers, self._open_again)
        self.moves = ReplicaMoves(host, config, logs, self, ports.assignments)
        self.environment = ReplicaEnvironment(host, config, ports.send, ports.broker_epoch, ports.report_event)
        self.quotas = ReplicationQuotas(host.clock, config)
        self.traffic = Traffic()
        health = logs.health
        self.fetchers = FetcherPool(
            host,
            config,
            self.on_storage_fault,
            lambda directory: not health.is_any_unwritable or health.has_space(root_of(directory)),
            self.environment,
            self.quotas.follower,
        )
        self._isr_expiration = IsrExpiration(host.timers, self.environment, self.partitions)
        self._slices = ImageSlices(host.timers, host.clock, self._follow_image)
        #: Applies a new image, immediately or in slices.
        self.on_image: Subscriber = self._slices.on_image
        logs.roots.when_failed(self._on_directory_failed)
        config.subscribe(self._on_broker_config)

    # -- life

    def start(self, checkpointed_high_watermarks: dict[TopicPartition, int]) -> None:
        """Adopts the HWs that the previous run stored (`replication-offset-checkpoint`)."""
        self._checkpointed_hws = dict(checkpointed_high_watermarks)
        self._isr_expiration.start()

    def listen(self, listener: LeadershipListener) -> None:
        self._listeners.add(listener)

    def high_watermark_of(self, topic_partition: TopicPartition) -> int | None:
        """Returns the HW of a replica for `replication-offset-checkpoint`, or None if there is no such replica."""
        partition = self.find(*topic_partition)
        return None if partition is None else partition.high_watermark

    def close(self) -> None:
        self._slices.close()
        self._isr_expiration.close()
        self.fetchers.close()
        self.moves.close()
        self.purgatory.close()
        self.unopened.close()

    # -- look-ups

    def partitions(self) -> Iterator[Partition]:
        for partitions in self._topics.values():
            yield from partitions.values()

    @property
    def is_behind(self) -> bool:
        """Returns whether the replicas do not have all changes of the image yet: large ones are applied in slices."""
        return self._slices.is_behind

    @property
    def unopened_count(self) -> int:
        """The number of replicas that belong here but whose logs cannot be opened."""
        return len(self.unopened)

    def has(self, topic: str) -> bool:
        """Returns whether this broker has replicas of a topic."""
        return topic in self._topics

    def find(self, topic: str, index: int) -> Partition | None:
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(index)

    def leader(self, topic: str, index: int, *, or_follower: bool = False) -> Partition:
        """Returns the partition if it is led here, or followed. Raises RequestFailed with the code for the client."""
        partitions = self._topics.get(topic)
        partition = None if partitions is None else partitions.get(index)
        if partition is not None:
            if partition.role is Role.LEADER or (or_follower and partition.role is Role.FOLLOWER):
                return partition
            if partition.role is Role.OFFLINE:
                raise RequestFailed(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.topic_partition} is offline")
            raise RequestFailed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if TopicPartition(topic, index) in self.unopened:
            raise RequestFailed(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{index} is offline")
        if self._image.partition(topic, index) is not None:
            raise RequestFailed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise RequestFailed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def leader_hint(self, topic: str, index: int) -> tuple[int, int] | None:
        """Returns (leader id, leader epoch) as the image has them; None if the image does not contain the partition."""
        partition = self._image.partition(topic, index)
        return None if partition is None else (partition.leader, partition.leader_epoch)

    def topic_of(self, topic_id: bytes) -> TopicImage | None:
        return self._image.topics_by_id.get(topic_id)

    # -- appends

    def append_to(
        self,
        partition: Partition,
        batches: Buffer,
        acks: int,
        wall_ms: int,
        origin: Origin,
        transactional: bool = False,
        validated: DeferredValidation | None = None,
    ) -> Appended:
        """Appends to a partition that is led here; returns errors as values. With `acks` -1, as in Produce, the caller
        then waits for the HW. `transactional` allows batches of a transaction, which the caller has verified.
        `validated` is the completed validation of an earlier `deferred` result."""
        if acks == -1 and not partition.enough_in_sync:
            return Appended(ErrorCode.NOT_ENOUGH_REPLICAS)
        may_be_in_transaction = transactional or origin is not Origin.CLIENT or len(batches) <= _ATTRIBUTES_AT
        if not may_be_in_transaction and batches[_ATTRIBUTES_AT] & TRANSACTIONAL_FLAG:
            # Kafka's code for a transactional batch in a request without a transactional id.
            return Appended(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        full = self._full
        if full and self._roots.refuses(partition.log.directory):
            return Appended(
                ErrorCode.KAFKA_STORAGE_ERROR,
                message=f"no space left in the log directory of {partition.topic_partition}",
            )
        try:
            info = partition.append(batches, wall_ms, origin, validated)
            traffic = partition.traffic
            traffic.produce_requests += 1
            traffic.bytes_in += len(batches)
            traffic.messages_in += info.last_offset - info.first_offset + 1
            if full:
                self._roots.append_succeeded(partition.log.directory)
            return Appended(ErrorCode.NONE, info)
        except RecordsRejected as rejected:
            partition.traffic.failed_produce_requests += 1
            start = -1 if rejected.is_framing else partition.log.log_start_offset
            return Appended(rejected.code, None, rejected.message, rejected.record_errors, start)
        except ValidationDeferred as late:
            return Appended(ErrorCode.REQUEST_TIMED_OUT, deferred=late.rules)
        except StorageFault as fault:
            partition.traffic.failed_produce_requests += 1
            self.on_storage_fault(fault)
            return Appended(ErrorCode.KAFKA_STORAGE_ERROR, message=str(fault))

    # -- the image

    def _follow_image(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
        """Applies changes of topics, roles, ISRs and topic configs, one partition per step."""
        is_start, self._image = self._image is EMPTY_IMAGE, image
        self.environment.image = image
        if delta.roles is None:
            if is_start:
                yield from set_strays_aside(self.host, self.logs, image, self._node_id)
            for topic in delta.deleted_topics.values():
                self._on_topic_deleted(topic)
                yield
        for topic_delta in delta.changed_topics.values():
            for index, partition_image in topic_delta.changed_partitions.items():
                name = topic_delta.name
                if delta.roles is not None and (name, index) not in delta.roles:
                    continue
                is_new = not is_start and TopicPartition(name, index) not in self.unopened
                self._on_partition(name, topic_delta.topic_id, index, partition_image, is_new=is_new)
                yield
        if delta.changed_brokers and not is_start:
            self.fetchers.on_brokers(delta.changed_brokers, self.partitions(), image)
            self._isr_expiration.check()
            if self.environment.selector is not None:
                for partition in self.partitions():
                    partition.wake_consumers(0)
        for resource_type, name in delta.changed_configs:
            if resource_type == TOPIC_RESOURCE:
                yield from self._reconfigured((name,))
                self.quotas.follow_topic(name, image.topic_config(name))
            elif resource_type == BROKER_RESOURCE:
                self.moves.follow_rate(image)
                self.quotas.follow_rates(image)

    def log_config(self, topic: str) -> LogConfig:
        return LogConfig.resolve(self._config, self._image.topic_config(topic))

    def _on_broker_config(self, changed: frozenset[str]) -> None:
        """Applies changed broker defaults to topics that do not override them, in slices."""
        if self._topics:
            self._slices.add(self._reconfigured(tuple(self._topics)))

    def _reconfigured(self, topics: Iterable[str]) -> Iterator[None]:
        """Gives the logs of these topics their current configuration."""
        for topic in topics:
            partitions = self._topics.get(topic)
            if not partitions:
                continue
            config = self.log_config(topic)
            for partition in tuple(partitions.values()):
                partition.log.config = config
                self.logs.futures.reconfigure(partition.topic_partition, config)
                yield

    def _on_partition(
        self, topic: str, topic_id: bytes, index: int, image: PartitionImage, *, is_new: bool = False
    ) -> None:
        partition = self.find(topic, index)
        if partition is not None and (partition.topic_id != topic_id or self._node_id not in image.replicas):
            self.remove(partition)
            partition = None
        if self._node_id not in image.replicas:
            self.unopened.discard(TopicPartition(topic, index))
            return
        if partition is None:
            partition = self._open(topic, topic_id, index, image, is_new)
        if partition is not None:
            self._assume_role(partition, image)
            self.moves.report_directory(partition, image)

    def _assume_role(self, partition: Partition, image: PartitionImage) -> None:
        before, epoch_before = partition.role, partition.leader_epoch
        if before is Role.OFFLINE:
            return
        name, index = partition.topic_partition
        try:
            if is_waiting(partition.log):
                settle(self.logs, partition, image, self._node_id)
            if image.leader == self._node_id:
                partition.become_leader(image)
                if before is not Role.LEADER or image.leader_epoch != epoch_before:
                    self._listeners.led(name, index, image.leader_epoch)
                self.fetchers.unfollow(partition)
            else:
                partition.become_follower(image)
                if before is Role.LEADER:
                    self._listeners.resigned(name, index)
                if before is not Role.FOLLOWER or image.leader_epoch != epoch_before:
                    self.fetchers.follow(partition, image.leader, self._image)
        except StorageFault as fault:
            self.on_storage_fault(fault)

    def _open(self, topic: str, topic_id: bytes, index: int, image: PartitionImage, is_new: bool) -> Partition | None:
        topic_partition = TopicPartition(topic, index)
        directory = self._roots.path_of(image.directory_of(self._node_id))
        self.moves.promote(topic_partition, topic_id, directory)
        if not is_new and not self._may_have_log(topic_partition, image):
            self.unopened.add(topic_partition, can_retry=False)
            self.host.faults.report(f"{topic_partition} is offline: its log is in a failed directory")
            return None
        try:
            unusable = topic_partition in self.logs.damaged.unusable
            if unusable and not set_aside(self.logs, topic_partition, image, self._node_id):
                self.unopened.add(topic_partition, can_retry=False)
                return None
            log = self.logs.get_or_create(topic_partition, topic_id, self.log_config(topic), directory=directory)
        except StorageFault as fault:
            self.unopened.add(topic_partition, can_retry=is_new or isinstance(fault, StorageExhausted))
            self.on_storage_fault(fault)
            return None
        self.unopened.discard(topic_partition)
        high_watermark = self._checkpointed_hws.pop(topic_partition, log.log_start_offset)
        partition = Partition(
            topic_partition,
            topic_id,
            log,
            self._node_id,
            self.environment,
            high_watermark=high_watermark,
            traffic=self.traffic.of(topic),
        )
        self._topics.setdefault(topic, {})[index] = partition
        self.moves.resume(partition)
        return partition

    def _may_have_log(self, topic_partition: TopicPartition, image: PartitionImage) -> bool:
        """Returns whether a log can be opened or created here: its directory is online, or a new log cannot hide an
        older one (KIP-858).
        """
        log = self.logs.get(topic_partition)
        if log is not None:
            return not self._roots.is_offline(log.directory)
        directory = image.directory_of(self._node_id)
        if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return not self._roots.offline
        if self._roots.has_online(directory):
            return True
        # Another directory took its place, with a new id. The log can be fetched if there are other replicas.
        return not self._roots.offline and len(image.replicas) > 1

    def _open_again(self, topic_partition: TopicPartition) -> None:
        topic = self._image.topics_by_name.get(topic_partition.topic)
        image = self._image.partition(*topic_partition)
        if topic is None or image is None:
            self.unopened.discard(topic_partition)
        else:
            self._on_partition(topic.name, topic.topic_id, topic_partition.partition, image, is_new=True)

    def _on_topic_deleted(self, topic: TopicImage) -> None:
        self.quotas.follow_topic(topic.name, {})
        for index in range(len(topic.partitions)):
            self.unopened.discard(TopicPartition(topic.name, index))
        for partition in tuple(self._topics.get(topic.name, {}).values()):
            if partition.topic_id == topic.topic_id:
                self.remove(partition)

    def remove(self, partition: Partition, *, delete: bool = True) -> None:
        """Ends the role of a replica, and deletes its log unless the log must stay."""
        topic, index = partition.topic_partition
        led = partition.role is Role.LEADER
        partitions = self._topics[topic]
        del partitions[index]
        if not partitions:
            del self._topics[topic]
            self.traffic.forget(topic)
        partition.go_offline()
        self.fetchers.unfollow(partition)
        if led:
            self._listeners.resigned(topic, index)
        self.moves.forget(partition.topic_partition)
        if not delete:
            self._checkpointed_hws[partition.topic_partition] = partition.high_watermark
            return
        if self._roots.is_offline(partition.log.directory):
            return
        try:
            self.logs.delete(partition.topic_partition)
        except StorageFault as fault:
            self.on_storage_fault(fault)

    def on_storage_fault(self, fault: StorageFault) -> None:
        """Reports a fault that occurred during a request or a change of role."""
        self.logs.storage_fault(fault)

    def _on_directory_failed(self, directory: str, error: BaseException) -> None:
        """Takes all partitions in the directory offline (KIP-112); the others are served as before."""
        self.moves.directory_failed(directory)
        for partition in tuple(self.partitions()):
            if partition.role is not Role.OFFLINE and root_of(partition.log.directory) == directory:
                led = partition.role is Role.LEADER
                partition.go_offline(ErrorCode.KAFKA_STORAGE_ERROR)
                self.fetchers.unfollow(partition)
                if led:
                    self._listeners.resigned(*partition.topic_partition)
