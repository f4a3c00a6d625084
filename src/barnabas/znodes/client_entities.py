"""The configurations of users, clients and IP addresses: the entity that a path names, and its metadata records.

    users/U             quotas and SCRAM credentials of a user; users/<default>: quotas of users without their own
    users/U/clients/C   quotas of a client of a user; each of the two can be <default>
    clients/C, ips/A    quotas of a client, of an address

Names are percent-encoded, as `Sanitizer` of Kafka does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from immutables import Map

from barnabas.common.host import Buffer
from barnabas.metadata.security import QuotaEntity, SecurityImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages import records_metadata as r
from barnabas.znodes import entity_records, paths
from barnabas.znodes.config_znodes import decode_config
from barnabas.znodes.znode_json import ZnodeError

USER: Final = "user"
CLIENT: Final = "client-id"
IP: Final = "ip"

#: Types of configurations whose entities are clients of some kind.
CLIENT_TYPES: Final = (paths.USER_CONFIGS, paths.CLIENT_CONFIGS, paths.IP_CONFIGS)

_NO_QUOTAS: Map[str, float] = Map()


class ClientEntity(NamedTuple):
    """The quotas that a znode contains, and the user whose credentials it contains; None if it can have none."""

    quotas: QuotaEntity
    user: str | None


def client_entity(entity_path: str) -> ClientEntity:
    """Returns the entity of a path below /config. Raises ZnodeError for a path that names none, and for a name that is
    not percent-encoded UTF-8.
    """
    match entity_path.split("/"):
        case [paths.USER_CONFIGS, user]:
            name = _name_in(entity_path, user)
            return ClientEntity(((USER, name),), name)
        case [paths.USER_CONFIGS, user, paths.CLIENT_CONFIGS, client]:
            names = _name_in(entity_path, client), _name_in(entity_path, user)
            return ClientEntity(((CLIENT, names[0]), (USER, names[1])), None)
        case [paths.CLIENT_CONFIGS, client]:
            return ClientEntity(((CLIENT, _name_in(entity_path, client)),), None)
        case [paths.IP_CONFIGS, address]:
            return ClientEntity(((IP, _name_in(entity_path, address)),), None)
        case _:
            raise ZnodeError(f"{paths.CONFIG}/{entity_path}", "names neither a user nor a client nor an IP address")


def _name_in(entity_path: str, name: str) -> str | None:
    """Returns the name in the path, or None for the default entity."""
    if name == paths.DEFAULT_ENTITY:
        return None
    found = paths.desanitize(name)
    if not found:
        raise ZnodeError(f"{paths.CONFIG}/{entity_path}", f"has the name {name!r}, which is not percent-encoded UTF-8")
    return found


def client_records(entity_path: str, data: Buffer | None) -> Iterator[Message]:
    """Yields the records of an entity: first its credentials, then its quotas. Raises ZnodeError for an invalid path
    or content.
    """
    path = f"{paths.CONFIG}/{entity_path}"
    entity = client_entity(entity_path)
    overrides = decode_config(path, data)
    if entity.user is not None:
        yield from entity_records.scram_records(path, entity.user, overrides)
    yield from entity_records.quota_records(path, entity.quotas, overrides)


def client_changes(security: SecurityImage, entity: ClientEntity, records: Iterable[Message]) -> list[Message]:
    """Returns the records that change an entity in an image to the state given by `records`, which are all records of
    that entity; none if nothing changes.
    """
    changes: list[Message] = []
    before = security.quotas.get(entity.quotas, _NO_QUOTAS)
    quotas: set[str] = set()
    mechanisms: set[int] = set()
    for record in records:
        if isinstance(record, r.ClientQuotaRecord):
            quotas.add(record.key)
            if before.get(record.key) != record.value:
                changes.append(record)
        else:
            assert isinstance(record, r.UserScramCredentialRecord), "an entity has quotas and credentials"
            mechanisms.add(record.mechanism)
            if security.scram.get((record.mechanism, record.name)) != record:
                changes.append(record)
    changes += (entity_records.quota_record(entity.quotas, key) for key in sorted(set(before) - quotas))
    if entity.user is not None:
        changes += (
            r.RemoveUserScramCredentialRecord(name=entity.user, mechanism=mechanism)
            for mechanism in sorted(entity_records.SCRAM_MECHANISMS.values())
            if mechanism not in mechanisms and (mechanism, entity.user) in security.scram
        )
    return changes


def client_entities(security: SecurityImage) -> set[ClientEntity]:
    """Returns the entities of which an image has quotas or credentials."""
    found = {ClientEntity(quotas, _user_of(quotas)) for quotas in security.quotas}
    return found | {ClientEntity(((USER, user),), user) for _, user in security.scram}


def _user_of(quotas: QuotaEntity) -> str | None:
    return quotas[0][1] if len(quotas) == 1 and quotas[0][0] == USER else None
