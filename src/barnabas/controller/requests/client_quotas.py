"""Changes of client quotas (AlterClientQuotas), checked as in Kafka's controller.

An address is written as an address: Kafka resolves host names as well, which would wait for a name server.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final, NamedTuple

from immutables import Map

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.controller.requests.result import Cause, ControllerEvent, Result, Versioned
from barnabas.controller.requests.view import ControllerView
from barnabas.metadata.quota_entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    shown_entity,
)
from barnabas.metadata.security import QuotaEntity
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas.protocol.messages.records_metadata import ClientQuotaRecord

_Request = AlterClientQuotasRequest
_Response = AlterClientQuotasResponse


class _Kind(NamedTuple):
    """The type of a quota's values: the largest allowed one, and whether they can be fractional."""

    name: str
    max: float
    is_integral: bool


_DOUBLE: Final = _Kind("DOUBLE", float("inf"), False)
_LONG: Final = _Kind("LONG", float(1 << 63), True)
_INT: Final = _Kind("INT", float((1 << 31) - 1), True)
_OF_CLIENTS: Final = {
    PRODUCER_BYTE_RATE: _LONG,
    CONSUMER_BYTE_RATE: _LONG,
    REQUEST_PERCENTAGE: _DOUBLE,
    CONTROLLER_MUTATION_RATE: _DOUBLE,
}
_OF_ADDRESSES: Final = {CONNECTION_CREATION_RATE: _INT}
#: The largest fraction that counts as rounding.
_FRACTION_MAX: Final = 1e-6
_NO_QUOTAS: Final[Map[str, float]] = Map()


def alter_client_quotas(view: ControllerView, request: _Request, actor: str) -> Result[_Response]:
    """Returns one result per entity; an entity with an invalid change keeps all its quotas."""
    records: list[Versioned] = []
    rows: dict[QuotaEntity, _Response.EntryData] = {}
    done: list[str] = []
    for entry in request.entries:
        entity = entity_of(entry)
        if entity in rows or len({op.key for op in entry.ops}) < len(entry.ops):
            text = f"Ignoring duplicate entity {_java_text(entry)}"
            rows[entity] = _row(entity, ErrorCode.INVALID_REQUEST, text)
            continue
        try:
            made = _records_of(view, entity, {op.key: None if op.remove else op.value for op in entry.ops})
        except RequestFailed as error:
            rows[entity] = _row(entity, error.code, error.message)
            continue
        rows[entity] = _row(entity, ErrorCode.NONE, None)
        if made:
            records += made
            done.append(shown_entity(entity))
    cause = Cause(ControllerEvent.ALTER_CLIENT_QUOTAS, actor, "; ".join(done))
    return Result(records, _Response(entries=list(rows.values())), cause)


def refused(request: _Request, code: ErrorCode) -> _Response:
    """Returns the same error for each entity."""
    rows = {entity: _row(entity, code, None) for entity in map(entity_of, request.entries)}
    return _Response(entries=list(rows.values()))


def entity_of(entry: _Request.EntryData) -> QuotaEntity:
    """Returns the entity of a row. If a part is named twice, the last one counts."""
    parts = {part.entity_type: part.entity_name for part in entry.entity}
    return tuple(sorted(parts.items(), key=lambda part: part[0]))


def _java_text(entry: _Request.EntryData) -> str:
    parts = {part.entity_type: part.entity_name for part in entry.entity}
    shown = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in parts.items())
    return f"ClientQuotaEntity(entries={{{shown}}})"


def _row(entity: QuotaEntity, code: ErrorCode, text: str | None) -> _Response.EntryData:
    parts = [_Response.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    return _Response.EntryData(error_code=code, error_message=text, entity=parts)


def _records_of(view: ControllerView, entity: QuotaEntity, values: Mapping[str, float | None]) -> list[Versioned]:
    """Returns the records of what changes. Raises RequestFailed if the entity or a value is invalid."""
    known = _keys_of(entity)
    before = view.image.security.quotas.get(entity, _NO_QUOTAS)
    records: list[Versioned] = []
    for key, value in values.items():
        parts = [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        if value is None:
            if key in before:
                records.append((ClientQuotaRecord(entity=parts, key=key, remove=True), 0))
            continue
        _check_value(known, key, value)
        if before.get(key) != value:
            records.append((ClientQuotaRecord(entity=parts, key=key, value=value), 0))
    return records


def _keys_of(entity: QuotaEntity) -> Mapping[str, _Kind]:
    """Returns the keys that an entity can have. Raises RequestFailed if it is invalid."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    address = dict(entity).get(IP, "")
    if address == "":
        return _OF_CLIENTS
    if len(entity) > 1:
        raise _invalid("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    if address is not None and not _is_address(address):
        raise _invalid(f"{address} is not a valid IP or resolvable host.")
    return _OF_ADDRESSES


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(known: Mapping[str, _Kind], key: str, value: float) -> None:
    kind = known.get(key)
    if kind is None:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if value > kind.max or (kind.is_integral and value == float("inf")):
        article = "an" if kind.name == "INT" else "a"
        raise _invalid(f"Proposed value for {key} is too large for {article} {kind.name}.")
    if kind.is_integral and value % 1.0 > _FRACTION_MAX:
        raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(text: str) -> RequestFailed:
    return RequestFailed(ErrorCode.INVALID_REQUEST, text)
