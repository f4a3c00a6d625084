"""Credentials, ACLs, tokens and quotas as in the metadata log, kept so that snapshots lose nothing.

The values are the records themselves, and `AclRule` for ACLs; a record in an image is never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

from immutables import Map

from barnabas.common.layered_map import LayeredMap
from barnabas.metadata.acls import AclRule
from barnabas.protocol.messages.records_metadata import (
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

#: ((entity type, entity name or None for the default), ...), sorted by type.
QuotaEntity = tuple[tuple[str, str | None], ...]

#: (mechanism, user) -> credential.
Credentials = Mapping[tuple[int, str], UserScramCredentialRecord]
_NO_QUOTAS: Map[str, float] = Map()


@dataclass(frozen=True, slots=True)
class SecurityImage:
    """The security part of an image. The `replay_*` methods return a copy with one more record applied, `replay_acls`
    with many: a copy for each of 100,000 rules would take a third of the time of a start.
    """

    #: (mechanism, user) -> credential.
    scram: Map[tuple[int, str], UserScramCredentialRecord] = field(default_factory=Map)
    #: Rule id -> ACL, and the reverse.
    acls: LayeredMap[bytes, AclRule] = field(default_factory=LayeredMap)
    acl_ids: LayeredMap[AclRule, bytes] = field(default_factory=LayeredMap)
    #: Token id -> token.
    tokens: Map[str, DelegationTokenRecord] = field(default_factory=Map)
    quotas: Map[QuotaEntity, Map[str, float]] = field(default_factory=Map)

    def rebased(self, base: SecurityImage, later: SecurityImage) -> SecurityImage:
        """Returns `later` with the changes from `base` to this image; `later` has not changed the same fields."""
        changes: dict[str, Any] = {}
        for each in fields(self):
            value, before = getattr(self, each.name), getattr(base, each.name)
            if value is not before:
                assert getattr(later, each.name) is before, f"{each.name} has changed"
                changes[each.name] = value
        return replace(later, **changes)

    def settle(self) -> None:
        """Applies the ACLs that are pending, so that no later turn has to."""
        self.acls.settle()
        self.acl_ids.settle()

    def replay_scram(self, record: UserScramCredentialRecord) -> SecurityImage:
        return replace(self, scram=self.scram.set((record.mechanism, record.name), record))

    def replay_remove_scram(self, record: RemoveUserScramCredentialRecord) -> SecurityImage:
        return replace(self, scram=self.scram.delete((record.mechanism, record.name)))

    def replay_acls(self, changes: dict[bytes, AclRule | None]) -> SecurityImage:
        """Applies the rules that were set or removed (None), by id. The caller does not change `changes` any more."""
        rules, ids = self.acls, self.acl_ids
        if None not in changes.values():
            added = cast("dict[bytes, AclRule]", changes)
            return replace(
                self, acls=rules.changed(added), acl_ids=ids.changed(dict(zip(added.values(), added, strict=True)))
            )
        added = {rule_id: rule for rule_id, rule in changes.items() if rule is not None}
        removed = {rule_id: rules[rule_id] for rule_id in changes if rule_id not in added and rule_id in rules}
        return replace(
            self,
            acls=rules.changed(added, removed),
            acl_ids=ids.changed(
                {rule: rule_id for rule_id, rule in added.items()},
                {rule for rule_id, rule in removed.items() if ids.get(rule) == rule_id},
            ),
        )

    def replay_token(self, record: DelegationTokenRecord) -> SecurityImage:
        return replace(self, tokens=self.tokens.set(record.token_id, record))

    def replay_remove_token(self, record: RemoveDelegationTokenRecord) -> SecurityImage:
        return replace(self, tokens=self.tokens.delete(record.token_id))

    def replay_quota(self, record: ClientQuotaRecord) -> SecurityImage:
        entity = quota_entity(record)
        values = self.quotas.get(entity, Map())
        if record.remove:
            if record.key in values:
                values = values.delete(record.key)
        else:
            values = values.set(record.key, record.value)
        if values:
            return replace(self, quotas=self.quotas.set(entity, values))
        return replace(self, quotas=self.quotas.delete(entity)) if entity in self.quotas else self

    def changed_quotas(self, new: SecurityImage) -> dict[QuotaEntity, dict[str, float | None]]:
        """Returns the changes from these quotas to those of `new`: entity -> key -> value, None where it was
        removed.
        """
        if new.quotas is self.quotas:
            return {}
        changed: dict[QuotaEntity, dict[str, float | None]] = {}
        for entity in sorted({*self.quotas, *new.quotas}, key=repr):
            before, after = self.quotas.get(entity, _NO_QUOTAS), new.quotas.get(entity, _NO_QUOTAS)
            if before != after:
                keys = sorted({*before, *after})
                changed[entity] = {key: after.get(key) for key in keys if before.get(key) != after.get(key)}
        return changed


def quota_entity(record: ClientQuotaRecord) -> QuotaEntity:
    """Returns the entity that a record names."""
    return tuple(sorted(((part.entity_type, part.entity_name) for part in record.entity), key=_entity_type))


def changed_acls(old: SecurityImage, new: SecurityImage) -> Mapping[bytes, AclRule | None]:
    """Returns the ACLs that differ between two images, by id: the new one, or None where it was removed."""
    if not old.acls:
        return new.acls
    changed: dict[bytes, AclRule | None] = {
        rule_id: rule for rule_id, rule in new.acls.items() if old.acls.get(rule_id) != rule
    }
    changed.update(dict.fromkeys(rule_id for rule_id in old.acls if rule_id not in new.acls))
    return changed


def _entity_type(part: tuple[str, str | None]) -> str:
    return part[0]
