"""The cluster's metadata as one immutable value, and the delta by which metadata records build the next one.

    image --records--> MetadataDelta --apply--> image'

An image is shared freely, because nothing in it ever changes. A record takes effect only through
`MetadataDelta.replay`, so brokers, controllers and snapshots agree by construction. A delta lists what it changed
(`changed_topics`, `deleted_topics`, `changed_brokers`, `changed_configs`), so the cost of following the metadata
depends on the change, not on the size of the cluster.

Maps are hash tries: their order depends on the hash seed of the process. Whatever leaves the process in an order is
sorted first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from immutables import Map

from barnabas.metadata.acls import AclRule
from barnabas.metadata.registrations import BrokerImage, Brokers, ClusterDelta, ControllerImage, Controllers
from barnabas.metadata.security import QuotaEntity, SecurityImage, changed_acls, quota_entity
from barnabas.metadata.topic_names import TopicNames
from barnabas.metadata.topics import (
    PartitionImage,
    TopicDelta,
    TopicImage,
    Topics,
    TopicsById,
    TopicsByName,
    TopicsDelta,
    TopicsWithElr,
)
from barnabas.protocol.message import Message
from barnabas.protocol.messages import records_metadata as r

METADATA_VERSION: Final = "metadata.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"
GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"

#: Resource types of ConfigRecord (`ConfigResource.Type`).
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
BROKER_LOGGER_RESOURCE: Final = 8
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32

ConfigResource = tuple[int, str]
Overrides = Map[str, str]
_rule_of: Final = AclRule.of
_NO_OVERRIDES: Overrides = Map()


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The content of the metadata log up to and including `offset` (-1: nothing yet)."""

    offset: int = -1
    epoch: int = -1
    timestamp_ms: int = -1
    topics_by_name: TopicsByName = field(default_factory=Map)
    topics_by_id: TopicsById = field(default_factory=Map)
    topics_with_elr: TopicsWithElr = field(default_factory=Map, compare=False, repr=False)
    brokers: Brokers = field(default_factory=Map)
    controllers: Controllers = field(default_factory=Map)
    #: (resource type, name) -> overrides; the cluster-wide default of brokers has the name "".
    #: They are not in the image's text, because some are secret.
    configs: Map[ConfigResource, Overrides] = field(default_factory=Map, repr=False)
    #: Finalized feature levels, including `metadata.version`; features at level 0 are not listed.
    features: Map[str, int] = field(default_factory=Map)
    #: The first producer id that is not allocated to a broker; -1 before the first block.
    next_producer_id: int = -1
    security: SecurityImage = field(default_factory=SecurityImage, repr=False)
    #: State of a migration from ZooKeeper; 0 (none) in clusters that were created without it.
    zk_migration_state: int = 0
    #: The names of the topics, which `topic_names` sorts at its first call.
    _names: TopicNames = field(default_factory=TopicNames, compare=False, repr=False)

    def partition(self, topic: str, partition_id: int) -> PartitionImage | None:
        """Returns the partition, or None if this node knows no such partition."""
        image = self.topics_by_name.get(topic)
        if image is None or not 0 <= partition_id < len(image.partitions):
            return None
        found = image.partitions[partition_id]
        return found if found.is_known else None

    def config_of(self, resource_type: int, name: str) -> Overrides:
        return self.configs.get((resource_type, name), _NO_OVERRIDES)

    def topic_config(self, topic: str) -> Overrides:
        return self.configs.get((TOPIC_RESOURCE, topic), _NO_OVERRIDES)

    def topic_names(self) -> Sequence[str]:
        """Returns the names of all topics, sorted. The caller must not change them."""
        return self._names.sorted(self.topics_by_name)

    def topics(self) -> list[TopicImage]:
        """Returns all topics, sorted by name."""
        return [self.topics_by_name[name] for name in self.topic_names()]

    def broker_ids(self) -> list[int]:
        return sorted(self.brokers)

    def alive_brokers(self) -> list[BrokerImage]:
        """Returns the brokers that are not fenced, sorted by id: those that clients see."""
        return [broker for _, broker in sorted(self.brokers.items()) if not broker.fenced]

    @property
    def metadata_version(self) -> int:
        return self.features.get(METADATA_VERSION, 0)

    @property
    def elr_enabled(self) -> bool:
        return self.features.get(ELR_VERSION, 0) >= 1


