"""The entities of client quotas (users, client ids and addresses), and the quota that applies to a client (KIP-55,
KIP-612).

A quota belongs to one entity: a user, a client id, a client id of a user, or an address; each part is a name or the
default of those that have none of their own. All connections of one entity share its quota; a default quota gives a
separate quota to each entity that it applies to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.common.addresses import canonical
from barnabas.metadata.security import QuotaEntity

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

#: Changes of quotas: entity -> key -> value, None where the quota was removed.
QuotaChanges = Mapping[QuotaEntity, Mapping[str, float | None]]


class _Absent:
    """The user or client id of an entity that has no such part."""


_ABSENT: Final = _Absent()
#: The parts of an entity: a name, None for the default, or `_ABSENT`.
_Part = str | None | _Absent
_Parts = tuple[_Part, _Part]


class AppliedQuota(NamedTuple):
    """The quota that applies to a client. All clients with the same `user` and `client_id` share it; an empty field
    means that all values share it."""

    limit: float
    user: str
    client_id: str


class QuotaTable:
    """The quotas of one key, found by user and client id. It follows the metadata by its changes."""

    __slots__ = ("_values", "key")

    def __init__(self, key: str) -> None:
        self.key = key
        self._values: dict[_Parts, float] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def follow(self, changes: QuotaChanges) -> bool:
        """Applies changes. Returns whether any of them concerned this key."""
        is_changed = False
        for entity, values in changes.items():
            parts = _parts(entity)
            if parts is None or self.key not in values:
                continue
            is_changed = True
            value = values[self.key]
            if value is None:
                self._values.pop(parts, None)
            else:
                self._values[parts] = value
        return is_changed

    def find(self, user: str, client_id: str) -> AppliedQuota | None:
        """Returns the most specific quota of a client, in Kafka's order."""
        values = self._values
        for by_user in (user, None):
            for by_client in (client_id, None):
                limit = values.get((by_user, by_client))
                if limit is not None:
                    return AppliedQuota(limit, user, client_id)
            limit = values.get((by_user, _ABSENT))
            if limit is not None:
                return AppliedQuota(limit, user, "")
        for by_client in (client_id, None):
            limit = values.get((_ABSENT, by_client))
            if limit is not None:
                return AppliedQuota(limit, "", client_id)
        return None


class AddressQuotas:
    """The quotas of addresses: each address has an entry of its own or the default."""

    __slots__ = ("_default", "_values")

    def __init__(self) -> None:
        self._values: dict[str, float] = {}
        self._default: float | None = None

    def __bool__(self) -> bool:
        return bool(self._values) or self._default is not None

    def follow(self, changes: QuotaChanges) -> bool:
        """Applies changes. Returns whether any of them concerned an address."""
        is_changed = False
        for entity, values in changes.items():
            if len(entity) != 1 or entity[0][0] != IP or CONNECTION_CREATION_RATE not in values:
                continue
            is_changed = True
            name, value = entity[0][1], values[CONNECTION_CREATION_RATE]
            address = None if name is None else canonical(name) or name
            if address is None:
                self._default = value
            elif value is None:
                self._values.pop(address, None)
            else:
                self._values[address] = value
        return is_changed

    def find(self, address: str) -> float | None:
        """Returns the quota of an address in the form of `common.addresses`."""
        return self._values.get(address, self._default)


def all_quotas(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> QuotaChanges:
    """Returns the changes from no quotas to these."""
    return {entity: dict(values) for entity, values in quotas.items()}


def shown_entity(entity: Iterable[tuple[str, str | None]]) -> str:
    """Returns the text of an entity for people: "user alice, client-id <default>"."""
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in reversed(tuple(entity)))


def _parts(entity: QuotaEntity) -> _Parts | None:
    """Returns user and client id of an entity; None for an address."""
    found: dict[str, str | None] = dict(entity)
    if not found or not found.keys() <= {USER, CLIENT_ID}:
        return None
    return found.get(USER, _ABSENT), found.get(CLIENT_ID, _ABSENT)
