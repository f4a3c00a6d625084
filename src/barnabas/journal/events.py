"""The events of the journal that one change of the metadata makes: plain values, ready to be written as JSON.

One event for each (metadata offset, subject): partition, broker, controller, resource, feature; one for up to 200 new
partitions of a topic, and for up to 200 changed partitions of a large decision. Number, ids and before/after content of
the events depend on the metadata log alone, so two controllers that report the same change write the same events; only
the cause can differ. Has no side effects. The schema is in docs/explain.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from barnabas.common.bulk_events import BULK_KIND, ROWS_MAX
from barnabas.common.config_keys import BROKER_KEYS
from barnabas.common.types import uuid_to_text
from barnabas.controller.requests.result import Cause
from barnabas.controller.requests.view import ControllerView
from barnabas.journal.bulk import BulkEvents, is_large
from barnabas.journal.causes import EventCause, cause_of_change, cause_of_partition
from barnabas.journal.event_record import VERSION
from barnabas.journal.partition_changes import (
    changes_of,
    is_decided,
    partition_before,
    seen_fields,
    shown_partition,
)
from barnabas.metadata.acls import AclOperation, AclPattern, AclPermission, AclResource, AclRule, shown
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataDelta, MetadataImage
from barnabas.metadata.quota_entities import shown_entity
from barnabas.metadata.registrations import BrokerImage
from barnabas.metadata.topics import PartitionImage, TopicDelta
from barnabas.protocol.messages.records_metadata import DelegationTokenRecord, UserScramCredentialRecord
from barnabas.protocol.sasl.mechanism import SCRAM_NAMES

Event = dict[str, Any]
#: Infers the cause of one partition's change from its states before and after.
Infer = Callable[[PartitionImage, PartitionImage], EventCause]

_RESOURCES: Final = {2: "topic", 4: "broker", 8: "broker-logger", 16: "client-metrics", 32: "group"}
_HIDDEN: Final = "[hidden]"


class MetadataChange(NamedTuple):
    """A committed change. `voters`: the quorum's voters before and after it, or None if they are the same."""

    delta: MetadataDelta
    image: MetadataImage
    cause: Cause | None
    is_first_of_epoch: bool = False
    voters: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @property
    def offset(self) -> int:
        return self.image.offset

    @property
    def weight(self) -> int:
        """The memory that the change takes, in changed partitions.

        An image has a slot for each partition of a changed topic; eight of them count as one.
        """
        weight = 1
        for topic in self.delta.changed_topics.values():
            weight += len(topic.changed_partitions) + (0 if topic.base is None else len(topic.base.partitions) // 8)
        return weight


def makes_events(delta: MetadataDelta) -> bool:
    """Returns whether a change results in any event. Markers, no-ops and producer ids result in none."""
    topics, cluster = delta.topics, delta.cluster
    return bool(
        topics.changed
        or topics.deleted
        or cluster.changed_brokers
        or cluster.changed_controllers
        or delta.changed_configs
        or delta.changed_features
        or delta.changed_credentials
        or delta.changed_acls
        or delta.changed_quotas
        or delta.changed_tokens
    )


def changes_rights(delta: MetadataDelta) -> bool:
    """Returns whether a change gives or takes rights: the rules of the authorizer, credentials, delegation tokens,
    quotas.
    """
    return bool(delta.changed_acls or delta.changed_credentials or delta.changed_tokens or delta.changed_quotas)


def events_of(change: MetadataChange, view: ControllerView, node_id: int) -> Iterator[tuple[str, Event]]:
    """Yields (subject, event), nodes first, as they cause the others. `view` shows the image after the change."""
    whole = cause_of_change(change.cause, change.delta)
    builder = _EventBuilder(change, whole, view, node_id)
    yield from builder.controllers()
    yield from builder.brokers()
    for topic in change.delta.deleted_topics.values():
        fields = {"topic": topic.name, "topic_id": uuid_to_text(topic.topic_id), "partitions": len(topic.partitions)}
        yield builder.event("topic-deleted", f"topic:{topic.name}", whole, fields)
    is_packed = is_large(change.delta)
    for topic_delta in change.delta.changed_topics.values():
        yield from builder.new_partitions(topic_delta)
        if not is_packed:
            yield from builder.changed_partitions(topic_delta)
    if is_packed:
        yield from builder.bulk()
    yield from builder.settings()


def changed_partitions(
    change: MetadataChange, view: ControllerView, node_id: int, infer: Infer
) -> Iterator[tuple[str, Event]]:
    """Yields (subject, event) of each changed partition, with its cause from `infer`, for decisions whose cause is
    unknown.
    """
    builder = _EventBuilder(change, cause_of_change(None, change.delta), view, node_id)
    for topic_delta in change.delta.changed_topics.values():
        yield from builder.changed_partitions(topic_delta, infer)


class _EventBuilder:
    def __init__(self, change: MetadataChange, whole: EventCause, view: ControllerView, node_id: int) -> None:
        self._change = change
        self._whole = whole
        self._view = view
        self._node_id = node_id

    def event(self, kind: str, subject: str, cause: EventCause, fields: Mapping[str, object]) -> tuple[str, Event]:
        offset = self._change.offset
        event: Event = {
            "v": VERSION,
            "id": f"{offset}:{subject}",
            "time_ms": self._change.image.timestamp_ms,
            "kind": kind,
            "metadata_offset": offset,
            "node": self._node_id,
            **fields,
            "cause": cause.code,
            "actor": cause.actor,
            "text": cause.text,
        }
        if cause.is_inferred:
            event["inferred"] = True
        return subject, event

    # -- nodes

    def controllers(self) -> Iterator[tuple[str, Event]]:
        change = self._change
        for controller_id, after in change.delta.changed_controllers.items():
            if after is not None:
                kind = "controller-change" if change.is_first_of_epoch else "controller-registered"
                fields = {"controller": controller_id, "epoch": change.image.epoch}
                yield self.event(kind, f"controller:{controller_id}", self._whole, fields)
        if change.voters is not None:
            before, voters = change.voters
            yield self.event("quorum-change", "quorum", self._whole, {"before": before, "after": voters})

    def brokers(self) -> Iterator[tuple[str, Event]]:
        delta = self._change.delta
        for broker_id, after in delta.changed_brokers.items():
            before = delta.image.brokers.get(broker_id)
            if before != after:
                fields: Event = {"broker": broker_id, "before": _broker(before), "after": _broker(after)}
                if before is not None and after is not None and _has_new_disks(before, after):
                    fields["new_directories"] = True
                yield self.event(_broker_kind(before, after), f"broker:{broker_id}", self._whole, fields)

    # -- topics

    def new_partitions(self, topic: TopicDelta) -> Iterator[tuple[str, Event]]:
        new = [
            index
            for index in sorted(topic.changed_partitions)
            if partition_before(topic, index) is None and is_decided(topic.changed_partitions[index])
        ]
        for start in range(0, len(new), ROWS_MAX):
            part = [topic.changed_partitions[index] for index in new[start : start + ROWS_MAX]]
            first = new[start]
            fields = {
                "topic": topic.name,
                "topic_id": uuid_to_text(topic.topic_id),
                "first_partition": first,
                "partitions": len(part),
                "replicas": [partition.replicas for partition in part],
                "leaders": [partition.leader for partition in part],
                "isrs": [partition.isr for partition in part],
                "min_isr": self._view.min_isr(topic.name, len(part[0].replicas)),
            }
            kind = "topic-created" if _is_new(topic) else "partitions-added"
            yield self.event(kind, f"topic:{topic.name}:{first}", self._whole, fields)

    def changed_partitions(self, topic: TopicDelta, infer: Infer | None = None) -> Iterator[tuple[str, Event]]:
        topic_id, text_id = topic.topic_id, uuid_to_text(topic.topic_id)
        min_isr = -1
        for index, after in topic.changed_partitions.items():
            before = partition_before(topic, index)
            if before is None:
                continue
            whole = self._whole if infer is None else infer(before, after)
            changes = changes_of(before, after, whole.code)
            if not changes:
                continue
            if min_isr < 0:
                min_isr = self._view.min_isr(topic.name, 1 << 30)
            cause = cause_of_partition(whole, self._change.cause, (topic_id, index), before, after)
            fields: Event = {
                "changes": changes,
                "topic": topic.name,
                "topic_id": text_id,
                "partition": index,
                "before": shown_partition(before),
                "after": shown_partition(after),
                "min_isr": min(min_isr, len(after.replicas)),
            }
            if cause.seen is not None:
                fields["seen"] = seen_fields(cause.seen)
            yield self.event(changes[0], f"{topic.name}-{index}", cause, fields)

    def bulk(self) -> Iterator[tuple[str, Event]]:
        """Yields an event for up to 200 changed partitions each."""
        change = self._change
        packing = BulkEvents(change.delta, self._whole, change.cause, lambda name: self._view.min_isr(name, 1 << 30))
        for number, fields in enumerate(packing.fields()):
            yield self.event(BULK_KIND, f"partitions:{number}", self._whole, fields)

    # -- configurations and features

    def settings(self) -> Iterator[tuple[str, Event]]:
        delta = self._change.delta
        for (resource_type, name), changed in delta.changed_configs.items():
            if resource_type == TOPIC_RESOURCE and any(topic.name == name for topic in delta.deleted_topics.values()):
                continue
            before = delta.image.config_of(resource_type, name)
            fields = {
                "resource": _RESOURCES.get(resource_type, str(resource_type)),
                "name": name,
                "before": {key: _value(resource_type, key, before.get(key)) for key in changed},
                "after": {key: _value(resource_type, key, value) for key, value in changed.items()},
            }
            yield self.event("config-changed", f"config:{fields['resource']}:{name}", self._whole, fields)
        for feature, level in delta.changed_features.items():
            levels: Event = {"feature": feature, "before": delta.image.features.get(feature, 0), "after": level}
            yield self.event("feature-changed", f"feature:{feature}", self._whole, levels)
        yield from self._credentials()
        yield from self._tokens()
        yield from self._rules()
        yield from self._quotas()

    def _rules(self) -> Iterator[tuple[str, Event]]:
        """Yields an event for each rule of the authorizer that was added or removed."""
        delta = self._change.delta
        for rule_id, rule in delta.changed_acls.items():
            known = delta.image.security.acls.get(rule_id) if rule is None else rule
            if known is not None:
                kind = "acl-removed" if rule is None else "acl-added"
                yield self.event(kind, f"acl:{uuid_to_text(rule_id)}", self._whole, rule_fields(known))

    def _credentials(self) -> Iterator[tuple[str, Event]]:
        """Yields an event for each changed SCRAM credential: who and how, never a secret."""
        delta = self._change.delta
        before, after = delta.image.security.scram, self._change.image.security.scram
        for key in sorted(delta.changed_credentials):
            mechanism = SCRAM_NAMES.get(key[0], str(key[0]))
            fields = {
                "user": key[1],
                "mechanism": mechanism,
                "before": _iterations(before.get(key)),
                "after": _iterations(after.get(key)),
            }
            yield self.event("credential-changed", f"credential:{mechanism}:{key[1]}", self._whole, fields)

    def _tokens(self) -> Iterator[tuple[str, Event]]:
        """Yields an event for each changed delegation token, never with its HMAC."""
        before, after = self._change.delta.image.security.tokens, self._change.image.security.tokens
        for token_id in sorted(self._change.delta.changed_tokens):
            old, new = before.get(token_id), after.get(token_id)
            fields: Event = {"token": token_id, "before": _shown_token(old), "after": _shown_token(new)}
            kind = "token-created" if old is None else "token-removed" if new is None else "token-changed"
            yield self.event(kind, f"token:{token_id}", self._whole, fields)

    def _quotas(self) -> Iterator[tuple[str, Event]]:
        delta = self._change.delta
        for entity, values in delta.changed_quotas.items():
            old: Mapping[str, float] = delta.image.security.quotas.get(entity, {})
            fields: Event = {
                "entity": dict(entity),
                "before": {key: old.get(key) for key in values},
                "after": dict(values),
            }
            yield self.event("quota-changed", f"quota:{shown_entity(entity)}", self._whole, fields)


def rule_fields(rule: AclRule) -> Event:
    """Returns a rule as the events about it show it."""
    return {
        "permission": shown(AclPermission, rule.permission),
        "principal": rule.principal,
        "host": rule.host,
        "operation": shown(AclOperation, rule.operation),
        "resource": shown(AclResource, rule.resource_type),
        "pattern": shown(AclPattern, rule.pattern_type),
        "name": rule.resource_name,
    }


def _shown_token(token: DelegationTokenRecord | None) -> Event | None:
    if token is None:
        return None
    return {
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "max_ms": token.max_timestamp,
        "expires_ms": token.expiration_timestamp,
    }


def _iterations(credential: UserScramCredentialRecord | None) -> Event | None:
    return None if credential is None else {"iterations": credential.iterations}


def _is_new(topic: TopicDelta) -> bool:
    return topic.base is None or not any(is_decided(partition) for partition in topic.base.partitions)


def _broker(broker: BrokerImage | None) -> Event | None:
    if broker is None:
        return None
    shown = {"epoch": broker.epoch, "fenced": broker.fenced, "in_controlled_shutdown": broker.in_controlled_shutdown}
    return shown | ({"rack": broker.rack} if broker.rack is not None else {})


def _has_new_disks(before: BrokerImage, after: BrokerImage) -> bool:
    """Returns whether a broker has lost all of its log directories, and has others."""
    return bool(before.directories and after.directories) and not set(before.directories) & set(after.directories)


def _broker_kind(before: BrokerImage | None, after: BrokerImage | None) -> str:
    if after is None:
        return "broker-unregistered"
    if before is None or before.epoch != after.epoch:
        return "broker-registered"
    if before.fenced != after.fenced:
        return "broker-fenced" if after.fenced else "broker-unfenced"
    if after.in_controlled_shutdown and not before.in_controlled_shutdown:
        return "controlled-shutdown"
    if before.unwritable != after.unwritable:
        return "broker-full" if after.unwritable else "broker-writable"
    return "directory-lost" if set(before.directories) - set(after.directories) else "broker-changed"


def _value(resource_type: int, key: str, value: str | None) -> str | None:
    """Returns a config's value, or a placeholder if it can be secret: a broker's password or unknown key."""
    if value is not None and resource_type == BROKER_RESOURCE:
        known = BROKER_KEYS.get(key)
        if known is None or known.is_sensitive:
            return _HIDDEN
    return value
