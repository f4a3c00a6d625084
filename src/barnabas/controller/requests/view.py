"""The input of controller decisions: the image with all proposed records, this node's settings, randomness.

Settings that the metadata overrides are resolved here as by Kafka's controller:
topic override > this node's dynamic setting > the cluster-wide one > the properties file > default.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

from barnabas.common.config import BrokerConfig
from barnabas.common.config_keys import BROKER_KEYS, TOPIC_KEYS, ConfigSource, broker_synonyms
from barnabas.common.host import Random
from barnabas.decisions.leader_election import Election
from barnabas.decisions.partition_change import Rules, effective_min_isr
from barnabas.decisions.placement import UsableBroker
from barnabas.decisions.strategies import Elector, NamedStrategy
from barnabas.metadata.image import BROKER_RESOURCE, MetadataImage
from barnabas.metadata.registrations import BrokerImage
from barnabas.metadata.topics import MIGRATING_DIRECTORY, NO_LEADER, UNASSIGNED_DIRECTORY
from barnabas.metadata.versions import V_3_7_IV2

MIN_ISR: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"


class EffectiveValue(NamedTuple):
    text: str | None
    source: ConfigSource


@dataclass(slots=True)
class ControllerView:
    image: MetadataImage
    config: BrokerConfig
    random: Random
    #: The election strategy, if it is not Kafka's.
    strategy: NamedStrategy | None = None
    #: Whether every change of a partition by the controller raises its leader epoch (ZooKeeper mode).
    raises_leader_epochs: bool = False
    _elector: Elector | None = field(default=None, init=False, repr=False)
    _defaults: dict[str, EffectiveValue] = field(default_factory=dict, init=False, repr=False)

    # Brokers.

    def is_active(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def usable_brokers(self) -> list[UsableBroker]:
        """Returns the brokers that can get replicas, by id, without those in controlled shutdown. A broker that takes
        no writes counts as fenced while others take some."""
        usable = [broker for _, broker in sorted(self.image.brokers.items()) if not broker.in_controlled_shutdown]
        avoided = {broker.broker_id for broker in usable if not broker.takes_writes(UNASSIGNED_DIRECTORY)}
        if all(broker.fenced or broker.broker_id in avoided for broker in usable):
            avoided.clear()
        return [
            UsableBroker(broker.broker_id, broker.rack, broker.fenced or broker.broker_id in avoided)
            for broker in usable
        ]

    def default_directory(self, broker_id: int) -> bytes:
        """Returns the directory of a new replica: known immediately only if the broker has just one (KIP-858)."""
        if self.image.metadata_version < V_3_7_IV2:
            return MIGRATING_DIRECTORY
        broker = self.image.brokers.get(broker_id)
        if broker is None or len(broker.directories) != 1:
            return UNASSIGNED_DIRECTORY
        return broker.directories[0]

    def with_broker(self, broker: BrokerImage) -> ControllerView:
        """Returns a copy of the view with this registration of the broker."""
        return replace(self, image=replace(self.image, brokers=self.image.brokers.set(broker.broker_id, broker)))

    def has_lost(self, broker_id: int, directory: bytes) -> bool:
        """Returns whether the broker is registered, and without this log directory."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.has_online_directory(directory)

    def takes_writes(self, broker_id: int, directory: bytes) -> bool:
        """Returns whether a replica in this directory can be appended to, as far as its broker has reported."""
        broker = self.image.brokers.get(broker_id)
        return broker is None or broker.takes_writes(directory)

    def in_sync_at_first(self, replicas: Sequence[int]) -> list[int]:
        """Returns the first ISR of a new partition: its active replicas, without those that take no writes unless all
        of them do so."""
        active = [replica for replica in replicas if self.is_active(replica)]
        writable = [replica for replica in active if self.takes_writes(replica, self.default_directory(replica))]
        return writable or active

    # Settings.

    def topic_value(self, topic: str, key: str) -> EffectiveValue:
        """Returns the value of a topic key that is in force for this topic, which need not exist."""
        override = self.image.topic_config(topic).get(key)
        if override is not None:
            return EffectiveValue(override, ConfigSource.DYNAMIC_TOPIC)
        return self.default_topic_value(key)

    def default_topic_value(self, key: str) -> EffectiveValue:
        """Returns the value of a topic key for topics that do not override it."""
        known = self._defaults.get(key)
        if known is None:
            known = self._defaults[key] = self._resolve_default(key)
        return known

    def _resolve_default(self, key: str) -> EffectiveValue:
        server_key = TOPIC_KEYS[key].server_default
        if server_key is None:
            return EffectiveValue(TOPIC_KEYS[key].default, ConfigSource.DEFAULT)
        own = self.image.config_of(BROKER_RESOURCE, str(self.config.node_id))
        everywhere = self.image.config_of(BROKER_RESOURCE, "")
        names = broker_synonyms(server_key)
        for source, layer in (
            (ConfigSource.DYNAMIC_BROKER, own),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, everywhere),
            (ConfigSource.STATIC_BROKER, self.config.originals),
        ):
            for name in names:
                if name in layer:
                    return EffectiveValue(_in_unit_of(server_key, name, layer[name]), source)
        for name in names:
            default = BROKER_KEYS[name].default
            if default is not None:
                return EffectiveValue(_in_unit_of(server_key, name, default), ConfigSource.DEFAULT)
        return EffectiveValue(TOPIC_KEYS[key].default, ConfigSource.DEFAULT)

    def min_isr(self, topic: str, replication_factor: int) -> int:
        """Returns the effective min ISR, which is at most the replication factor (KIP-966)."""
        value = TOPIC_KEYS[MIN_ISR].parse(self.topic_value(topic, MIN_ISR).text or "1")
        assert isinstance(value, int), MIN_ISR
        return effective_min_isr(value, replication_factor)

    def unclean_election_allowed(self, topic: str) -> bool:
        return (self.topic_value(topic, UNCLEAN_ELECTION).text or "").strip().lower() == "true"

    def rules(
        self,
        topic: str,
        replication_factor: int,
        may_lead: Callable[[int], bool],
        election: Election | None = None,
        *,
        by_leader: bool = False,
    ) -> Rules:
        """Returns the settings for changes of a topic's partitions; `by_leader` means that their leader asks for the
        change."""
        if election is None:
            election = Election.UNCLEAN if self.unclean_election_allowed(topic) else Election.ONLINE
        return Rules(
            may_lead=may_lead,
            election=election,
            elr_enabled=self.image.elr_enabled,
            min_isr=self.min_isr(topic, replication_factor),
            raises_leader_epoch=self.raises_leader_epochs and not by_leader,
            raises_when_reassigned=self.raises_leader_epochs,
            default_directory=self.default_directory,
            choose=None if self.strategy is None else partial(self._elector_of(self.strategy).choose, topic),
        )

    # Queries of election strategies.

    def leaders(self) -> Counter[int]:
        """Returns how many partitions each broker leads."""
        topics = self.image.topics_by_name.values()
        return Counter(partition.leader for topic in topics for partition in topic.partitions)

    def leader_of(self, topic: str, partition: int) -> int:
        found = self.image.partition(topic, partition)
        return NO_LEADER if found is None else found.leader

    def racks(self) -> dict[int, str | None]:
        """Returns the rack of each registered broker."""
        return {broker_id: broker.rack for broker_id, broker in self.image.brokers.items()}

    def _elector_of(self, strategy: NamedStrategy) -> Elector:
        if self._elector is None:
            self._elector = Elector(strategy, self)
        return self._elector


_UNITS_MS: Final = {".hours": 3_600_000, ".minutes": 60_000}


def _in_unit_of(key: str, name: str, text: str) -> str:
    """Converts `text`, a value of the key `name`, to the unit of `key`, which means the same in another unit."""
    for suffix, unit_ms in _UNITS_MS.items():
        if name.endswith(suffix) and not key.endswith(suffix):
            value = int(text)
            return str(value if value < 0 else value * unit_ms)
    return text
