"""DescribeClientQuotas (48), versions 0-1: the quotas whose entities a filter matches (KIP-546)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.gradual import sorted_gradually
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.quota_entities import CLIENT_ID, IP, USER
from barnabas.metadata.security import QuotaEntity
from barnabas.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2
_ENTITIES_PER_STEP: Final = 200
#: Entity type -> the name, None for the default, or `_ANY` for every one.
_Filter = dict[str, str | int | None]
_Response = DescribeClientQuotasResponse


def handle(
    context: RequestContext, request: DescribeClientQuotasRequest, services: Services
) -> _Response | Generator[int, None, _Response]:
    try:
        wanted = _filter_of(request)
    except RequestFailed as error:
        return _Response(error_code=error.code, error_message=error.message, entries=None)
    return _in_steps(services.metadata.image, wanted, strict=request.strict)


def _filter_of(request: DescribeClientQuotasRequest) -> _Filter:
    """Returns the filter. Raises RequestFailed if it is invalid."""
    wanted: _Filter = {}
    for part in request.components:
        kind = part.entity_type
        if not kind:
            raise RequestFailed(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in wanted:
            text = f"Entity type {kind} cannot appear more than once in the filter."
            raise RequestFailed(ErrorCode.INVALID_REQUEST, text)
        if kind not in (USER, CLIENT_ID, IP):
            raise RequestFailed(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        wanted[kind] = _match_of(part)
    if IP in wanted and len(wanted) > 1:
        text = (
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
        raise RequestFailed(ErrorCode.INVALID_REQUEST, text)
    return wanted


def _match_of(part: DescribeClientQuotasRequest.ComponentData) -> str | int | None:
    names = {_EXACT: "MATCH_TYPE_EXACT", _DEFAULT: "MATCH_TYPE_DEFAULT", _ANY: "MATCH_TYPE_SPECIFIED"}
    name = names.get(part.match_type)
    if name is None:
        raise RequestFailed(ErrorCode.INVALID_REQUEST, f"Unknown match type {part.match_type}")
    if part.match_type == _EXACT:
        if part.match is None:
            raise RequestFailed(ErrorCode.INVALID_REQUEST, f"Request specified {name}, but set match string to null.")
        return part.match
    if part.match is not None:
        text = f"Request specified {name}, but also specified a match string."
        raise RequestFailed(ErrorCode.INVALID_REQUEST, text)
    return None if part.match_type == _DEFAULT else _ANY


def _in_steps(image: MetadataImage, wanted: _Filter, *, strict: bool) -> Generator[int, None, _Response]:
    found: dict[str, tuple[QuotaEntity, Mapping[str, float]]] = {}
    for number, (entity, values) in enumerate(image.security.quotas.items(), 1):
        if _matches(dict(entity), wanted, strict=strict):
            found[_order(entity)] = (entity, values)
        if number % _ENTITIES_PER_STEP == 0:
            yield 1
    response = _Response(error_message="", entries=[])
    assert response.entries is not None
    order = yield from sorted_gradually(found)
    for number, (entity, quotas) in enumerate(map(found.__getitem__, order), 1):
        response.entries.append(
            _Response.EntryData(
                entity=[_Response.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[_Response.ValueData(key=key, value=value) for key, value in sorted(quotas.items())],
            )
        )
        if number % _ENTITIES_PER_STEP == 0:
            yield 1
    return response


def _order(entity: QuotaEntity) -> str:
    """Returns a text that orders entities by their types and names; the default entity comes first. One text is
    compared much faster than a list of pairs.
    """
    return "\0".join(f"{kind}\0" if name is None else f"{kind}\0\1{name}" for kind, name in entity)


def _matches(entity: Mapping[str, str | None], wanted: _Filter, *, strict: bool) -> bool:
    if strict and (len(entity) != len(wanted) or not wanted):
        return False
    return all(kind in entity and name in (_ANY, entity[kind]) for kind, name in wanted.items())
