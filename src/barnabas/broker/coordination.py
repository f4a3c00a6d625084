"""The coordinators of this broker: groups and transactions, on the partitions of internal topics that it leads."""

from __future__ import annotations

from typing import Final

from barnabas.broker.peers.broker_channels import BrokerChannels
from barnabas.broker.peers.producer_id_blocks import ProducerIdPool
from barnabas.broker.requests.memory_budget import MemoryBudget
from barnabas.broker.topics.image_topics import ImageTopics
from barnabas.common.config import BrokerConfig
from barnabas.common.host import Host
from barnabas.common.types import GROUP_METADATA_TOPIC, METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from barnabas.coordinators.groups.consumer.consumer_config import ConsumerConfig
from barnabas.coordinators.groups.coordinator import GroupCoordinator
from barnabas.coordinators.groups.group_config import GroupConfig
from barnabas.coordinators.groups.shard import ConsumerPorts
from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
from barnabas.coordinators.transactions.transaction_config import TransactionConfig
from barnabas.metadata.image import GROUP_RESOURCE, TRANSACTION_VERSION, MetadataDelta, MetadataImage
from barnabas.metadata.store import MetadataStore
from barnabas.replication.internal import InternalPartitions
from barnabas.replication.replica_manager import LeadershipListener, ReplicaManager

#: The divisor of the memory budget that gives the limit for data of group members.
_MEMBERS_SHARE: Final = 4


class Coordinators:
    """The group and transaction coordinators of a node. `listen` is called once the replicas exist, `shutdown` before
    they are closed."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        metadata: MetadataStore,
        replicas: ReplicaManager,
        partitions: InternalPartitions,
        producer_ids: ProducerIdPool,
        brokers: BrokerChannels,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._replicas = replicas
        self._topics = ImageTopics(metadata)
        self.groups = GroupCoordinator(
            host,
            GroupConfig.from_broker(config),
            ConsumerPorts(ConsumerConfig.from_broker(config), self._topics, self._group_override),
            partitions,
            partitions,
            partition_count=lambda: self._partitions(GROUP_METADATA_TOPIC, "offsets.topic.num.partitions"),
            partition_exists=self._partition_exists,
        )
        self.transactions = TransactionCoordinator(
            host,
            TransactionConfig.from_broker(config),
            partitions,
            partitions,
            producer_ids,
            brokers,
            partition_count=lambda: self._partitions(TRANSACTION_STATE_TOPIC, "transaction.state.log.num.partitions"),
            server_version=lambda: metadata.image.features.get(TRANSACTION_VERSION, 0),
        )

    def listen(self, memory: MemoryBudget) -> None:
        """Follows leadership of the internal topics, and counts the data of group members in `memory`."""
        held = self.groups.held
        held.bytes_max = memory.limit_bytes // _MEMBERS_SHARE
        memory.count_bytes_of(lambda: held.bytes)
        for topic, coordinator in (
            (GROUP_METADATA_TOPIC, self.groups),
            (TRANSACTION_STATE_TOPIC, self.transactions),
        ):
            self._replicas.listen(
                LeadershipListener(topic, coordinator.on_partition_leader, coordinator.on_partition_resigned)
            )

    def shutdown(self) -> None:
        self.groups.shutdown()
        self.transactions.shutdown()

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Removes the offsets of deleted topics; consumer groups rebalance for topics that were created, deleted or
        expanded."""
        self._topics.on_image(delta, image)
        gone = [
            TopicPartition(topic.name, index)
            for topic in delta.deleted_topics.values()
            for index in range(len(topic.partitions))
        ]
        if gone:
            self.groups.on_partitions_deleted(gone)

    def _group_override(self, group_id: str, key: str) -> str | None:
        return self._metadata.image.config_of(GROUP_RESOURCE, group_id).get(key)

    def _partitions(self, topic: str, key: str) -> int:
        """Returns the topic's number of partitions, or the number that it will have when it is created."""
        image = self._metadata.image.topics_by_name.get(topic)
        return self._config.int_of(key) if image is None else len(image.partitions)

    def _partition_exists(self, topic: str, index: int) -> bool:
        return topic != METADATA_TOPIC and self._metadata.image.partition(topic, index) is not None
