"""Decisions about delegation tokens (KIP-48, KIP-373), with Kafka's rules and error codes.

A token is found by its HMAC, which is its secret; `TokenControl` looks it up. Times are milliseconds since 1970. When a
token is renewed, its expiry time moves, at most to the maximum that was fixed at its creation.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Final, NamedTuple

from barnabas.common.errors import ErrorCode
from barnabas.common.token_settings import TokenSettings
from barnabas.common.types import uuid_to_text
from barnabas.controller.requests.result import Cause, ControllerEvent, Result, Versioned
from barnabas.controller.requests.view import ControllerView
from barnabas.metadata.tokens import is_expired, may_renew, token_hmac
from barnabas.metadata.versions import V_3_6_IV2
from barnabas.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.protocol.messages.records_metadata import DelegationTokenRecord, RemoveDelegationTokenRecord
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

USER_TYPE: Final = "User"
#: The number of tokens that are removed in one decision.
REMOVALS_MAX: Final = 1_000
_TIME_MAX: Final = (1 << 63) - 1


class TokenQuestion(NamedTuple):
    """The circumstances of a request: who sent it, when, and the settings of this node."""

    settings: TokenSettings
    requester: str
    now_ms: int

    def after(self, duration_ms: int) -> int:
        """Returns the time after this duration, at most the largest possible time."""
        return min(self.now_ms + duration_ms, _TIME_MAX)


def owner_of(request: CreateDelegationTokenRequest, requester: str) -> str:
    """Returns the principal that will own the token: the requester, unless the request names another (KIP-373)."""
    if not request.owner_principal_name:
        return requester
    return f"{request.owner_principal_type or ''}:{request.owner_principal_name}"


def create(
    view: ControllerView, request: CreateDelegationTokenRequest, question: TokenQuestion
) -> Result[CreateDelegationTokenResponse]:
    owner, requester = owner_of(request, question.requester), question.requester
    code = _refusal(view, question)
    has_type = request.owner_principal_type is not None or not request.owner_principal_name
    if code is ErrorCode.NONE and not (has_type and all(each.principal_type == USER_TYPE for each in request.renewers)):
        code = ErrorCode.INVALID_PRINCIPAL_TYPE
    response = creation_response(code, owner, requester)
    cause = Cause(ControllerEvent.CREATE_DELEGATION_TOKEN, requester, f"for {owner}")
    if code is not ErrorCode.NONE:
        return Result([], response, cause)
    settings = question.settings
    lifetime_ms = settings.max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    latest_ms = question.after(lifetime_ms)
    record = DelegationTokenRecord(
        owner=owner,
        requester=requester,
        renewers=[f"{each.principal_type}:{each.principal_name}" for each in request.renewers],
        issue_timestamp=question.now_ms,
        max_timestamp=latest_ms,
        expiration_timestamp=min(latest_ms, question.after(settings.expiry_ms)),
        token_id=uuid_to_text(view.random.uuid()),
    )
    response.issue_timestamp_ms = record.issue_timestamp
    response.max_timestamp_ms = record.max_timestamp
    response.expiry_timestamp_ms = record.expiration_timestamp
    response.token_id = record.token_id
    response.hmac = token_hmac(settings.secret_key, record.token_id)
    return Result([(record, 0)], response, cause)


def creation_response(code: ErrorCode, owner: str, requester: str, time_ms: int = 0) -> CreateDelegationTokenResponse:
    """Returns a response without a token. `time_ms` is the value of its times: Kafka's brokers send -1, its
    controllers 0."""
    owner_type, _, owner_name = owner.partition(":")
    requester_type, _, requester_name = requester.partition(":")
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=time_ms,
        expiry_timestamp_ms=time_ms,
        max_timestamp_ms=time_ms,
    )


def renew(
    view: ControllerView,
    request: RenewDelegationTokenRequest,
    question: TokenQuestion,
    token: DelegationTokenRecord | None,
) -> Result[RenewDelegationTokenResponse]:
    code = _refusal(view, question)
    cause = Cause(ControllerEvent.RENEW_DELEGATION_TOKEN, question.requester, _shown(token))
    if code is ErrorCode.NONE:
        if token is None:
            code = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        elif is_expired(token, question.now_ms):
            code = ErrorCode.DELEGATION_TOKEN_EXPIRED
        elif not may_renew(token, question.requester):
            code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        else:
            period_ms = question.settings.expiry_ms
            if request.renew_period_ms > 0:
                period_ms = min(period_ms, request.renew_period_ms)
            changed = _ending(token, min(token.max_timestamp, question.after(period_ms)))
            response = RenewDelegationTokenResponse(expiry_timestamp_ms=changed.expiration_timestamp)
            return Result([(changed, 0)], response, cause)
    return Result([], RenewDelegationTokenResponse(error_code=code), cause)


def expire(
    view: ControllerView,
    request: ExpireDelegationTokenRequest,
    question: TokenQuestion,
    token: DelegationTokenRecord | None,
) -> Result[ExpireDelegationTokenResponse]:
    """Decides on a new expiry time of a token. A negative period removes the token, whether it has expired or not."""
    code = _refusal(view, question)
    cause = Cause(ControllerEvent.EXPIRE_DELEGATION_TOKEN, question.requester, _shown(token))
    if code is ErrorCode.NONE:
        if token is None:
            code = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        elif not may_renew(token, question.requester):
            code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        elif request.expiry_time_period_ms < 0:
            removal = RemoveDelegationTokenRecord(token_id=token.token_id)
            return Result([(removal, 0)], ExpireDelegationTokenResponse(expiry_timestamp_ms=question.now_ms), cause)
        elif is_expired(token, question.now_ms):
            code = ErrorCode.DELEGATION_TOKEN_EXPIRED
        else:
            changed = _ending(token, min(token.max_timestamp, question.after(request.expiry_time_period_ms)))
            response = ExpireDelegationTokenResponse(expiry_timestamp_ms=changed.expiration_timestamp)
            return Result([(changed, 0)], response, cause)
    return Result([], ExpireDelegationTokenResponse(error_code=code), cause)


def removals(expired: Sequence[str], actor: str) -> Result[None]:
    """Returns the removal of expired tokens: of `REMOVALS_MAX` now, of the rest later."""
    now, later = expired[:REMOVALS_MAX], expired[REMOVALS_MAX:]
    cause = Cause(ControllerEvent.DELEGATION_TOKENS_EXPIRED, actor, f"{len(now)} delegation tokens")

    def rest(view: ControllerView) -> Result[None]:
        return removals([token_id for token_id in later if token_id in view.image.security.tokens], actor)

    records: list[Versioned] = [(RemoveDelegationTokenRecord(token_id=token_id), 0) for token_id in now]
    return Result(records, None, cause, rest if later else None)


def _refusal(view: ControllerView, question: TokenQuestion) -> ErrorCode:
    """Returns why no request about tokens can be served; NONE if they can."""
    if not question.settings.secret_key:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if view.image.metadata_version < V_3_6_IV2:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def _ending(token: DelegationTokenRecord, end_ms: int) -> DelegationTokenRecord:
    """Returns the token with another expiry time."""
    changed = copy(token)
    changed.expiration_timestamp = end_ms
    return changed


def _shown(token: DelegationTokenRecord | None) -> str:
    return "" if token is None else f"{token.token_id} of {token.owner}"
