"""Records of a single znode: brokers, configurations, quotas, SCRAM credentials, ACLs, tokens, features."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from barnabas.metadata.image import METADATA_VERSION
from barnabas.metadata.registrations import endpoint_rows, feature_rows
from barnabas.metadata.security import QuotaEntity
from barnabas.protocol.messages import records_metadata as r
from barnabas.znodes.acl_znodes import AclEntry, ResourcePattern
from barnabas.znodes.broker_znodes import BrokerRegistration
from barnabas.znodes.cluster_znodes import Features, ProducerIdBlock
from barnabas.znodes.token_znodes import DelegationToken
from barnabas.znodes.znode_json import ZnodeError

#: SCRAM mechanisms as keys of a user's configuration, with Kafka's numbers.
SCRAM_MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}

#: A number as Java's `Double.valueOf` reads it, without its hexadecimal form.
_DOUBLE: Final = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)", re.ASCII)
_SCRAM_FIELDS: Final = ("salt", "stored_key", "server_key", "iterations")


def broker_record(broker_id: int, epoch: int, registration: BrokerRegistration) -> r.RegisterBrokerRecord:
    """Returns the registration of a broker that is alive; `epoch` is the czxid of its znode."""
    return r.RegisterBrokerRecord(
        broker_id=broker_id,
        is_migrating_zk_broker=True,
        broker_epoch=epoch,
        end_points=endpoint_rows(r.RegisterBrokerRecord.BrokerEndpoint, registration.endpoints),
        features=feature_rows(r.RegisterBrokerRecord.BrokerFeature, registration.features),
        rack=registration.rack,
        fenced=False,
    )


def config_records(resource_type: int, name: str, overrides: Mapping[str, str]) -> Iterator[r.ConfigRecord]:
    for key, value in overrides.items():
        yield r.ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)


def quota_records(path: str, entity: QuotaEntity, overrides: Mapping[str, str]) -> Iterator[r.ClientQuotaRecord]:
    """Yields the quotas of an entity, without SCRAM credentials. Raises ZnodeError for a quota that is not a number."""
    for key, value in overrides.items():
        if key in SCRAM_MECHANISMS:
            continue
        if not _DOUBLE.fullmatch(value.strip()):
            raise ZnodeError(path, f"config.{key} is {value!r} instead of a number")
        yield quota_record(entity, key, float(value.strip().rstrip("fFdD") if value.strip()[-1] in "fFdD" else value))


def quota_record(entity: QuotaEntity, key: str, value: float | None = None) -> r.ClientQuotaRecord:
    """Returns the record of a quota of an entity, or of its removal if `value` is missing."""
    return r.ClientQuotaRecord(
        entity=[r.ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        key=key,
        value=0.0 if value is None else value,
        remove=value is None,
    )


def scram_records(path: str, user: str, overrides: Mapping[str, str]) -> Iterator[r.UserScramCredentialRecord]:
    """Yields the credentials of a user. Raises ZnodeError for one that is not `salt=,stored_key=,...`."""
    for mechanism, number in SCRAM_MECHANISMS.items():
        text = overrides.get(mechanism)
        if text is None:
            continue
        fields = dict(field.partition("=")[::2] for field in text.split(","))
        try:
            salt, stored_key, server_key = (base64.b64decode(fields[key], validate=True) for key in _SCRAM_FIELDS[:3])
            iterations = int(fields["iterations"])
        except (KeyError, ValueError, binascii.Error) as error:
            raise ZnodeError(path, f"config.{mechanism} is not a SCRAM credential: {error}") from error
        yield r.UserScramCredentialRecord(
            name=user, mechanism=number, salt=salt, stored_key=stored_key, server_key=server_key, iterations=iterations
        )


def scram_text(credential: r.UserScramCredentialRecord) -> str:
    """Returns a credential in the form that a user's configuration contains."""
    salt, stored_key, server_key = (
        base64.b64encode(value).decode() for value in (credential.salt, credential.stored_key, credential.server_key)
    )
    return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={credential.iterations}"


def producer_ids_record(block: ProducerIdBlock) -> r.ProducerIdsRecord:
    return r.ProducerIdsRecord(broker_id=block.broker_id, broker_epoch=-1, next_producer_id=block.last_id + 1)


def feature_records(features: Features) -> Iterator[r.FeatureLevelRecord]:
    """Yields the finalized features; `metadata.version` is not among those of ZooKeeper."""
    for name, level in features.levels.items():
        if name != METADATA_VERSION:
            yield r.FeatureLevelRecord(name=name, feature_level=level)


def acl_records(
    pattern: ResourcePattern, entries: Iterable[AclEntry], new_id: Callable[[], bytes]
) -> Iterator[r.AccessControlEntryRecord]:
    """Yields the ACLs of a resource; `new_id` gives each its id, which znodes do not have."""
    for entry in entries:
        yield r.AccessControlEntryRecord(
            id=new_id(),
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            pattern_type=pattern.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )


def token_record(token: DelegationToken) -> r.DelegationTokenRecord:
    return r.DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        expiration_timestamp=token.expiry_timestamp_ms,
        token_id=token.token_id,
    )


def token_of(record: r.DelegationTokenRecord) -> DelegationToken:
    return DelegationToken(
        record.token_id,
        record.owner,
        record.requester,
        tuple(record.renewers),
        record.issue_timestamp,
        record.max_timestamp,
        record.expiration_timestamp,
    )
