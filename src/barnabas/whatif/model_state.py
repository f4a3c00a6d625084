"""The state of a model: partitions, brokers and settings, as decisions and election strategies ask about them."""

from __future__ import annotations

from collections import Counter

from barnabas.decisions.partition import LOST_DIRECTORY, PartitionImage
from barnabas.decisions.partition_change import effective_min_isr
from barnabas.whatif.situation import Key, Situation


class ModelState:
    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.partitions: dict[Key, PartitionImage] = dict(situation.partitions)
        #: The min ISR of topics, where a question changes it.
        self.min_isrs: dict[str, int] = {}
        #: The leaders that were elected without being in the ISR or the ELR.
        self.unclean: dict[Key, int] = {}
        #: Whether the cluster has a controller that can make decisions.
        self.has_controller = True
        self._gone: set[int] = set()
        self._stopping: set[int] = set()
        self._returned: set[int] = set()

    def take_from(self, other: ModelState) -> None:
        """Copies the state of another model of the same cluster."""
        self.partitions = dict(other.partitions)
        self.min_isrs, self.unclean = dict(other.min_isrs), dict(other.unclean)
        self.has_controller = other.has_controller
        self._gone, self._stopping, self._returned = set(other._gone), set(other._stopping), set(other._returned)

    # -- brokers, as decisions ask about them

    def is_registered(self, broker_id: int) -> bool:
        return broker_id in self._returned or (broker_id in self.situation.brokers and broker_id not in self._gone)

    def is_active(self, broker_id: int) -> bool:
        return self.is_registered(broker_id) and broker_id not in self._stopping

    def has_lost(self, broker_id: int, directory: bytes) -> bool:
        return directory == LOST_DIRECTORY and self.is_registered(broker_id)

    def takes_writes(self, broker_id: int, directory: bytes) -> bool:
        """Returns True: clients do not learn which directories are full."""
        return True

    def is_online(self, partition: PartitionImage, replica: int) -> bool:
        """Returns whether the replica's broker and log directory are online."""
        return self.is_active(replica) and partition.directory_of(replica) != LOST_DIRECTORY

    # -- the cluster, as an election strategy asks about it

    def leaders(self) -> Counter[int]:
        return Counter(partition.leader for partition in self.partitions.values())

    def leader_of(self, topic: str, partition: int) -> int:
        return self.partitions[topic, partition].leader

    def racks(self) -> dict[int, str | None]:
        return {broker.broker_id: broker.rack for broker in self.situation.brokers.values()}

    # -- settings

    def min_isr(self, key: Key) -> int:
        """Returns the min ISR in force."""
        configured = self.min_isrs.get(key[0], self.situation.facts_of(key[0]).min_isr)
        return effective_min_isr(configured, len(self.partitions[key].replicas))