EMPTY_IMAGE: Final = MetadataImage()


class MetadataDelta:
    """The changes of the metadata since `image`, as far as records were applied."""

    __slots__ = (
        "_acls",
        "_next_acls",
        "_next_producer_id",
        "_security",
        "_zk_migration_state",
        "changed_configs",
        "changed_credentials",
        "changed_features",
        "changed_quotas",
        "changed_tokens",
        "cluster",
        "image",
        "roles",
        "topics",
    )

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        #: The partitions whose changes give this broker's replica its role, as (topic, partition); None: all changed
        #: ones. In ZooKeeper mode only LeaderAndIsr gives roles, and logs of deleted topics stay until StopReplica.
        self.roles: frozenset[tuple[str, int]] | None = None
        self.topics = TopicsDelta(_topics_of(image))
        self.cluster = ClusterDelta(image.brokers, image.controllers)
        #: Resource -> key -> new value, None where the override was removed.
        self.changed_configs: dict[ConfigResource, dict[str, str | None]] = {}
        #: Feature -> new level, 0 where the feature was removed.
        self.changed_features: dict[str, int] = {}
        #: Entity -> key -> new quota, None where the quota was removed.
        self.changed_quotas: dict[QuotaEntity, dict[str, float | None]] = {}
        self._security = image.security
        #: Rule id -> new ACL, None where it was removed: those that `_security` has, and those that it does not have
        #: yet, because `security` applies many together.
        self._acls: Mapping[bytes, AclRule | None] = {}
        self._next_acls: dict[bytes, AclRule | None] = {}
        #: The SCRAM credentials that were set or removed, as (mechanism, user).
        self.changed_credentials: set[tuple[int, str]] = set()
        #: The ids of delegation tokens that were created, changed or removed.
        self.changed_tokens: set[str] = set()
        self._next_producer_id = image.next_producer_id
        self._zk_migration_state = image.zk_migration_state

    @classmethod
    def between(cls, old: MetadataImage, new: MetadataImage) -> MetadataDelta:
        """Returns the delta from `old` to `new`, for a snapshot that replaces the metadata followed so far."""
        delta = cls(old)
        delta.topics.replay_difference(new.topics_by_id)
        delta.cluster.replay_difference(new.brokers, new.controllers)
        for resource in sorted({*old.configs, *new.configs}):
            before, after = old.configs.get(resource, _NO_OVERRIDES), new.configs.get(resource, _NO_OVERRIDES)
            if before != after:
                keys = sorted({*before, *after})
                delta.changed_configs[resource] = {k: after.get(k) for k in keys if before.get(k) != after.get(k)}
        for name in sorted({*old.features, *new.features}):
            if old.features.get(name, 0) != new.features.get(name, 0):
                delta.changed_features[name] = new.features.get(name, 0)
        delta.changed_quotas = old.security.changed_quotas(new.security)
        delta._security = new.security
        before_scram, after_scram = old.security.scram, new.security.scram
        delta.changed_credentials = {
            key for key in {*before_scram, *after_scram} if before_scram.get(key) != after_scram.get(key)
        }
        delta._acls = changed_acls(old.security, new.security)
        before_tokens, after_tokens = old.security.tokens, new.security.tokens
        delta.changed_tokens = {
            token_id
            for token_id in {*before_tokens, *after_tokens}
            if before_tokens.get(token_id) != after_tokens.get(token_id)
        }
        delta._next_producer_id = new.next_producer_id
        delta._zk_migration_state = new.zk_migration_state
        return delta

    def rebased(self, image: MetadataImage) -> MetadataDelta:
        """Returns the same changes of a later image, in which everything that they change is as it was. Supports the
        changes that a decision in several turns makes: of topics, configs and security.
        """
        assert not self.cluster.changed_brokers
        assert not self.cluster.changed_controllers
        assert not self.changed_features
        assert self._next_producer_id == self.image.next_producer_id
        rebased = MetadataDelta(image)
        rebased.topics = self.topics.rebased(_topics_of(image))
        rebased.changed_configs = self.changed_configs
        rebased._security = self.security.rebased(self.image.security, image.security)
        rebased.changed_credentials = self.changed_credentials
        rebased.changed_tokens = self.changed_tokens
        return rebased

    @property
    def security(self) -> SecurityImage:
        """Returns the security part of the next image, as far as records were applied."""
        if self._next_acls:
            applied, self._next_acls = self._next_acls, {}
            self._security = self._security.replay_acls(applied)
            self._acls = {**self._acls, **applied} if self._acls else applied
        return self._security

    @property
    def changed_acls(self) -> Mapping[bytes, AclRule | None]:
        """Returns the ACLs that were set or removed (None), by id."""
        return {**self._acls, **self._next_acls} if self._next_acls else self._acls

    @property
    def changed_topics(self) -> dict[bytes, TopicDelta]:
        """Created or changed topics by id. A topic that was deleted and created again is in both dicts."""
        return self.topics.changed

    @property
    def deleted_topics(self) -> dict[bytes, TopicImage]:
        return self.topics.deleted

    @property
    def changed_brokers(self) -> dict[int, BrokerImage | None]:
        return self.cluster.changed_brokers

    @property
    def changed_controllers(self) -> dict[int, ControllerImage | None]:
        return self.cluster.changed_controllers

    def config_of(self, resource: ConfigResource) -> Overrides:
        """Returns the current overrides of a resource."""
        return _with_changes(self.image.configs.get(resource, _NO_OVERRIDES), self.changed_configs.get(resource, {}))

    def replay(self, record: Message) -> None:
        """Applies one record. Markers of metadata transactions (KIP-868) and no-ops change nothing.

        The caller holds back the records of an open transaction (`store.MetadataLoader`). Raises KeyError or
        AssertionError if the record does not fit the records before it: then the log is not a valid metadata log.
        """
        self.replay_all((record,))

    def replay_all(self, records: Iterable[Message]) -> None:
        """Applies records as `replay` does, in a fraction of the time that many calls take at a start."""
        find = _REPLAY.get
        for record in records:
            replay = find(type(record))
            if replay is None:
                raise KeyError(f"{type(record).__name__} is not a metadata record")
            replay(self, record)

    def replay_config(self, record: r.ConfigRecord) -> None:
        changes = self.changed_configs.setdefault((record.resource_type, record.resource_name), {})
        changes[record.name] = record.value

    def replay_remove_topic(self, record: r.RemoveTopicRecord) -> None:
        resource = (TOPIC_RESOURCE, self.topics.replay_remove(record))
        present = self.config_of(resource)
        if present:
            self.changed_configs.setdefault(resource, {}).update(dict.fromkeys(sorted(present)))

    def replay_feature(self, record: r.FeatureLevelRecord) -> None:
        self.changed_features[record.name] = record.feature_level

    def replay_producer_ids(self, record: r.ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    def replay_zk_migration(self, record: r.ZkMigrationStateRecord) -> None:
        self._zk_migration_state = record.zk_migration_state

    def replay_security(self, record: Message) -> None:
        self._security = _SECURITY[type(record)](self._security, record)
        if isinstance(record, r.UserScramCredentialRecord | r.RemoveUserScramCredentialRecord):
            self.changed_credentials.add((record.mechanism, record.name))
        elif isinstance(record, r.DelegationTokenRecord | r.RemoveDelegationTokenRecord):
            self.changed_tokens.add(record.token_id)

    def replay_acl(self, record: r.AccessControlEntryRecord) -> None:
        self._next_acls[record.id] = _rule_of(record)

    def replay_remove_acl(self, record: r.RemoveAccessControlEntryRecord) -> None:
        rule_id = record.id
        changed = next((each for each in (self._next_acls, self._acls) if rule_id in each), None)
        if (self.image.security.acls[rule_id] if changed is None else changed[rule_id]) is None:
            raise KeyError(rule_id)
        self._next_acls[rule_id] = None

    def replay_quota(self, record: r.ClientQuotaRecord) -> None:
        entity = quota_entity(record)
        changes = self.changed_quotas.setdefault(entity, {})
        changes[record.key] = None if record.remove else record.value
        self._security = self._security.replay_quota(record)

    def apply(self, offset: int, epoch: int, timestamp_ms: int) -> MetadataImage:
        """Returns the image after all applied records; `offset` is the offset of the last one."""
        image = self.image
        changes: dict[str, Any] = {}
        if self.topics.changed or self.topics.deleted:
            topics = self.topics.apply()
            changes["topics_by_name"], changes["topics_by_id"], changes["topics_with_elr"] = topics
            changes["_names"] = image._names.following(
                image.topics_by_name, topics.by_name, self.topics.removed_names(), self.topics.added_names()
            )
        if self.cluster.changed_brokers or self.cluster.changed_controllers:
            changes["brokers"], changes["controllers"] = self.cluster.apply()
        if self.changed_configs:
            changes["configs"] = self._apply_configs()
        if self.changed_features:
            features = {**image.features, **self.changed_features}
            changes["features"] = Map({name: level for name, level in features.items() if level})
        return replace(
            image,
            offset=offset,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            next_producer_id=self._next_producer_id,
            security=self.security,
            zk_migration_state=self._zk_migration_state,
            **changes,
        )

    def _apply_configs(self) -> Map[ConfigResource, Overrides]:
        configs = self.image.configs.mutate()
        for resource, changes in self.changed_configs.items():
            overrides = _with_changes(self.image.configs.get(resource, _NO_OVERRIDES), changes)
            if overrides:
                configs[resource] = overrides
            else:
                configs.pop(resource, None)
        return configs.finish()


def _topics_of(image: MetadataImage) -> Topics:
    return Topics(image.topics_by_name, image.topics_by_id, image.topics_with_elr)


def _with_changes(overrides: Overrides, changes: dict[str, str | None]) -> Overrides:
    mutation = overrides.mutate()
    for key, value in changes.items():
        if value is None:
            mutation.pop(key, None)
        else:
            mutation[key] = value
    return mutation.finish()


def _nothing(delta: MetadataDelta, record: Any) -> None:
    """Changes nothing: markers and no-ops only move the offset."""


_SECURITY: Final[dict[type[Message], Callable[[SecurityImage, Any], SecurityImage]]] = {
    r.UserScramCredentialRecord: SecurityImage.replay_scram,
    r.RemoveUserScramCredentialRecord: SecurityImage.replay_remove_scram,
    r.DelegationTokenRecord: SecurityImage.replay_token,
    r.RemoveDelegationTokenRecord: SecurityImage.replay_remove_token,
}

_REPLAY: Final[dict[type[Message], Callable[[MetadataDelta, Any], None]]] = {
    r.TopicRecord: lambda delta, record: delta.topics.replay_topic(record),
    r.PartitionRecord: lambda delta, record: delta.topics.replay_partition(record),
    r.PartitionChangeRecord: lambda delta, record: delta.topics.replay_partition_change(record),
    r.ClearElrRecord: lambda delta, record: delta.topics.replay_clear_elr(record),
    r.RemoveTopicRecord: MetadataDelta.replay_remove_topic,
    r.RegisterBrokerRecord: lambda delta, record: delta.cluster.replay_register(record),
    r.UnregisterBrokerRecord: lambda delta, record: delta.cluster.replay_unregister(record),
    r.FenceBrokerRecord: lambda delta, record: delta.cluster.replay_fence(record),
    r.UnfenceBrokerRecord: lambda delta, record: delta.cluster.replay_unfence(record),
    r.BrokerRegistrationChangeRecord: lambda delta, record: delta.cluster.replay_change(record),
    r.RegisterControllerRecord: lambda delta, record: delta.cluster.replay_controller(record),
    r.ConfigRecord: MetadataDelta.replay_config,
    r.FeatureLevelRecord: MetadataDelta.replay_feature,
    r.ProducerIdsRecord: MetadataDelta.replay_producer_ids,
    r.ZkMigrationStateRecord: MetadataDelta.replay_zk_migration,
    **dict.fromkeys(_SECURITY, MetadataDelta.replay_security),
    r.AccessControlEntryRecord: MetadataDelta.replay_acl,
    r.RemoveAccessControlEntryRecord: MetadataDelta.replay_remove_acl,
    r.ClientQuotaRecord: MetadataDelta.replay_quota,
    r.NoOpRecord: _nothing,
    r.BeginTransactionRecord: _nothing,
    r.EndTransactionRecord: _nothing,
    r.AbortTransactionRecord: _nothing,
}
